"""The compiler version that goes into artifact keys: the release and a digest of what artifacts follow from, which is sources and the
packages that write machine code or compute and read what it holds."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.versions import VERSION

COMPILER = Path("compiler_service/compiler")
SHARED = (
    "arrays.py",
    "artifact/exchange.py",
    "artifact/value.py",
    "digest.py",
    "dtype.py",
    "expr",
    "graph",
    "machine",
    "numerals.py",
    "plan",
    "sizes.py",
    "types.py",
    "versions.py",
    "wire/fields.py",
    "wire/model_head.py",
)
"""What of shared_ir code depends on; the rest of what the compiler imports there (errors, files, extras) says how it speaks and
where it writes."""
_SUFFIXES = {".py", ".c", ".h"}
BACKENDS = ("llvmlite", "ziglang", "numpy", "ml_dtypes", "mpmath", "onnx")
"""Distributions that bring LLVM and the linker, that compute constants, and whose schemas, shapes and functions models are read by."""


@cache
def compiler_version() -> str:
    """``0.1.0+3f9a2c71``: changes whenever generated code may change, and not with the services around the compiler."""
    return f"{VERSION}+{digest(Path(__file__).parents[2], {name: _installed(name) for name in BACKENDS})}"


def _installed(name: str) -> str:
    """The version of a distribution; empty where there is none, as nothing is compiled there."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def digest(root: Path, versions: Mapping[str, str]) -> str:
    """8 hexadecimal digits of ``versions`` of distributions and of the sources below ``root``, the folder of the packages.

    Raises:
        IngotError: COMPILER_FAULT, there are none, as in an archive or where only bytecode was installed.
    """
    found = hashlib.sha256(repr(sorted(versions.items())).encode())
    paths = sorted(_sources(root))
    if not any(path.suffix == ".py" for path in paths):
        raise IngotError(
            ErrorCode.COMPILER_FAULT,
            "the compiler's version follows from its sources, which are not here",
            field=str(root),
            remedy="Install the wheel with its .py files, into a folder.",
        )
    for path in paths:
        found.update(str(path.relative_to(root)).encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:8]


def _sources(root: Path) -> Iterator[Path]:
    for place in (root / COMPILER, *(root / "shared_ir" / name for name in SHARED)):
        for path in (place,) if place.is_file() else place.rglob("*"):
            if path.suffix in _SUFFIXES:
                yield path
