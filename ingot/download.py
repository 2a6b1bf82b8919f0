"""A version of a model as the compiler service streams it, into a folder."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from shared_ir.artifact.layout import read_references, write_references
from shared_ir.artifact.oci import INDEX_FILE, LAYOUT_FILE, REFERENCE
from shared_ir.artifact.signed import MAX_DOCUMENT_BYTES
from shared_ir.digest import digest_hex, digest_of_file
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.faults import told
from shared_ir.storage.files import create_atomically

_DOCUMENTS = (LAYOUT_FILE, INDEX_FILE)
_BLOBS = "blobs/sha256/"
_BLOB = re.compile(_BLOBS + "[0-9a-f]{64}")


def receive_layout(parts: Iterable[Any], directory: Path) -> str:
    """Write the files of a ``DownloadArtifact`` stream; the tag of the version that came.

    Files are written under digests that they have, and under no other name; other versions in ``directory`` stay. The index is
    written last, so an interrupted download leaves no half version.

    Raises:
        IngotError: CHECKSUM_MISMATCH, ARTIFACT_CORRUPT; RESOURCE_EXHAUSTED, a file is larger than the disk has room for.
    """
    with (
        told("the version cannot be written", directory),
        tempfile.TemporaryDirectory(prefix="ingot-download-") as name,
    ):
        incoming = Path(name)
        for path, size in _receive(parts, incoming):
            if path in _DOCUMENTS:
                (incoming / "part").rename(incoming / path)
            else:
                digest = f"sha256:{path.removeprefix(_BLOBS)}"
                _keep_blob(incoming / "part", directory / _BLOBS / digest_hex(digest), size)
        found = read_references(incoming)
        if len(found) != 1:
            raise IngotError(
                ErrorCode.ARTIFACT_CORRUPT, "the service did not send one version", received=str(len(found))
            )
        tag = found[0].annotations.get(REFERENCE, "")
        others = [own for own in read_references(directory) if own.annotations.get(REFERENCE) != tag]
        write_references(directory, [*others, found[0]])
        return tag


def _receive(parts: Iterable[Any], incoming: Path) -> Iterator[tuple[str, int]]:
    """Path and size of each file; its bytes are in ``incoming/part`` until the next one is asked for."""
    stream = iter(parts)
    part = next(stream, None)
    while part is not None:
        path, size = part.header.path, part.header.size
        _check_header(path, size, incoming)
        with (incoming / "part").open("wb") as file:
            part = next(stream, None)
            while part is not None and part.WhichOneof("part") == "chunk":
                if file.tell() + len(part.chunk) > size:
                    raise _corrupt("the service sent more of a file than it said", path, f"{size} bytes")
                file.write(part.chunk)
                part = next(stream, None)
        yield path, size


def _check_header(path: str, size: int, incoming: Path) -> None:
    """Before a byte is written: whether this file may come, and whether there is room for it."""
    if path not in _DOCUMENTS and not _BLOB.fullmatch(path):
        raise _corrupt("the service sent a file that is no part of a version", path, f"{_BLOBS}<digest>")
    if path in _DOCUMENTS and size > MAX_DOCUMENT_BYTES:
        raise _corrupt("a document of the version is too large", path, f"at most {MAX_DOCUMENT_BYTES} bytes")
    free = shutil.disk_usage(incoming).free
    if size > free:
        raise IngotError(
            ErrorCode.RESOURCE_EXHAUSTED,
            "there is no room for a file of the version",
            field=path,
            expected=f"at most {free} bytes",
            received=f"{size} bytes",
            remedy="Make room on the disk, or set TMPDIR to one that has it.",
        )


def _corrupt(message: str, path: str, expected: str) -> IngotError:
    return IngotError(ErrorCode.ARTIFACT_CORRUPT, message, field=path[:200], expected=expected)


def _keep_blob(received: Path, wanted: Path, size: int) -> None:
    digest = digest_of_file(received)
    if received.stat().st_size != size or digest != f"sha256:{wanted.name}":
        raise IngotError(
            ErrorCode.CHECKSUM_MISMATCH,
            "a file changed on its way from the service",
            expected=f"sha256:{wanted.name}, {size} bytes",
            received=f"{digest}, {received.stat().st_size} bytes",
            remedy="Download it again.",
        )
    create_atomically(wanted, received)
