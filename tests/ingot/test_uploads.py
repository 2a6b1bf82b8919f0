"""Sending files: chunks, resuming, external data, and what happens when the connection breaks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import onnx
import pytest

from ingot import Client
from ingot.resuming import AWAY_SECONDS, OutagePatience
from ingot.upload import CHUNK_BYTES, Upload, Uploader, external_files, model_upload
from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2_grpc
from shared_ir.service_kit.status import grpc_metadata
from shared_ir.wire.fields import varint_bytes
from tests.ingot.small_models import scale


class Broken(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "the line went dead"

    def trailing_metadata(self) -> tuple[()]:
        return ()


class Service:
    """Keeps what arrives; breaks the connection after ``breaks[i]`` bytes of upload ``i``."""

    def __init__(self, breaks: list[int] | None = None, away: bool = False) -> None:
        self._away = away
        self.held = b""
        self.size = -1
        self.offsets: list[int] = []
        self.chunks: list[int] = []
        self._breaks = breaks or []

    def QueryUpload(self, request: Any, timeout: float) -> Any:
        if self._away:
            raise Broken
        return SimpleNamespace(received=len(self.held), complete=len(self.held) == self.size)

    def UploadModel(self, requests: Any, timeout: float | None = None) -> None:
        header = next(requests).header
        self.size = header.size
        self.offsets.append(header.offset)
        assert len(self.offsets) < 1000, "an upload is tried without end"
        self.held = self.held[: header.offset]
        limit = self._breaks.pop(0) if self._breaks else None
        for request in requests:
            self.held += request.chunk
            self.chunks.append(len(request.chunk))
            if limit is not None and len(self.held) >= limit:
                raise Broken


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.resuming.time.sleep", lambda seconds: None)


def uploader(service: Service, timeout: float | None = None) -> Uploader:
    return Uploader(service, "nowhere", 1.0, {}, OutagePatience(timeout))


@pytest.mark.parametrize("make", [lambda data, path: data, lambda data, path: path])
def test_files_travel_in_chunks(tmp_path: Path, make: Callable[[bytes, Path], bytes | Path]) -> None:
    data, service, seen = bytes(range(256)) * (10 * CHUNK_BYTES // 1024), Service(), []
    (tmp_path / "m").write_bytes(data)
    digest = uploader(service).send(Upload("m", make(data, tmp_path / "m")), lambda *step: seen.append(step))
    assert digest == sha256_hex(data)
    assert service.held == data
    assert max(service.chunks) == CHUNK_BYTES
    assert seen[-1] == ("m", len(data), len(data))


def test_a_broken_upload_goes_on_where_it_broke() -> None:
    data, service = b"x" * (5 * CHUNK_BYTES), Service(breaks=[2 * CHUNK_BYTES, 4 * CHUNK_BYTES])
    uploader(service).send(Upload("m", data))
    assert service.held == data
    assert service.offsets == [0, 2 * CHUNK_BYTES, 4 * CHUNK_BYTES]


def test_a_service_that_stays_away_is_given_up() -> None:
    service, start = Service(away=True), time.monotonic()
    with pytest.raises(IngotError) as caught:
        uploader(service, timeout=0.3).send(Upload("m", b"abc"))
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert 0.3 <= time.monotonic() - start < 10.0
    assert service.offsets == []


class Spoiled(Service):
    """Finds out at the end that what it had was something else."""

    def UploadModel(self, requests: Any, timeout: float | None = None) -> None:
        super().UploadModel(requests, timeout)
        if self.held[:1] == b"?":
            self.held = b""
            raise Mismatch


class Mismatch(Broken):
    def trailing_metadata(self) -> Any:
        error = IngotError(ErrorCode.CHECKSUM_MISMATCH, "other bytes", field="sha256")
        return grpc_metadata(error)


def test_a_service_that_had_other_bytes_gets_all_of_them() -> None:
    service = Spoiled()
    service.held = b"??"
    uploader(service).send(Upload("m", b"abcdef"))
    assert service.held == b"abcdef"
    assert service.offsets == [2, 0]


class Mistaken(Service):
    """Says that it has more than it goes on from: of a version that does not look at the size."""

    def QueryUpload(self, request: Any, timeout: float) -> Any:
        self.asked = request
        return SimpleNamespace(received=4, complete=False)

    def UploadModel(self, requests: Any, timeout: float | None = None) -> None:
        super().UploadModel(requests, timeout)
        if self.offsets[-1]:
            raise Gap


class Gap(Broken):
    def trailing_metadata(self) -> Any:
        return grpc_metadata(IngotError(ErrorCode.INVALID_ARGUMENT, "the upload resumes after a gap", field="offset"))


def test_where_an_upload_cannot_go_on_it_starts_over() -> None:
    service = Mistaken()
    uploader(service).send(Upload("m", b"abcdef"))
    assert (service.held, service.offsets) == (b"abcdef", [4, 0])
    assert (service.asked.sha256, service.asked.size) == (sha256_hex(b"abcdef"), 6)


class Refusing(Service):
    """Answers, and never takes the file."""

    def __init__(self, clock: list[float], fault: type[Broken], received: int) -> None:
        super().__init__()
        self._clock, self._fault, self._received = clock, fault, received

    def QueryUpload(self, request: Any, timeout: float) -> Any:
        return SimpleNamespace(received=self._received, complete=False)

    def UploadModel(self, requests: Any, timeout: float | None = None) -> None:
        super().UploadModel(requests, timeout)
        self._clock[0] += 10.0
        raise self._fault


@pytest.mark.parametrize("fault", [Broken, Gap])
@pytest.mark.parametrize("received", [0, 4])
def test_without_progress_patience_ends(monkeypatch: pytest.MonkeyPatch, fault: type[Broken], received: int) -> None:
    clock = [0.0]
    monkeypatch.setattr("ingot.resuming.time.monotonic", lambda: clock[0])
    service = Refusing(clock, fault, received)
    with pytest.raises(IngotError) as caught:
        uploader(service).send(Upload("m", b"abcdef"))
    assert caught.value.code is (ErrorCode.UNAVAILABLE if fault is Broken else ErrorCode.INVALID_ARGUMENT)
    assert AWAY_SECONDS <= clock[0] < AWAY_SECONDS + 30


def test_with_progress_patience_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes together, and however long the part that broke off took."""
    clock, pieces = [0.0], 9

    class Slow(Service):
        def UploadModel(self, requests: Any, timeout: float | None = None) -> None:
            clock[0] += 2 * AWAY_SECONDS
            super().UploadModel(requests, timeout)

    monkeypatch.setattr("ingot.resuming.time.monotonic", lambda: clock[0])
    service = Slow(breaks=[number * CHUNK_BYTES for number in range(2, pieces, 2)])
    uploader(service).send(Upload("m", b"x" * (pieces * CHUNK_BYTES)))
    assert len(service.held) == pieces * CHUNK_BYTES


def test_the_versions_of_a_model_are_told_before_its_weights(tmp_path: Path) -> None:
    proto = scale()
    proto.graph.initializer.add(name="w", data_type=onnx.TensorProto.UINT8, dims=[1 << 20], raw_data=bytes(1 << 20))
    data = proto.SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data)
    for model in (data, tmp_path / "m.onnx"):
        header = model_upload(model).header("ab" * 32, 0)
        assert header.kind == pb.FILE_KIND_MODEL
        assert header.ir_version == proto.ir_version
        assert dict(header.opsets) == {"": proto.opset_import[0].version}
    endless = data + b"\x42" + varint_bytes(80_002) + b"\x0a\x00" * 40_000 + b"\x10\x11"
    told = model_upload(endless).header("ab" * 32, 0)
    assert (told.ir_version, dict(told.opsets)) == (0, {})  # not all of them are known
    for odd in (b"\xff" * 100, b"\x08" + b"\xff" * 9 + b"\x01", data[:-5], b""):
        assert model_upload(odd).header("ab" * 32, 0).kind == pb.FILE_KIND_MODEL
    assert Upload("weights", data).header("ab" * 32, 0).kind == pb.FILE_KIND_EXTERNAL_DATA


def test_what_is_there_is_not_sent_again() -> None:
    service = Service()
    uploader(service).send(Upload("m", b"abc"))
    uploader(service).send(Upload("m", b"abc"))
    assert service.offsets == [0]


def test_external_data_is_found_beside_the_model(tmp_path: Path) -> None:
    save_with_external_data(tmp_path, "weights.bin")
    assert external_files(tmp_path / "m.onnx") == {"weights.bin": tmp_path / "weights.bin"}
    source = uploader(Service()).send_model(tmp_path / "m.onnx", None)
    assert source.external_data == {"weights.bin": sha256_hex((tmp_path / "weights.bin").read_bytes())}


@pytest.mark.parametrize(
    "location",
    ["../secret", "/etc/passwd", "", "missing.bin", "a" * 5000, "a\0b", "loop/x"],
    ids=lambda name: repr(name)[:14],
)
def test_external_data_elsewhere_is_not_sent(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"0123456789abcdef")
    (folder / "loop").symlink_to("loop")
    save_with_external_data(folder, "weights.bin")
    proto = onnx.load(folder / "m.onnx", load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = location
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(IngotError) as caught:
        uploader(Service()).send_model(folder / "m.onnx", None)
    assert caught.value.code is ErrorCode.EXTERNAL_DATA


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"0123456789abcdef")
    save_with_external_data(folder, "weights.bin")
    (folder / "weights.bin").unlink()
    (folder / "weights.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(IngotError, match="beside the model"):
        external_files(folder / "m.onnx")


def test_what_is_a_model() -> None:
    assert model_upload(b"abc").size == 3
    assert model_upload(scale()).size > 50
    for wrong, code in ((7, ErrorCode.INVALID_ARGUMENT), ("no/such/file", ErrorCode.NOT_FOUND)):
        with pytest.raises(IngotError) as caught:
            model_upload(wrong)
        assert caught.value.code is code


def test_a_file_that_is_no_model_has_no_external_data(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\xff" * 30)
    assert external_files(tmp_path / "m.onnx") == {}


def save_with_external_data(folder: Path, location: str) -> None:
    proto = scale()
    proto.graph.initializer[0].raw_data = proto.graph.initializer[0].raw_data or b"\0\0\0\0"
    onnx.save(proto, folder / "m.onnx", save_as_external_data=True, location=location, size_threshold=0)


class Taker(compiler_pb2_grpc.CompilerServiceServicer):  # type: ignore[misc]  # generated code is untyped
    """A service that takes whatever comes; ``has_all`` of it before."""

    def __init__(self) -> None:
        self.has_all = False
        self.asked = 0

    def QueryUpload(self, request: pb.QueryUploadRequest, context: grpc.ServicerContext) -> pb.QueryUploadResponse:
        self.asked += 1
        return pb.QueryUploadResponse(complete=self.has_all)

    def UploadModel(self, requests: Any, context: grpc.ServicerContext) -> pb.UploadModelResponse:
        return pb.UploadModelResponse(size=sum(len(request.chunk) for request in requests))


@pytest.fixture(name="taker")
def fixture_taker() -> Iterator[tuple[Taker, str]]:
    taker, server = Taker(), grpc.server(ThreadPoolExecutor(2))
    compiler_pb2_grpc.add_CompilerServiceServicer_to_server(taker, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield taker, f"127.0.0.1:{port}"
    server.stop(None)


@pytest.mark.parametrize("has_all", [False, True])
@pytest.mark.parametrize(
    "own",
    [
        FileNotFoundError(2, "No such file or directory", "progress.log"),
        ValueError("a fault of the caller"),
        IngotError(ErrorCode.UNAVAILABLE, "his own service is away"),
        KeyboardInterrupt(),
    ],
    ids=lambda own: type(own).__name__,
)
def test_what_the_callers_own_progress_raises_is_raised(
    taker: tuple[Taker, str], own: BaseException, has_all: bool
) -> None:
    service, address = taker
    service.has_all = has_all

    def progress(name: str, sent: int, total: int) -> None:
        raise own

    with Client(address) as client, pytest.raises(type(own)) as caught:
        client.upload(scale(2.0).SerializeToString(), progress=progress)
    assert caught.value is own
    assert service.asked == 1


def test_external_data_may_be_named_by_a_text(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"weights")
    service = Service()
    sent = Uploader(service, "x", 1.0, {}).send_model(b"weights", {"w": str(tmp_path / "weights")})
    assert sent.external_data == {"w": sha256_hex(b"weights")}


MISUSES: dict[str, Callable[[Client], Any]] = {
    "a number that no message holds": lambda client: client.compile(b"m", "m", tune=2**70),
    "a text that no message holds": lambda client: client.compile(b"m", "m", bundle="\ud800"),
    "a time that is a text": lambda client: client.jobs(since="yesterday"),  # type: ignore[arg-type]
    "no content": lambda client: client.upload(b"m", {"w": 3}),  # type: ignore[dict-item]
    "no file": lambda client: client.upload(b"m", {"w": "nowhere"}),
    "a timeout that is a text": lambda client: Client(client.address, timeout="3"),  # type: ignore[arg-type]
    "no token": lambda client: Client(client.address, token=None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_is_an_error_of_ours(misuse: str) -> None:
    """Without a service: it is told before anything is sent."""
    with Client("127.0.0.1:1") as client, pytest.raises(IngotError) as caught:
        MISUSES[misuse](client)
    assert caught.value.code in (ErrorCode.INVALID_ARGUMENT, ErrorCode.NOT_FOUND)
    assert caught.value.field
