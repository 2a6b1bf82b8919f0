"""Versions that decide whether an artifact may be loaded."""

from __future__ import annotations

import importlib.metadata

ABI_VERSION = 1
"""Version of the C ABI (``ingot.h``) and of the artifact layout that this tree writes."""

SUPPORTED_ABI_VERSIONS = (1,)
"""What this tree reads: the current version and the two before it."""


def package_version() -> str:
    """Version of the installed distribution."""
    return importlib.metadata.version("ingot")
