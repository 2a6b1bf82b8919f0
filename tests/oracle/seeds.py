"""Cases that once failed: small models with their feeds, kept beside the tests as ``kept/*.json`` and asked first."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "kept"


def kept_cases() -> list[Path]:
    return sorted(FOLDER.glob("*.json"))


def open_reason(path: Path) -> str:
    """Why a kept case still fails; empty where it is mended and must pass."""
    return str(json.loads(path.read_text()).get("open", ""))


@cache
def known_findings() -> frozenset[tuple[str, str]]:
    """Family and signature of what kept cases say is still open."""
    stored = [json.loads(path.read_text()) for path in kept_cases()]
    return frozenset((s["family"], s["signature"]) for s in stored if s.get("open"))
