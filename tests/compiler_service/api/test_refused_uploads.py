"""The server as it is shipped: what is no model it could compile is refused before most of it is sent, and nothing of it stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc
import onnx
import pytest

import ingot
from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.service_kit.status import attached_error
from tests.compiler_service.api.test_access import trailing
from tests.ingot.small_models import scale
from tests.services.installation import Client, Installation, installation

pytestmark = pytest.mark.services
WEIGHTS = 32 << 20


@pytest.fixture(name="running", scope="module")
def fixture_running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with installation(tmp_path_factory.mktemp("home")) as running:
        running.start_server(("-m", "compiler_service.server", "--ready-file"))
        yield running


def heavy(ir_version: int = 8, opset: int = 17) -> bytes:
    proto = scale()
    proto.ir_version, proto.opset_import[0].version = ir_version, opset
    proto.graph.initializer.add(name="w", data_type=onnx.TensorProto.UINT8, dims=[WEIGHTS], raw_data=bytes(WEIGHTS))
    return bytes(proto.SerializeToString())


REFUSED: dict[str, tuple[Callable[[], bytes], ErrorCode]] = {
    "a picture": (lambda: b"\xff\xd8\xff\xe0" + bytes(WEIGHTS), ErrorCode.INVALID_MODEL),
    "IR version": (lambda: heavy(ir_version=99), ErrorCode.INVALID_MODEL),
    "opset": (lambda: heavy(opset=99), ErrorCode.UNSUPPORTED_OPSET),
}


def stored(running: Installation) -> set[str]:
    return {path.name for folder in ("sources", "uploads") for path in (running.home / "store" / folder).rglob("*")}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_before_the_rest_is_sent(running: Installation, name: str) -> None:
    make, code = REFUSED[name]
    data, sent = make(), [0]
    with ingot.Client(running.address) as client, pytest.raises(IngotError) as caught:
        client.upload(data, progress=lambda name, done, total: sent.append(done))
    error = caught.value
    assert (error.code, bool(error.expected), bool(error.received), bool(error.remedy)) == (code, True, True, True)
    assert max(sent) < WEIGHTS / 2
    assert not any(sha256_hex(data) in name for name in stored(running))


@pytest.mark.parametrize(("name", "part"), [("a picture", 0.5), ("IR version", 1.0), ("opset", 1.0)])
def test_the_bytes_alone_are_enough(running: Installation, name: str, part: float) -> None:
    """Of a client that says nothing of the file but its name; the last of several versions counts, so that all bytes have to come."""
    make, code = REFUSED[name]
    data, sent = make(), [0]

    def requests() -> Iterator[pb.UploadModelRequest]:
        yield pb.UploadModelRequest(header=pb.UploadHeader(name="m.onnx", size=len(data), sha256=sha256_hex(data)))
        for start in range(0, len(data), 1 << 20):
            sent[0] = start
            yield pb.UploadModelRequest(chunk=data[start : start + (1 << 20)])

    with pytest.raises(grpc.RpcError) as caught:
        Client(running.address).stub.UploadModel(requests(), timeout=30)
    error = attached_error(trailing(caught.value))
    assert error is not None
    assert error.code is code
    assert sent[0] <= WEIGHTS * part
    assert not any(sha256_hex(data) in name for name in stored(running))


def begin(running: Installation, data: bytes, size: int, sha256: str) -> None:
    """An upload of something else that breaks off; of weights, at which nobody looks."""
    header = pb.UploadHeader(name="w", size=size, sha256=sha256, kind=pb.FILE_KIND_EXTERNAL_DATA)
    requests = [pb.UploadModelRequest(header=header), pb.UploadModelRequest(chunk=data)]
    with pytest.raises(grpc.RpcError, match="ended early"):
        Client(running.address).stub.UploadModel(iter(requests), timeout=30)


@pytest.mark.parametrize("more", [0, 7])
@pytest.mark.parametrize("start", [b"\xff\xd8\xff", b"\x08\x08\x3a"])
def test_what_others_began_keeps_no_model_from_passing(running: Installation, start: bytes, more: int) -> None:
    model = scale()
    model.producer_name = f"{start!r} {more}"
    data = model.SerializeToString()
    begin(running, start + bytes(50), len(data) + more, sha256_hex(data))
    with ingot.Client(running.address) as client:
        assert client.upload(data, timeout=20).model_sha256 == sha256_hex(data)


def test_models_and_weights_pass(running: Installation) -> None:
    with ingot.Client(running.address) as client:
        source = client.upload(heavy(), {"w.bin": b"\xff\xd8\xff\xe0 are weights"})
        assert client.upload(scale()).model_sha256 in stored(running)
    assert {source.model_sha256, source.external_data["w.bin"]} <= stored(running)
