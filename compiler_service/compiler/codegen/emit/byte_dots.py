"""Dot products of four bytes by four: one instruction where the target has it, else shifts, products and sums."""

from __future__ import annotations

from compiler_service.compiler.codegen.llvm.builder import FunctionBuilder, LlvmValue
from compiler_service.compiler.codegen.llvm.llvm_types import splat, vector
from shared_ir.expr.operations import BinaryOp

_X86_BITS = (128, 256, 512)
_ARM_BITS = (64, 128)
_BYTES = 4


def add_dot4(
    builder: FunctionBuilder, op: BinaryOp, total: LlvmValue | None, lhs: LlvmValue, rhs: LlvmValue
) -> LlvmValue:
    """``total + op(lhs, rhs)`` for int32 words, which wraps as sums of int32 do; ``total`` is 0 when it is None."""
    name = _instruction(builder, op, lhs.lanes)
    if name is not None:
        return lhs._replace(text=_native(builder, name, total, lhs, rhs))
    kind = lhs.type
    result = None if total is None else total.text
    for byte in range(_BYTES):
        left = _extracted(builder, lhs, byte, "lshr" if op is BinaryOp.DOT4 else "ashr")
        right = _extracted(builder, rhs, byte, "ashr")
        product = builder.emit(f"mul {kind} {left}, {right}")
        result = product if result is None else builder.emit(f"add {kind} {result}, {product}")
    assert result is not None
    return lhs._replace(text=result)


def _instruction(builder: FunctionBuilder, op: BinaryOp, lanes: int) -> str | None:
    """VPDPBUSD or SDOT for vectors of ``lanes`` words."""
    bits = 32 * lanes
    if builder.capabilities.dot4 is not op:
        return None
    if op is BinaryOp.DOT4:
        return f"llvm.x86.avx512.vpdpbusd.{bits}" if bits in _X86_BITS else None
    return f"llvm.aarch64.neon.sdot.v{lanes}i32.v{_BYTES * lanes}i8" if bits in _ARM_BITS else None


def _native(builder: FunctionBuilder, name: str, total: LlvmValue | None, lhs: LlvmValue, rhs: LlvmValue) -> str:
    kind, octets = lhs.type, vector("i8", _BYTES * lhs.lanes)
    function = builder.module.intrinsic(name, kind, f"{kind}, {octets}, {octets}")
    left, right = (builder.emit(f"bitcast {kind} {x.text} to {octets}") for x in (lhs, rhs))
    start = "zeroinitializer" if total is None else total.text
    return builder.emit(f"call {kind} {function}({kind} {start}, {octets} {left}, {octets} {right})")


def _extracted(builder: FunctionBuilder, words: LlvmValue, byte: int, extend: str) -> str:
    """Byte ``byte`` of each word, widened by the shift ``extend``: to the top first, then down."""
    top, down = 24 - 8 * byte, 24
    shifted = builder.emit(f"shl {words.type} {words.text}, {splat(str(top), 'i32', words.lanes)}")
    return builder.emit(f"{extend} {words.type} {shifted}, {splat(str(down), 'i32', words.lanes)}")
