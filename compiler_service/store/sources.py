"""Uploaded models: files known by their sha256, kept in the object store under ``sources/``.

An upload under way is a draft in the store, so that any server goes on with it; it becomes a source when its digest has been checked.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from compiler_service.jobs.records import UploadedModel, source_folder
from compiler_service.stages.process import SourceFiles
from shared_ir.digest import digest_of_file
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.registry.collection import UPLOADS
from shared_ir.storage.drafts import abandoned
from shared_ir.storage.protocol import DraftWriter, ObjectStore

FORGET_SECONDS = 24 * 3600.0
"""An upload that nobody continued for this long is removed."""
IDLE_SECONDS = 900.0
"""The same where its namespace has no room left; longer than clients wait for a service that is away."""
SWEEP_SECONDS = 3600.0
"""Between two looks for such uploads."""
_DRAFT = re.compile(r"(?P<sha256>[0-9a-f]{64})\.(?P<size>\d+)(?:/|$)")
"""What follows the folder in the keys of a draft."""
Look = Callable[[bytes], None]
"""Is shown every byte of a file before it is kept, in order; what it raises ends the upload, and nothing stays of the file."""


def accept(data: bytes) -> None:
    """A :data:`Look` at any bytes."""


@dataclass(frozen=True)
class UploadAnnouncement:
    """What the client says about a file before it sends it.

    Attributes:
        limit: bytes that the files of the namespace may have together; 0 for any number.
    """

    name: str
    size: int
    sha256: str
    offset: int = 0
    namespace: str = ""
    limit: int = 0


class SourceStore:
    """Uploaded files.

    Args:
        store: where they are.
        max_bytes: largest file.
    """

    def __init__(self, store: ObjectStore, max_bytes: int) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._swept = 0.0

    def received(self, sha256: str, size: int, namespace: str = "") -> tuple[int, bool]:
        """Bytes held of a file, and whether it is complete; of one under way, where an upload of this ``size`` can go on."""
        whole = self._store.size(_key(sha256, namespace))
        if whole is not None:
            return whole, True
        if size <= 0:
            return 0, False
        return self._store.draft(_draft(sha256, size, namespace)).held(), False

    def check(self, upload: UploadAnnouncement) -> None:
        """Refuse what cannot become a file, before its first byte.

        Raises:
            IngotError: LIMIT_EXCEEDED, INVALID_ARGUMENT; INVALID_MODEL, it is empty.
        """
        check_sha256(upload.sha256, "sha256")
        if upload.size == 0:
            message, remedy = "the file is empty", "Send a model, or a file of its weights."
            raise IngotError(ErrorCode.INVALID_MODEL, message, field="size", received="0 bytes", remedy=remedy)
        if upload.size < 0 or not 0 <= upload.offset <= upload.size:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "the declared size or offset of the file makes no sense",
                field="size",
                expected="a size above 0 and an offset within it",
                received=f"size {upload.size}, offset {upload.offset}",
            )
        if upload.size > self._max_bytes:
            raise IngotError(
                ErrorCode.LIMIT_EXCEEDED,
                f"{upload.name or 'the file'} is too large",
                field="size",
                expected=f"at most {self._max_bytes} bytes",
                received=f"{upload.size} bytes",
                remedy="Move large weights to external data, or ask the operator of the service for a higher limit.",
            )

    def receive(self, upload: UploadAnnouncement, chunks: Iterable[bytes], look: Look = accept) -> int:
        """Take the bytes of a file from ``upload.offset`` on; its size.

        An incomplete upload is kept for later; one that ``look`` refuses, or whose digest is wrong, is dropped. What ``look`` refuses of an
        upload that goes on is CHECKSUM_MISMATCH: the fault may lie in what was kept, which somebody else has sent.

        Raises:
            IngotError: as :meth:`check` and ``look``; INVALID_ARGUMENT for too few or too many bytes, or another size than the file has
                that is there; CHECKSUM_MISMATCH; UNAVAILABLE when the same file is being uploaded by someone else.
        """
        self.check(upload)
        self._sweep()
        key = _key(upload.sha256, upload.namespace)
        there = self._store.size(key)
        if there == upload.size:
            return upload.size
        if there is not None:
            raise _another_size(upload, there)
        with self._store.draft(_draft(upload.sha256, upload.size, upload.namespace)).writer(upload.offset) as writer:
            self._require_room(upload, writer)
            received = _written(upload, chunks, writer, look)
            if received != upload.sha256:
                writer.drop()
                raise _not_as_sent(upload, received)
            writer.finish(key)
        return upload.size

    def require(self, source: UploadedModel) -> None:
        """Raises IngotError: NOT_FOUND naming the file that was not uploaded; EXTERNAL_DATA, INVALID_ARGUMENT."""
        check_sha256(source.model_sha256, "source.model_sha256")
        self._require(source.model_sha256, source.namespace, "the model")
        asked = {source.model_sha256}  # one file may stand at many places of a model
        for location, sha256 in source.external_data.items():
            check_location(location)
            check_sha256(sha256, f"source.external_data[{location}]")
            if sha256 not in asked:
                self._require(sha256, source.namespace, f"the external data {location!r}")
                asked.add(sha256)

    def files(self, source: UploadedModel) -> SourceFiles:
        """Local files, fit to be read and never to be written; each is what its name says.

        Raises:
            IngotError: NOT_FOUND; CHECKSUM_MISMATCH, somebody changed what was uploaded.
        """
        own = source.namespace
        found = {sha256: self._file(sha256, own) for sha256 in {source.model_sha256, *source.external_data.values()}}
        blobs = {location: found[sha256] for location, sha256 in source.external_data.items()}
        return SourceFiles(found[source.model_sha256], blobs)

    def held(self, namespace: str) -> int:
        """Bytes of the files of a namespace, those of uploads under way among them as they were declared, or more where more lies there.

        NOTE: a draft of a file that is there counts for nothing only if it is of that file's size: it is about to become it.
        """
        folder, drafts = source_folder(namespace), _upload_folder(namespace)
        sizes = {info.key.removeprefix(f"{folder}/"): info.size for info in self._store.list(folder)}
        declared, kept = dict[str, int](), Counter[str]()
        for info in self._store.list(drafts):
            found = _DRAFT.match(info.key, len(drafts) + 1)
            if found and sizes.get(found["sha256"]) != int(found["size"]):
                declared[found.group()] = int(found["size"])
                kept[found.group()] += info.size
        return sum(sizes.values()) + sum(max(size, kept[draft]) for draft, size in declared.items())

    def _file(self, sha256: str, namespace: str) -> Path:
        path = self._store.local_path(_key(sha256, namespace), self._max_bytes)
        received = digest_of_file(path)
        if received != f"sha256:{sha256}":
            raise IngotError(
                ErrorCode.CHECKSUM_MISMATCH,
                "an uploaded file is not what it was",
                field=_key(sha256, namespace),
                expected=f"sha256:{sha256}",
                received=received,
                remedy="Take it out of the store, and upload it again.",
            )
        return path

    def _require_room(self, upload: UploadAnnouncement, writer: DraftWriter) -> None:
        """NOTE: each of several uploads at once is in the lists before it counts, so that one of them sees the others at least."""
        if not (upload.limit and upload.namespace):
            return
        writer.reserve()
        held = self.held(upload.namespace)
        if held > upload.limit:
            self._forget(_upload_folder(upload.namespace), IDLE_SECONDS)
            held = self.held(upload.namespace)
        if held > upload.limit:
            if not upload.offset:
                writer.drop()
            raise IngotError(
                ErrorCode.LIMIT_EXCEEDED,
                f"namespace {upload.namespace!r} has no room for {upload.name or 'the file'}",
                field="bytes",
                expected=f"at most {upload.limit} bytes together",
                received=f"{held - upload.size} bytes there, {upload.size} bytes more",
                remedy="Ask the operator of the service to take away what is not needed, or for a larger quota.",
            )

    def _require(self, sha256: str, namespace: str, what: str) -> None:
        if self._store.size(_key(sha256, namespace)) is None:
            raise IngotError(
                ErrorCode.NOT_FOUND,
                f"{what} was not uploaded",
                field=sha256,
                remedy="Upload the file first, then refer to it by its sha256.",
            )

    def _sweep(self) -> None:
        if time.monotonic() - self._swept > SWEEP_SECONDS or not self._swept:
            self._swept = time.monotonic()
            self._forget(UPLOADS, FORGET_SECONDS)

    def _forget(self, folder: str, seconds: float) -> None:
        before = time.time() - seconds
        for info in list(abandoned(self._store.list(folder), before)):
            self._store.delete_unused(info.key, before)


def forget_local_uploads(directory: Path) -> None:
    """Remove uploads that the version before kept in a folder of the server, once nobody can go on with them any more."""
    for path in directory.glob("*.part"):
        if time.time() - path.stat().st_mtime > FORGET_SECONDS:
            path.unlink(missing_ok=True)


def check_sha256(text: str, field: str) -> str:
    """Raises IngotError INVALID_ARGUMENT."""
    if len(text) != 64 or not set(text) <= set("0123456789abcdef"):
        expected = "64 lower-case hexadecimal digits"
        message = "not a sha256 digest"
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field=field, expected=expected, received=repr(text)[:80])
    return text


def check_location(location: str) -> None:
    """Raises IngotError EXTERNAL_DATA for a location that leaves the model's folder."""
    path = PurePosixPath(location)
    if not location or path.is_absolute() or ".." in path.parts or "\\" in location or "\0" in location:
        raise IngotError(
            ErrorCode.EXTERNAL_DATA,
            "the external data lies outside the model's folder",
            field=repr(location)[:200],
            expected="a relative path without '..'",
            remedy="Save the model with its external data beside it.",
        )


def request_source(files: SourceFiles) -> Mapping[str, object]:
    """The source as a stage's request names it."""
    return {"model": str(files.model), "blobs": {location: str(path) for location, path in files.blobs.items()}}


def _written(upload: UploadAnnouncement, chunks: Iterable[bytes], writer: DraftWriter, look: Look) -> str:
    """The sha256 of what was there and what comes, all of which ``writer`` has then."""
    sha256, position = hashlib.sha256(), upload.offset
    for piece in writer.kept():
        sha256.update(piece)
        _seen(look, piece, upload, writer)
    for chunk in chunks:
        position += len(chunk)
        if position > upload.size:
            raise _wrong_length("more bytes came than were declared", upload, position)
        _seen(look, chunk, upload, writer)
        sha256.update(chunk)
        writer.write(chunk)
    if position < upload.size:
        raise _wrong_length("the upload ended early", upload, position)
    return sha256.hexdigest()


def _seen(look: Look, data: bytes, upload: UploadAnnouncement, writer: DraftWriter) -> None:
    try:
        look(data)
    except IngotError as error:
        writer.drop()
        if upload.offset:
            raise _not_as_sent(upload, f"bytes that, after those kept from before, are refused: {error}") from error
        raise


def _not_as_sent(upload: UploadAnnouncement, received: str) -> IngotError:
    return IngotError(
        ErrorCode.CHECKSUM_MISMATCH,
        f"{upload.name or 'the file'} did not arrive as it was sent",
        field="sha256",
        expected=upload.sha256,
        received=received,
        remedy="Upload it again from the start.",
    )


def _another_size(upload: UploadAnnouncement, there: int) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        f"{upload.name or 'the file'} cannot have this size: the file of this sha256 is there, and has another",
        field="size",
        expected=f"{there} bytes",
        received=f"{upload.size} bytes",
        remedy="Take size and sha256 of the same bytes.",
    )


def _wrong_length(message: str, upload: UploadAnnouncement, received: int) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        message,
        field=upload.name or "chunk",
        expected=f"{upload.size} bytes",
        received=f"{received} bytes",
        remedy="Ask QueryUpload where to resume, and send the rest.",
    )


def _key(sha256: str, namespace: str) -> str:
    return f"{source_folder(namespace)}/{check_sha256(sha256, 'sha256')}"


def _upload_folder(namespace: str) -> str:
    return f"{UPLOADS}/{namespace}" if namespace else UPLOADS


def _draft(sha256: str, size: int, namespace: str) -> str:
    """NOTE: the size is in the key, so that the lists of the store tell what was declared."""
    return f"{_upload_folder(namespace)}/{check_sha256(sha256, 'sha256')}.{size}"
