"""Can this machine run an artifact? Asked before its library is mapped: the other answers are SIGILL and a loader error."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from shared_ir.artifact.host import cpu_flags, host_architecture, incompatibility
from shared_ir.artifact.value import Manifest
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.versions import SUPPORTED_ABI_VERSIONS


def check_host(manifest: Manifest) -> None:
    """Compare ABI version, architecture, CPU features and glibc of the artifact with this process.

    Raises:
        IngotError: ARTIFACT_INCOMPATIBLE, naming what is missing.
    """
    if manifest.abi_version not in SUPPORTED_ABI_VERSIONS:
        expected = f"ABI version {' or '.join(str(v) for v in SUPPORTED_ABI_VERSIONS)}"
        raise _incompatible(manifest, expected, f"ABI version {manifest.abi_version}", "Compile the model again.")
    reason = incompatibility(manifest, host_architecture(), _host_flags())
    if reason:
        remedy = "Compile the model for this machine (target `host`, or its preset)."
        received = f"an artifact that is {reason}" if reason.startswith("made") else f"an artifact that {reason}"
        raise _incompatible(manifest, f"code for this {host_architecture()} CPU", received, remedy)
    _check_glibc(manifest)


def _check_glibc(manifest: Manifest) -> None:
    if not manifest.min_glibc:
        return
    host = host_glibc()
    if _version(host) < _version(manifest.min_glibc):
        expected = f"glibc {host} or older" if host else "an artifact without glibc"
        remedy = "Use the bundled static executable, or a newer system."
        raise _incompatible(manifest, expected, f"one that needs glibc {manifest.min_glibc}", remedy)


def host_glibc() -> str:
    """``2.36``; empty when this process does not run on glibc."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError, AttributeError):
        return ""
    return version if name == "glibc" else ""


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


@cache
def _host_flags() -> frozenset[str]:
    path = Path("/proc/cpuinfo")
    return cpu_flags(path.read_text() if path.exists() else "")


def _incompatible(manifest: Manifest, expected: str, received: str, remedy: str) -> IngotError:
    return IngotError(
        ErrorCode.ARTIFACT_INCOMPATIBLE,
        f"model {manifest.name!r} cannot run on this machine",
        expected=expected,
        received=received,
        remedy=remedy,
    )
