"""The version of Ingot, and those that decide whether an artifact may be loaded."""

from __future__ import annotations

VERSION = "0.1.0"
"""Of this tree. pyproject.toml reads it here, so it is the same with and without an installed distribution."""

ABI_VERSION = 1
"""Version of the C ABI (``ingot.h``) and of the artifact layout that this tree writes."""

SUPPORTED_ABI_VERSIONS = (1,)
"""What this tree reads: the current version and the two before it."""

PLAN_VERSION = 2
"""Version of ``plan.json`` that this tree writes. Version 1 wrote dims as text, 2 as rows of a table."""

SUPPORTED_PLAN_VERSIONS = (2, 1)
"""What this tree reads: the plans of every supported ABI version."""
