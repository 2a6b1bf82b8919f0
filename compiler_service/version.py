"""The compiler version that goes into artifact keys: the release and a digest of the compiler's own sources."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from shared_ir.versions import VERSION

_PACKAGES = ("compiler_service", "shared_ir")
_SUFFIXES = {".py", ".c", ".h"}


@cache
def compiler_version() -> str:
    """``0.1.0+3f9a2c71``: changes whenever generated code may change."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in _SUFFIXES:
                digest.update(str(path.relative_to(root)).encode())
                digest.update(path.read_bytes())
    return f"{VERSION}+{digest.hexdigest()[:8]}"
