"""Sending a model to the compiler service: in chunks, resumed where the service says, external data included."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ingot.channel import call
from ingot.records import Source
from ingot.resuming import OutagePatience, is_gap
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.storage.faults import file_error, require_file, told
from shared_ir.wire.fields import WireError
from shared_ir.wire.model_head import ModelHead, Outline

CHUNK_BYTES = 1024 * 1024
"""Bytes of one message."""
_LOOK_BYTES = 64 * 1024
"""Of a file, that are read at once to find the versions of a model."""
_MOST_VERSION = 2**63 - 1

Progress = Callable[[str, int, int], None]
"""Called with the name of the file, bytes sent, bytes in total. What it raises ends the upload, and is raised there."""


def no_progress(name: str, sent: int, total: int) -> None:
    """Reports nothing."""


@dataclass(frozen=True)
class Upload:
    """One file to send."""

    name: str
    content: bytes | Path
    is_model: bool = False

    @property
    def size(self) -> int:
        return self.content.stat().st_size if isinstance(self.content, Path) else len(self.content)

    def sha256(self) -> str:
        if not isinstance(self.content, Path):
            return hashlib.sha256(self.content).hexdigest()
        with told("the file cannot be read", self.content), self.content.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def chunks(self, offset: int) -> Iterator[bytes]:
        if isinstance(self.content, Path):
            with self.content.open("rb") as file:
                file.seek(offset)
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk
        else:
            for start in range(offset, len(self.content), CHUNK_BYTES):
                yield self.content[start : start + CHUNK_BYTES]

    def header(self, sha256: str, offset: int) -> pb.UploadHeader:
        kind = pb.FILE_KIND_MODEL if self.is_model else pb.FILE_KIND_EXTERNAL_DATA
        header = pb.UploadHeader(name=self.name, size=self.size, sha256=sha256, offset=offset, kind=kind)
        if self.is_model:
            found = self._outline()
            header.ir_version = min(found.ir_version or 0, _MOST_VERSION)
            header.opsets.update({domain: min(version, _MOST_VERSION) for domain, version in found.opsets.items()})
        return header

    def _outline(self) -> Outline:
        """Versions of the model, for which nearly all of it is passed over; none where it cannot be read, or not all of them."""
        head = ModelHead(self.size)
        try:
            if not isinstance(self.content, Path):
                head.feed(self.content, 0)
                return head.found if head.is_known else Outline()
            with self.content.open("rb") as file:
                while data := file.read(_LOOK_BYTES):
                    head.feed(data, file.tell() - len(data))
                    file.seek(head.wanted)
            return head.found if head.is_known else Outline()
        except WireError:
            return Outline()


class ProgressError(Exception):
    """Carries what a :data:`Progress` raised past all that would take it for an error of files or of the service."""

    def __init__(self, own: BaseException) -> None:
        super().__init__(str(own))
        self.own = own


class Advance:
    """Of one upload: going farther than ever before is an answer of the service, going there again is none.

    NOTE: else a service that takes the same bytes over and over, and never the file, would be waited for without end.
    """

    def __init__(self, patience: OutagePatience, progress: Progress) -> None:
        self._patience = patience
        self._progress = progress
        self._farthest = -1

    def reached(self, position: int) -> None:
        if position > self._farthest:
            self._farthest = position
            self._patience.answered()

    def sent(self, name: str, position: int, total: int) -> None:
        """Raises ProgressError."""
        self.reached(position)
        try:
            self._progress(name, position, total)
        except BaseException as error:  # in the thread of gRPC, which would wait for ever where it ended
            raise ProgressError(error) from error


class Uploader:
    """Sends files through ``stub``; ``options`` (metadata) go with every call."""

    def __init__(
        self,
        stub: Any,
        address: str,
        timeout: float,
        options: Mapping[str, Any],
        patience: OutagePatience | None = None,
    ) -> None:
        self._stub = stub
        self._patience = patience or OutagePatience()
        self._address = address
        self._timeout = timeout
        self._options = dict(options)

    def send_model(
        self, model: Any, external_data: Mapping[str, bytes | str | Path] | None, progress: Progress = no_progress
    ) -> Source:
        """Send a model (path, bytes, or ``onnx.ModelProto``) and its external data; what is there already is not sent.

        Raises:
            IngotError: NOT_FOUND, EXTERNAL_DATA, LIMIT_EXCEEDED, CHECKSUM_MISMATCH, UNAVAILABLE.
        """
        main = model_upload(model)
        files = {location: _content(location, given) for location, given in (external_data or {}).items()}
        if isinstance(main.content, Path):
            files = {**external_files(main.content), **files}
        digests = {location: self.send(Upload(location, files[location]), progress) for location in sorted(files)}
        return Source(self.send(main, progress), digests)

    def send(self, upload: Upload, progress: Progress = no_progress) -> str:
        """The sha256 of the file, once the service has all of it. What ``progress`` raises is raised."""
        sha256 = upload.sha256()
        advance = Advance(self._patience, progress)
        try:
            return self._patience.call(lambda: self._send(upload, sha256, advance))
        except ProgressError as error:
            own = error.own
        raise own

    def _send(self, upload: Upload, sha256: str, advance: Advance) -> str:
        query = pb.QueryUploadRequest(sha256=sha256, size=upload.size)
        seconds = self._patience.at_most(self._timeout)
        known = call(self._address, lambda: self._stub.QueryUpload(query, timeout=seconds, **self._options))
        total = upload.size
        if known.complete:
            advance.sent(upload.name, total, total)
            return sha256
        offset = known.received if known.received <= total else 0
        advance.reached(offset)
        try:
            self._send_from(offset, upload, sha256, advance)
        except IngotError as error:
            if not (offset and _is_of_kept(error)):
                raise
            self._send_from(0, upload, sha256, advance)
        return sha256

    def _send_from(self, offset: int, upload: Upload, sha256: str, advance: Advance) -> None:
        faults: list[OSError | ProgressError] = []
        requests = _requests(upload, sha256, offset, advance.sent, faults)
        remaining = self._patience.remaining
        timeout = {} if remaining is None else {"timeout": remaining}
        try:
            call(self._address, lambda: self._stub.UploadModel(requests, **timeout, **self._options))
        except IngotError as error:
            fault = faults[0] if faults else error
            raise file_error(fault, "the file cannot be read") if isinstance(fault, OSError) else fault from error


def _is_of_kept(error: IngotError) -> bool:
    """Whether what the service has of a file is not what it said, or not of this file."""
    return error.code is ErrorCode.CHECKSUM_MISMATCH or is_gap(error)


def _requests(
    upload: Upload, sha256: str, offset: int, progress: Progress, faults: list[OSError | ProgressError]
) -> Iterator[pb.UploadModelRequest]:
    """``faults`` gets what keeps the file from being read, and what ``progress`` raises: gRPC, which reads on in a thread, tells nobody."""
    total, sent = upload.size, offset
    try:
        yield pb.UploadModelRequest(header=upload.header(sha256, offset))
        for chunk in upload.chunks(offset):
            yield pb.UploadModelRequest(chunk=chunk)
            sent += len(chunk)
            progress(upload.name, sent, total)
    except (OSError, ProgressError) as error:
        faults.append(error)
        raise


def model_upload(model: Any) -> Upload:
    """Raises IngotError: NOT_FOUND, no such file; INVALID_ARGUMENT, not a model."""
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    if isinstance(model, bytes | bytearray | memoryview):
        return Upload("model", bytes(model), is_model=True)
    if not isinstance(model, str | Path):
        received = type(model).__name__
        raise IngotError(ErrorCode.INVALID_ARGUMENT, "not a model", expected="a path or bytes", received=received)
    path = Path(model)
    require_file(path, "model file", "Give the path of an ONNX file.")
    return Upload(path.name, path, is_model=True)


def _content(location: str, given: Any) -> bytes | Path:
    """Of a file of external data. Raises IngotError: NOT_FOUND, no such file; INVALID_ARGUMENT, no file and no bytes."""
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    if not isinstance(given, str | Path):
        received = type(given).__name__
        expected = "a path or bytes"
        message = "not the content of a file of external data"
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field=location, expected=expected, received=received)
    path = Path(given)
    require_file(path, "file of external data", "Give the path of a file.")
    return path


def external_files(model: Path) -> dict[str, Path]:
    """Location -> file of the external data that a model names, all of them in the model's own folder.

    Empty when ``onnx`` is not installed or the file cannot be read as a model: the service says what it misses then.

    Raises:
        IngotError: EXTERNAL_DATA, a location leaves the folder or its file is missing.
    """
    try:
        import onnx
        from onnx.external_data_helper import _get_all_tensors, uses_external_data
    except ModuleNotFoundError:
        return {}
    try:
        proto = onnx.load(str(model), load_external_data=False)
    except Exception:  # protobuf's own errors: the service refuses the file with a sentence about it
        return {}
    found = {}
    for tensor in _get_all_tensors(proto):
        if uses_external_data(tensor):
            location = next((e.value for e in tensor.external_data if e.key == "location"), "")
            if location not in found:
                found[location] = _beside(model, location, tensor.name)
    return found


def _beside(model: Path, location: str, tensor: str) -> Path:
    name = PurePosixPath(location)
    path = model.parent / name
    inside = bool(location) and not name.is_absolute() and ".." not in name.parts
    try:
        found = inside and path.resolve() == model.parent.resolve() / name and path.is_file()
    except (
        OSError,
        ValueError,
        RuntimeError,
    ):  # no name of a file: too long, with NUL in it, or links that lead nowhere
        found = False
    if not found:
        raise IngotError(
            ErrorCode.EXTERNAL_DATA,
            "external data is not a file beside the model",
            tensor=tensor,
            field=str(model),
            expected=f"a plain file under {model.parent}",
            received=repr(location[:200]),
            remedy="Copy the external data into the folder of the model, or give it as external_data.",
        )
    return path
