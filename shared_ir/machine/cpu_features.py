"""What a cpu name says about the instructions of the machine: LLVM cpu name -> LLVM feature names.

Only features that code generation emits, or that a loader must check, are listed. Sources: the x86-64 psABI levels,
LLVM's ``X86TargetParser``, ``AArch64Processors.td`` and ``ARMProcessors.td``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_V1 = ("sse2",)
_V2 = (*_V1, "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16")
_AVX = (*_V2, "avx")
_V3 = (*_AVX, "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_VNNI = (*_V4, "avx512vnni")
_ICELAKE = (*_VNNI, "avx512vbmi", "avx512vbmi2", "avx512bitalg", "avx512vpopcntdq", "gfni")
_ZEN4 = (*_ICELAKE, "avx512bf16")
_SAPPHIRE = (*_ZEN4, "avx512fp16", "avxvnni", "amx-tile", "amx-int8", "amx-bf16")

_ARMV8 = ("fp-armv8", "neon")
_ARMV8_2 = (*_ARMV8, "crc", "lse", "rdm", "fullfp16", "dotprod")
_NEOVERSE_V = (*_ARMV8_2, "sve", "bf16", "i8mm", "fp16fml")

_ARMV7 = ("neon", "vfp3", "fp16")
_ARMV7_VFP4 = ("neon", "vfp4", "fp16", "hwdiv", "hwdiv-arm")


def _names(features: tuple[str, ...], cpus: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(cpus.split(), features)


CPU_FEATURES: Mapping[str, tuple[str, ...]] = {
    **_names(_V1, "x86-64"),
    **_names(_V2, "x86-64-v2 nehalem westmere silvermont goldmont tremont"),
    **_names(_AVX, "sandybridge ivybridge btver2"),
    **_names(_V3, "x86-64-v3 haswell broadwell skylake alderlake raptorlake meteorlake arrowlake lunarlake"),
    **_names(_V3, "gracemont sierraforest znver1 znver2 znver3"),
    **_names(_V4, "x86-64-v4 skylake-avx512"),
    **_names(_VNNI, "cascadelake cooperlake"),
    **_names(_ICELAKE, "icelake-client icelake-server tigerlake rocketlake"),
    **_names(_ZEN4, "znver4"),
    **_names((*_ZEN4, "avxvnni"), "znver5"),
    **_names(_SAPPHIRE, "sapphirerapids emeraldrapids graniterapids"),
    **_names((*_ARMV8, "crc"), "cortex-a53 cortex-a57 cortex-a72 cortex-a73"),
    **_names(_ARMV8_2, "cortex-a55 cortex-a75 cortex-a76 cortex-a77 cortex-a78 cortex-a78ae neoverse-n1 apple-m1"),
    **_names(_NEOVERSE_V, "neoverse-v1"),
    **_names((*_NEOVERSE_V, "sve2"), "neoverse-v2 neoverse-n2 cortex-a710 cortex-x2"),
    **_names(_ARMV7, "cortex-a8 cortex-a9"),
    **_names(_ARMV7_VFP4, "cortex-a7 cortex-a15 cortex-a17"),
    **_names(("m", "a", "f", "d", "c", "v", "zba", "zbb", "zbs", "zfh", "zvl256b"), "spacemit-x60"),
    **_names(("m", "a", "f", "d", "c", "zba", "zbb"), "sifive-u74"),
}
"""Unlisted cpus have the baseline of their architecture, :data:`BASELINE_FEATURES`."""

BASELINE_FEATURES: Mapping[str, tuple[str, ...]] = {
    "x86_64": _V1,
    "aarch64": _ARMV8,
    "armv7": (),
    "riscv64": ("m", "a", "f", "d", "c"),
}
"""What every machine of an architecture has under Linux; the C parts of a library are compiled for it."""

_IMPLIED: Mapping[str, tuple[str, ...]] = {
    "avx512f": (*_V3, "avx512f"),
    "avx2": (*_AVX, "avx2"),
    "avx": _AVX,
    "fma": (*_AVX, "fma"),
    "f16c": (*_AVX, "f16c"),
    "sse4.2": ("sse3", "ssse3", "sse4.1", "sse4.2"),
    "sse4.1": ("sse3", "ssse3", "sse4.1"),
    "vfp4": ("vfp3", "fp16", "vfp4"),
    "v": ("f", "d", "zvl128b", "v"),
    "zfh": ("zfhmin", "zfh"),
    "sve2": ("sve", "sve2"),
}
"""Features that switch others on when they are enabled (the part of LLVM's table that matters here)."""


_TOLD_BY: Mapping[str, str] = {"sse2": "x86_64", "fp-armv8": "aarch64", "m": "riscv64"}
"""Features that all listed cpus of one architecture have, and none of another."""


def architecture_of_cpu(cpu: str) -> str | None:
    """The architecture of a listed cpu."""
    listed = CPU_FEATURES.get(cpu)
    if listed is None:
        return None
    return next((found for feature, found in _TOLD_BY.items() if feature in listed), "armv7")


def full_features(architecture: str, cpu: str, flags: Iterable[str]) -> frozenset[str]:
    """Every listed feature of ``cpu`` with ``flags`` (``+avx2``, ``-avx512f``) applied in order."""
    have = set(CPU_FEATURES.get(cpu, BASELINE_FEATURES.get(architecture, ())))
    for name in tuple(have):
        have.update(_IMPLIED.get(name, ()))
    for flag in flags:
        name = flag[1:]
        if flag.startswith("-"):
            have = {h for h in have if h != name and name not in _IMPLIED.get(h, ()) and not _is_part(name, h)}
        else:
            have.update((name, *_IMPLIED.get(name, ())))
    return frozenset(have)


def _is_part(removed: str, feature: str) -> bool:
    """Removing ``avx512f`` removes every ``avx512*``."""
    return removed == "avx512f" and feature.startswith("avx512")
