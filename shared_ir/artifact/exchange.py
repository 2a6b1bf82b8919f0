"""An artifact as plain files, the way it travels between processes of one machine. Not signed, not published."""

from __future__ import annotations

import json
import os
from pathlib import Path

from shared_ir.artifact.signed import MAX_DOCUMENT_BYTES, parse_document
from shared_ir.artifact.value import CompiledArtifact, Manifest
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.json_form import read_plan, write_plan
from shared_ir.storage.files import copy_file, read_own, write_blocks

_MANIFEST, _PLAN, _LIBRARY, _WEIGHTS, _REPORT = "manifest.json", "plan.json", "model.so", "weights.bin", "report.json"
_ATTACHMENTS = "attachments"
_MOST = 16 << 30
"""Bytes of all that is read, where nobody says less."""
_MOST_DOCUMENT = 512 << 20
"""Bytes of a plan and of a report: as values they take several times as much."""
_LONGEST_NAME = 1000


def write_artifact(directory: Path, artifact: CompiledArtifact) -> None:
    """Write ``artifact`` into a new directory."""
    directory.mkdir(parents=True)
    (directory / _MANIFEST).write_text(json.dumps(artifact.manifest.to_dict()))
    (directory / _PLAN).write_text(write_plan(artifact.plan))
    (directory / _LIBRARY).write_bytes(artifact.library)
    (directory / _REPORT).write_text(json.dumps(dict(artifact.report)))
    if isinstance(artifact.weights, Path):
        _link(artifact.weights, directory / _WEIGHTS)
    else:
        with (directory / _WEIGHTS).open("wb", buffering=0) as file:
            write_blocks(file, (artifact.weights,))
    (directory / _ATTACHMENTS).mkdir()
    for number, (name, data) in enumerate(sorted(artifact.attachments.items())):
        (directory / _ATTACHMENTS / f"{number}.name").write_text(name)
        (directory / _ATTACHMENTS / f"{number}.data").write_bytes(data)


class _Room:
    """What may still be read. NOTE: a file that holds nothing takes no disk, whatever its size, and memory once it is read."""

    def __init__(self, most: int) -> None:
        self._left = most

    def read(self, path: Path, limit: int = _MOST) -> bytes:
        data = read_own(path, min(limit, self._left))
        self._left -= len(data)
        return data


def read_artifact(directory: Path, most: int = _MOST) -> CompiledArtifact:
    """The inverse of :func:`write_artifact`; the weights stay in their file.

    Who wrote the directory may have been taken over by what it compiled: links are not followed, and sizes are bounded.

    Args:
        most: bytes that may be read into memory, of all that is no weights.

    Raises:
        IngotError: COMPILER_FAULT, ARTIFACT_CORRUPT, ARTIFACT_INCOMPATIBLE.
    """
    attachments = directory / _ATTACHMENTS
    for folder in (directory, attachments):
        if folder.is_symlink() or not folder.is_dir():
            raise IngotError(ErrorCode.COMPILER_FAULT, "the compiler left no artifact", field=folder.name)
    names, room = sorted(attachments.glob("*.name")), _Room(most)
    document = parse_document(room.read(directory / _MANIFEST, MAX_DOCUMENT_BYTES), "the artifact's manifest")
    weights = directory / _WEIGHTS
    if weights.is_symlink() or not weights.is_file():
        raise IngotError(ErrorCode.COMPILER_FAULT, "the compiler left no weights, or what is no file")
    return CompiledArtifact(
        manifest=Manifest.from_dict(document),
        plan=read_plan(room.read(directory / _PLAN, _MOST_DOCUMENT)),
        library=room.read(directory / _LIBRARY),
        weights=weights,
        report=parse_document(room.read(directory / _REPORT, _MOST_DOCUMENT), "the artifact's report"),
        attachments={_name(name, room): room.read(name.with_suffix(".data")) for name in names},
    )


def _name(file: Path, room: _Room) -> str:
    try:
        return room.read(file, _LONGEST_NAME).decode()
    except UnicodeDecodeError as error:
        raise IngotError(ErrorCode.COMPILER_FAULT, "the name of an attachment is no text") from error


def _link(source: Path, target: Path) -> None:
    """NOTE: a link saves copying weights of gigabytes; both names are only read from here on."""
    try:
        os.link(source, target)
    except OSError:
        copy_file(source, target)
