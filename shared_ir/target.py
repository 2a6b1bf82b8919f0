"""Target: everything code generation may know of the machine that will run the code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """One machine to compile for.

    Attributes:
        kind: the backend, ``llvm``.
        triple: LLVM target triple, ``aarch64-linux-gnu``.
        cpu: LLVM cpu name, ``cortex-a72``.
        features: LLVM feature flags, each with its sign: ``+avx512f``.
        vector_bits: width of a SIMD register.
        vector_registers: number of SIMD registers.
        masked: whether masked vector loads and stores are cheap (AVX-512, SVE).
        l1, l2, l3: data cache sizes in bytes as seen by one core; 0 when there is none.
        cores: number of cores that a schedule should plan for.
    """

    kind: str
    triple: str
    cpu: str
    features: tuple[str, ...] = ()
    vector_bits: int = 128
    vector_registers: int = 16
    masked: bool = False
    l1: int = 32 * 1024
    l2: int = 512 * 1024
    l3: int = 0
    cores: int = 1
