"""What the CPU underneath can run, in LLVM's words. For choosing among artifacts; code generation asks its Target."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

from shared_ir.artifact.value import Manifest
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.cpu_features import full_features
from shared_ir.machine.target import architecture_of

# LLVM feature -> flag of /proc/cpuinfo. A feature that is absent here is not checked: it is a tuning hint, a part of
# the base architecture, or never emitted unasked.
_X86_FLAGS = {
    **{name: name for name in ("avx", "avx2", "fma", "f16c", "bmi1", "bmi2", "popcnt", "ssse3", "avx512f", "avx512bw")},
    **{name: name for name in ("avx512cd", "avx512dq", "avx512vl", "avx512ifma", "avx512vbmi", "movbe", "gfni", "aes")},
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "bmi": "bmi1",
    "lzcnt": "abm",
    "avx512vnni": "avx512_vnni",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "avxvnni": "avx_vnni",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
}
_ARM_FLAGS = {
    "neon": "asimd",
    "fullfp16": "asimdhp",
    "dotprod": "asimddp",
    "crc": "crc32",
    "lse": "atomics",
    "sve": "sve",
    "sve2": "sve2",
    "i8mm": "i8mm",
    "bf16": "bf16",
    "aes": "aes",
    "sha2": "sha2",
}


def host_architecture() -> str:
    """``x86_64``, ``aarch64``, ``armv7``, ...: as :func:`shared_ir.machine.target.architecture_of` names it."""
    machine = platform.machine()
    return "armv7" if machine.startswith("armv7") else machine


def host_flags() -> frozenset[str]:
    """Flags of this machine's processor; none where it does not tell."""
    cpuinfo = Path("/proc/cpuinfo")
    return cpu_flags(cpuinfo.read_text() if cpuinfo.exists() else "")


def cpu_flags(cpuinfo: str) -> frozenset[str]:
    """Flags of the first core in the text of ``/proc/cpuinfo``."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def incompatibility(manifest: Manifest, architecture: str, flags: frozenset[str]) -> str:
    """Why a machine of this architecture with these flags cannot run the artifact; empty when it can."""
    return what_lacks(manifest.triple, manifest.cpu, manifest.features, architecture, flags)


def what_lacks(triple: str, cpu: str, features: Sequence[str], architecture: str, flags: frozenset[str]) -> str:
    """As :func:`incompatibility`, of code for a target."""
    wanted = architecture_of(triple)
    if wanted != architecture:
        return f"made for {wanted}"
    needed = full_features(wanted, cpu, tuple(features))
    table = {"x86_64": _X86_FLAGS, "aarch64": _ARM_FLAGS}.get(architecture, {})
    missing = sorted(name for name in needed if name in table and table[name] not in flags)
    return f"needs {', '.join(missing)}" if missing else ""


def best_for_host(manifests: Sequence[Manifest]) -> Manifest:
    """The artifact with the most features among those that this machine can run; the only one when there is one.

    Raises:
        IngotError: ARTIFACT_INCOMPATIBLE.
    """
    if len(manifests) == 1:
        return manifests[0]
    flags, architecture = host_flags(), host_architecture()
    reasons = {f"{m.triple} {m.cpu}": incompatibility(m, architecture, flags) for m in manifests}
    usable = [m for m in manifests if not incompatibility(m, architecture, flags)]
    if not usable:
        raise IngotError(
            ErrorCode.ARTIFACT_INCOMPATIBLE,
            "no target of this version runs on this machine",
            expected=f"an artifact for {architecture}",
            received="; ".join(f"{name}: {reason}" for name, reason in reasons.items())[:400],
            remedy="Compile the model for this machine too.",
        )
    return max(usable, key=lambda m: (len(full_features(architecture, m.cpu, m.features)), m.cpu))
