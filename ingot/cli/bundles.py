"""Bundles of a version as files: programs, and libraries beside the header that they are used by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path

from ingot.home import home_directory
from shared_ir.artifact.value import Manifest
from shared_ir.storage.faults import told

_LIBRARY = ".so"


def bundles_of(directory: Path, name: str, tag: str, home: Path | None) -> list[Path]:
    """Write the bundles of version ``tag`` in the layout at ``directory`` into that folder.

    Raises:
        IngotError: as :func:`ingot.load` of the folder; STORE_WRITE_FAILED and its like where a file cannot be written.
    """
    from shared_ir.artifact.layout import list_targets, open_version
    from shared_ir.artifact.signature import TrustStore

    trust = TrustStore.load(home_directory(home) / "trust")
    found = []
    for manifest in list_targets(directory, tag, trust):
        opened = open_version(directory, tag, trust, lambda _, chosen=manifest: chosen)  # type: ignore[misc]
        found.append((manifest, {name: file.read() for name, file in opened.attachments.items()}))
    return write_bundles(directory, name, found)


def write_bundles(directory: Path, name: str, versions: Iterable[tuple[Manifest, Mapping[str, bytes]]]) -> list[Path]:
    """Write the attachments of each version, executable, as ``NAME.ARCHITECTURE.CPU``; beside libraries ``ingot.h``."""
    paths = [
        _written(directory / _file_name(name, manifest, attachment), data)
        for manifest, attachments in versions
        for attachment, data in attachments.items()
    ]
    if any(path.suffix == _LIBRARY for path in paths):
        header = files("compiler_service.compiler.codegen") / "native" / "ingot.h"
        _written(directory / "ingot.h", header.read_bytes(), mode=0o644)
    return paths


def _file_name(name: str, manifest: Manifest, attachment: str) -> str:
    """A name, and no way out of the folder."""
    ending = _LIBRARY if attachment.endswith(_LIBRARY) else ""
    return re.sub(r"[^\w.+-]", "_", f"{name}.{manifest.triple.split('-')[0]}.{manifest.cpu}{ending}")


def _written(path: Path, data: bytes, mode: int = 0o755) -> Path:
    with told("the bundle cannot be written", path):
        path.write_bytes(data)
        path.chmod(mode)
    return path
