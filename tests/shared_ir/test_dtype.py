"""Element types: what they are computed in."""

from __future__ import annotations

import pytest

from compiler_service.compiler.codegen.llvm.llvm_types import NARROW_FLOATS, REGISTER, register_type
from compiler_service.compiler.schedule.model.tiles import lanes
from shared_ir.dtype import DType
from shared_ir.machine.target import parse_target

NARROW = {
    DType.FLOAT16,
    DType.BFLOAT16,
    DType.FLOAT8E4M3FN,
    DType.FLOAT8E4M3FNUZ,
    DType.FLOAT8E5M2,
    DType.FLOAT8E5M2FNUZ,
    DType.FLOAT8E8M0,
    DType.FLOAT4E2M1,
}


@pytest.mark.parametrize("dtype", list(DType))
def test_narrow_floats_are_computed_in_float32(dtype: DType) -> None:
    assert dtype.arithmetic is (DType.FLOAT32 if dtype in NARROW else dtype)
    assert dtype.arithmetic.arithmetic is dtype.arithmetic


@pytest.mark.parametrize("dtype", list(REGISTER))
def test_schedules_and_code_agree_on_what_a_register_holds(dtype: DType) -> None:
    """The lanes that a schedule plans for are those of the type that code is generated in."""
    assert NARROW_FLOATS == NARROW
    bits = {"i1": 8, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "float": 32, "double": 64}[register_type(dtype, 1)]
    for name in ("x86-64-v3", "amd/zen4", "aarch64/generic"):
        target = parse_target(name)
        assert lanes(target, dtype) == target.vector_bits // bits
