"""A version of a model as the compiler service streams it, into a folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from shared_ir.artifact.layout import read_references, write_references
from shared_ir.artifact.oci import INDEX_FILE, LAYOUT_FILE, REFERENCE
from shared_ir.digest import digest_of_file
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.files import create_atomically

_BLOBS = "blobs/sha256/"


def receive_layout(parts: Iterable[Any], directory: Path) -> str:
    """Write the files of a ``DownloadArtifact`` stream; the tag of the version that came.

    Blobs are checked against their names; other versions in ``directory`` stay. The index is written last, so an
    interrupted download leaves no half version.

    Raises:
        IngotError: CHECKSUM_MISMATCH, ARTIFACT_CORRUPT.
    """
    with tempfile.TemporaryDirectory(prefix="ingot-download-") as name:
        incoming = Path(name)
        for path, size in _receive(parts, incoming):
            if path.startswith(_BLOBS):
                _keep_blob(incoming / "part", directory / path, size)
            else:
                (incoming / "part").rename(incoming / path)
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
        if path not in (LAYOUT_FILE, INDEX_FILE) and not path.startswith(_BLOBS):
            raise IngotError(
                ErrorCode.ARTIFACT_CORRUPT, "the service sent a file that is no part of a version", field=path
            )
        with (incoming / "part").open("wb") as file:
            part = next(stream, None)
            while part is not None and part.WhichOneof("part") == "chunk":
                file.write(part.chunk)
                part = next(stream, None)
        yield path, size


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
