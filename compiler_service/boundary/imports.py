"""What a process inside the boundary may import, and no more of the folders that it lies in."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path

from compiler_service.boundary.private import held

ROOT = Path(__file__).parents[2]
"""The folder that our packages lie in."""
BEGIN = Path(__file__).with_name("begin")
_OURS = ("compiler_service", "shared_ir", "runtime_service", "ingot")
_SUFFIXES = (*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES, *BYTECODE_SUFFIXES)
_ARCHIVES = (".zip", ".egg", ".whl")


@dataclass(frozen=True)
class Imports:
    """
    Attributes:
        folders: what is read whole, and stays in ``PYTHONPATH``: folders that an installer filled, archives.
        packages: of source trees the names of packages and modules, and the file that each is loaded from.
    """

    folders: tuple[str, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)

    @property
    def readable(self) -> tuple[str, ...]:
        """Files and folders."""
        files = self.packages.values()
        packages = (os.path.dirname(file) if os.path.basename(file).startswith("__init__.") else file for file in files)
        return (*self.folders, *packages)

    def environment(self) -> Mapping[str, str]:
        """For a Python that finds them there."""
        return {
            "PYTHONPATH": os.pathsep.join((str(BEGIN), *self.folders)),
            "BOUNDARY_PACKAGES": json.dumps(dict(self.packages)),
        }


def imports(path: str, private: Sequence[str]) -> Imports:
    """Of the absolute entries of ``path``, as ``PYTHONPATH`` has them, and of our own packages.

    A folder is whole where an installer filled it (it has a ``*.dist-info``) and none of ``private`` lies in it. Any other is a source
    tree: of that only modules and packages with an ``__init__`` are given.
    """
    folders: list[str] = []
    packages: dict[str, str] = {}
    for entry in filter(os.path.isabs, path.split(os.pathsep)):
        if not held(entry, private) and (_is_archive(entry) or _is_installed(entry)):
            folders.append(entry)
        else:
            for name, file in _importable(entry):
                packages.setdefault(name, file)
    for name in _OURS:
        packages.setdefault(name, str(ROOT / name / "__init__.py"))
    return Imports(tuple(folders), packages)


def libraries(path: str) -> Iterator[str]:
    """Shared libraries in the absolute entries of ``path``, as ``LD_LIBRARY_PATH`` has them."""
    for entry in filter(os.path.isabs, path.split(os.pathsep)):
        for pattern in ("*.so", "*.so.*", "glibc-hwcaps/*/*.so", "glibc-hwcaps/*/*.so.*"):
            with contextlib.suppress(OSError):
                yield from (str(file) for file in sorted(Path(entry).glob(pattern)) if file.is_file())


def _is_archive(entry: str) -> bool:
    return entry.endswith(_ARCHIVES) and os.path.isfile(entry)


def _is_installed(entry: str) -> bool:
    with contextlib.suppress(OSError):
        return any(name.endswith(".dist-info") for name in os.listdir(entry))
    return False


def _importable(entry: str) -> Iterator[tuple[str, str]]:
    """Names and files of the packages and modules in a folder, as Python would choose between files of one name."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(entry))
    for name in filter(str.isidentifier, names):
        for suffix in _SUFFIXES:
            file = os.path.join(entry, name, f"__init__{suffix}")
            if os.path.isfile(file):
                yield name, file
    for suffix in _SUFFIXES:
        for name in names:
            stem = name.removesuffix(suffix)
            if stem != name and stem.isidentifier() and os.path.isfile(os.path.join(entry, name)):
                yield stem, os.path.join(entry, name)
