"""Uploaded models: files known by their sha256, kept in the object store under ``sources/``.

An upload under way is a local file, so that it can resume; it moves to the store when its digest has been checked.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path, PurePosixPath

from compiler_service.jobs.records import Source, source_folder
from compiler_service.stages.process import SourceFiles
from shared_ir.digest import digest_of_file
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.protocol import ObjectStore

FORGET_SECONDS = 24 * 3600.0
"""An upload that nobody continued for this long is removed."""


@dataclass(frozen=True)
class Upload:
    """What the client says about a file before it sends it."""

    name: str
    size: int
    sha256: str
    offset: int = 0
    namespace: str = ""


class SourceStore:
    """Uploaded files.

    Args:
        store: where complete files go.
        directory: where uploads under way are kept.
        max_bytes: largest file.
    """

    def __init__(self, store: ObjectStore, directory: Path, max_bytes: int) -> None:
        self._store = store
        self._directory = directory
        self._max_bytes = max_bytes

    def received(self, sha256: str, namespace: str = "") -> tuple[int, bool]:
        """Bytes held of a file, and whether it is complete."""
        size = self._store.size(_key(sha256, namespace))
        if size is not None:
            return size, True
        partial = self._partial(sha256, namespace)
        return (partial.stat().st_size if partial.is_file() else 0), False

    def check(self, upload: Upload) -> None:
        """Refuse what cannot become a file, before its first byte.

        Raises:
            IngotError: LIMIT_EXCEEDED, INVALID_ARGUMENT.
        """
        check_sha256(upload.sha256, "sha256")
        if upload.size <= 0 or not 0 <= upload.offset <= upload.size:
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

    def receive(self, upload: Upload, chunks: Iterable[bytes]) -> int:
        """Take the bytes of a file from ``upload.offset`` on; its size.

        An incomplete upload is kept for later; a complete one whose digest is wrong is dropped.

        Raises:
            IngotError: as :meth:`check`; INVALID_ARGUMENT for too few or too many bytes; CHECKSUM_MISMATCH; UNAVAILABLE
                when the same file is being uploaded by someone else.
        """
        self.check(upload)
        self._forget_old()
        key, partial = _key(upload.sha256, upload.namespace), self._partial(upload.sha256, upload.namespace)
        if self._store.size(key) == upload.size:
            return upload.size
        with self._locked(partial) as file:
            self._append(upload, chunks, file)
            self._check_digest(upload, file)
            self._store.put(key, partial)
            partial.unlink()
        return upload.size

    def require(self, source: Source) -> None:
        """Raises IngotError: NOT_FOUND naming the file that was not uploaded; EXTERNAL_DATA, INVALID_ARGUMENT."""
        check_sha256(source.model_sha256, "source.model_sha256")
        self._require(source.model_sha256, source.namespace, "the model")
        for location, sha256 in source.external_data.items():
            check_location(location)
            check_sha256(sha256, f"source.external_data[{location}]")
            self._require(sha256, source.namespace, f"the external data {location!r}")

    def files(self, source: Source) -> SourceFiles:
        """Local files, fit to be read and never to be written; each is what its name says.

        Raises:
            IngotError: NOT_FOUND; CHECKSUM_MISMATCH, somebody changed what was uploaded.
        """
        own = source.namespace
        blobs = {location: self._file(sha256, own) for location, sha256 in source.external_data.items()}
        return SourceFiles(self._file(source.model_sha256, own), blobs)

    def held(self, namespace: str) -> int:
        """Bytes of the files of a namespace."""
        return sum(info.size for info in self._store.list(source_folder(namespace)))

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

    def _append(self, upload: Upload, chunks: Iterable[bytes], file: FileIO) -> None:
        held = file.seek(0, os.SEEK_END)
        if upload.offset > held:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "the upload resumes after a gap",
                field="offset",
                expected=f"at most {held}",
                received=str(upload.offset),
                remedy="Ask QueryUpload where to resume.",
            )
        file.seek(upload.offset)
        file.truncate()
        position = upload.offset
        for chunk in chunks:
            position += len(chunk)
            if position > upload.size:
                raise _wrong_length("more bytes came than were declared", upload, position)
            if file.write(chunk) != len(chunk):  # unbuffered, so that what has come is there after a crash
                message, remedy = (
                    "the disk for uploads is full",
                    "Try again later, or tell the operator of the service.",
                )
                raise IngotError(ErrorCode.UNAVAILABLE, message, remedy=remedy)
        if position < upload.size:
            raise _wrong_length("the upload ended early", upload, position)

    def _check_digest(self, upload: Upload, file: FileIO) -> None:
        file.seek(0)
        received = hashlib.file_digest(file, "sha256").hexdigest()
        if received != upload.sha256:
            self._partial(upload.sha256, upload.namespace).unlink()
            raise IngotError(
                ErrorCode.CHECKSUM_MISMATCH,
                f"{upload.name or 'the file'} did not arrive as it was sent",
                field="sha256",
                expected=upload.sha256,
                received=received,
                remedy="Upload it again from the start.",
            )

    @contextmanager
    def _locked(self, path: Path) -> Iterator[FileIO]:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b", buffering=0) as appended, FileIO(path, "r+") as file:
            try:
                fcntl.flock(appended, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                message, remedy = "this file is being uploaded by someone else right now", "Try again in a moment."
                raise IngotError(ErrorCode.UNAVAILABLE, message, field="sha256", remedy=remedy) from error
            yield file

    def _require(self, sha256: str, namespace: str, what: str) -> None:
        if self._store.size(_key(sha256, namespace)) is None:
            raise IngotError(
                ErrorCode.NOT_FOUND,
                f"{what} was not uploaded",
                field=sha256,
                remedy="Upload the file first, then refer to it by its sha256.",
            )

    def _forget_old(self) -> None:
        now = time.time()
        for path in self._directory.glob("*.part"):
            if now - path.stat().st_mtime > FORGET_SECONDS:
                path.unlink(missing_ok=True)

    def _partial(self, sha256: str, namespace: str) -> Path:
        name = f"{check_sha256(sha256, 'sha256')}.part"
        return self._directory / (f"{namespace}.{name}" if namespace else name)


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


def _wrong_length(message: str, upload: Upload, received: int) -> IngotError:
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
