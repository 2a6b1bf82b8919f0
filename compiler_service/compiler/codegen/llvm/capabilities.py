"""What the instructions of a target can do without a call into a runtime library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from shared_ir.expr.operations import DOT4_OF, BinaryOp
from shared_ir.machine.target import Target


@dataclass(frozen=True)
class TargetCapabilities:
    """Facts that decide which of several instruction sequences is emitted.

    Attributes:
        fma: fused multiply-add is an instruction.
        rounding: rounding a float to an integral float is inline code, not a call.
        half: float16 <-> float32 conversion is an instruction.
        half_arithmetic: so are sums and products of float16.
        wide_integers: int64 division and int64 <-> float conversion are inline code.
        division: int32 division is an instruction.
        saturating_casts: floats become integers of their size, saturated, NaN as 0, by an instruction on vectors.
        nan_extrema: minimum and maximum instructions propagate NaN.
        dot4: the dot products of four bytes that are an instruction on vectors, if any (see :attr:`Target.dot4`).
        scale: multiplication by powers of two, and what rounding takes away, are instructions on vectors of 512 bits.
        vector_bits: width of a register.
    """

    fma: bool
    rounding: bool
    half: bool
    half_arithmetic: bool
    wide_integers: bool
    division: bool
    saturating_casts: bool
    nan_extrema: bool
    dot4: BinaryOp | None
    scale: bool
    vector_bits: int

    @classmethod
    def of(cls, target: Target) -> Self:
        have = target.required_features
        architecture = target.architecture
        is_arm64 = architecture == "aarch64"
        is_riscv = architecture == "riscv64"
        return cls(
            fma=is_arm64 or bool({"fma", "avx512f", "vfp4"} & have) or (is_riscv and {"f", "d"} <= have),
            rounding=is_arm64 or "sse4.1" in have or is_riscv,
            half=target.converts_halves,
            half_arithmetic=bool({"avx512fp16", "fullfp16", "zfh"} & have),
            wide_integers=architecture != "armv7",
            division=architecture != "armv7" or {"hwdiv", "hwdiv-arm"} <= have,
            saturating_casts=is_arm64,
            nan_extrema=is_arm64,
            dot4=None if target.dot4 is None else DOT4_OF[target.dot4],
            scale=architecture == "x86_64" and {"avx512f", "avx512dq"} <= have,
            vector_bits=target.vector_bits,
        )
