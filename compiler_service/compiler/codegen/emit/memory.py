"""Loads and stores of values: contiguous, reversed, strided, gathered; masked or not."""

from __future__ import annotations

from typing import NamedTuple

from compiler_service.compiler.codegen.llvm.builder import FunctionBuilder, LlvmValue
from compiler_service.compiler.codegen.llvm.half import float_to_pattern, pattern_to_float
from compiler_service.compiler.codegen.llvm.llvm_types import (
    MEMORY,
    NARROW_FLOATS,
    STACK,
    SUB_BYTE_INTEGERS,
    splat,
    suffix,
    vector,
)
from compiler_service.compiler.codegen.llvm.narrow import decode_integer, encode_integer
from compiler_service.compiler.loop_ir.ir import Buffer, BufferScope
from shared_ir.dtype import DType
from shared_ir.expr.dim import product

_LARGEST_SHUFFLED_STRIDE = 4
_SIZE = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8, "i1": 1}


class BufferPlace(NamedTuple):
    """Where a buffer is: its first element and the LLVM type of its elements in memory."""

    pointer: str
    dtype: DType
    element: str
    is_stack: bool = False
    has_short_indices: bool = False
    """Whether int32 counts its elements."""

    @property
    def size(self) -> int:
        """Bytes of an element, which is also the alignment that may be assumed."""
        return _SIZE[self.element]

    @property
    def is_packed(self) -> bool:
        """Narrow floats are stored as bit patterns, not as the floats that registers hold."""
        return self.dtype in NARROW_FLOATS and self.element != "float"


def place_of(buffer: Buffer, pointer: str) -> BufferPlace:
    elements = STACK if buffer.scope is BufferScope.STACK else MEMORY
    count = product(buffer.shape)
    is_short = isinstance(count, int) and count < 1 << 31
    return BufferPlace(pointer, buffer.dtype, elements[buffer.dtype], buffer.scope is BufferScope.STACK, is_short)


def element_size(buffer: Buffer) -> int:
    """Bytes of one element of ``buffer`` in memory."""
    return place_of(buffer, "").size


class MemoryEmitter:
    """Accesses within one function. Pointers (to an element), indices and masks are texts of operands."""

    def __init__(self, builder: FunctionBuilder) -> None:
        self._builder = builder

    # -- loads

    def load(self, place: BufferPlace, pointer: str, lanes: int, mask: str | None = None) -> LlvmValue:
        """``lanes`` elements from ``pointer`` on; masked-out lanes are 0."""
        if mask is None:
            return self._decode(place, self._plain_load(place, pointer, lanes), lanes)
        if lanes == 1:
            return self._decode(place, self._scalar_load(place, pointer, mask), 1)
        kind = vector(place.element, lanes)
        function = self._builder.module.intrinsic(
            f"llvm.masked.load.{suffix(place.element, lanes)}.p0", kind, f"ptr, {vector('i1', lanes)}, {kind}"
        )
        raw = self._builder.emit(
            f"call {kind} {function}(ptr align {place.size} {pointer}, {vector('i1', lanes)} {mask}, "
            f"{kind} zeroinitializer)"
        )
        return self._decode(place, raw, lanes)

    def prefetch(self, pointer: str, ahead: int = 0, level: int = 1) -> None:
        """Asks cache ``level`` for the line ``ahead`` bytes behind ``pointer``; it need not exist."""
        function = self._builder.module.intrinsic("llvm.prefetch.p0", "void", "ptr, i32, i32, i32")
        line = self._builder.emit(f"getelementptr i8, ptr {pointer}, i64 {ahead}")
        self._builder.line(f"call void {function}(ptr {line}, i32 0, i32 {4 - level}, i32 1)")

    def load_strided(self, place: BufferPlace, pointer: str, stride: int, lanes: int) -> LlvmValue | None:
        """Every ``stride``-th element by shuffles of whole vectors; ``None`` where gathering is better."""
        if stride == -1:
            raw = self._plain_load(place, self.offset(place, pointer, 1 - lanes), lanes)
            return self._decode(place, self.reverse(raw, place.element, lanes), lanes)
        if not 2 <= stride <= _LARGEST_SHUFFLED_STRIDE:
            return None
        span = (lanes - 1) * stride + 1  # never touches memory beyond the last element
        result = "poison"
        for part in range(stride):
            offset = min(part * lanes, span - lanes)
            raw = self._plain_load(place, self.offset(place, pointer, offset), lanes)
            result = self._pick(result, raw, place.element, lanes, part, stride, offset)
        return self._decode(place, result, lanes)

    def _pick(self, result: str, raw: str, element: str, lanes: int, part: int, stride: int, offset: int) -> str:
        """Lanes whose element lies in ``raw``, which starts at ``offset``; the others as they were in ``result``."""
        choice = []
        for lane in range(lanes):
            position = lane * stride
            inside = part * lanes <= position < (part + 1) * lanes
            choice.append(f"i32 {lanes + position - offset}" if inside else f"i32 {lane}")
        kind = vector(element, lanes)
        return self._builder.emit(f"shufflevector {kind} {result}, {kind} {raw}, <{lanes} x i32> <{', '.join(choice)}>")

    def gather(self, place: BufferPlace, indices: LlvmValue, mask: str | None) -> LlvmValue:
        lanes = indices.lanes
        kind, pointers = vector(place.element, lanes), vector("ptr", lanes)
        condition = vector("i1", lanes)
        addresses = self._addresses(place, indices)
        name = f"llvm.masked.gather.{suffix(place.element, lanes)}.v{lanes}p0"
        function = self._builder.module.intrinsic(name, kind, f"{pointers}, {condition}, {kind}")
        raw = self._builder.emit(
            f"call {kind} {function}({pointers} align {place.size} {addresses}, {condition} {mask or _all(lanes)}, "
            f"{kind} zeroinitializer)"
        )
        return self._decode(place, raw, lanes)

    # -- stores

    def store(self, place: BufferPlace, pointer: str, value: LlvmValue, mask: str | None = None) -> None:
        """The lanes of ``value`` one after the other from ``pointer`` on."""
        lanes = value.lanes
        raw = self._encode(place, value)
        kind = vector(place.element, lanes)
        if mask is None:
            self._builder.line(f"store {kind} {raw}, ptr {pointer}, align {place.size}")
            return
        if lanes == 1:
            self._scalar_store(place, pointer, raw, mask)
            return
        condition = vector("i1", lanes)
        function = self._builder.module.intrinsic(
            f"llvm.masked.store.{suffix(place.element, lanes)}.p0", "void", f"{kind}, ptr, {condition}"
        )
        self._builder.line(f"call void {function}({kind} {raw}, ptr align {place.size} {pointer}, {condition} {mask})")

    def store_reversed(self, place: BufferPlace, pointer: str, value: LlvmValue) -> None:
        """The lanes of ``value`` one before the other from ``pointer`` on."""
        first = self.offset(place, pointer, 1 - value.lanes)
        raw = self.reverse(self._encode(place, value), place.element, value.lanes)
        kind = vector(place.element, value.lanes)
        self._builder.line(f"store {kind} {raw}, ptr {first}, align {place.size}")

    def scatter(self, place: BufferPlace, indices: LlvmValue, value: LlvmValue, mask: str | None) -> None:
        """One element per lane; where indices repeat the last lane wins."""
        lanes = value.lanes
        raw = self._encode(place, value)
        kind, pointers = vector(place.element, lanes), vector("ptr", lanes)
        condition = vector("i1", lanes)
        addresses = self._addresses(place, indices)
        name = f"llvm.masked.scatter.{suffix(place.element, lanes)}.v{lanes}p0"
        function = self._builder.module.intrinsic(name, "void", f"{kind}, {pointers}, {condition}")
        self._builder.line(
            f"call void {function}({kind} {raw}, {pointers} align {place.size} {addresses}, "
            f"{condition} {mask or _all(lanes)})"
        )

    # -- parts

    def reinterpret(self, value: LlvmValue, dtype: DType) -> LlvmValue:
        """The bit pattern of ``value`` as ``dtype`` of the same width."""
        source, target = (BufferPlace("", d, MEMORY[d]) for d in (value.dtype, dtype))
        raw = self._encode(source, value)
        if source.element != target.element:
            kinds = (vector(place.element, value.lanes) for place in (source, target))
            raw = self._builder.emit("bitcast {} {raw} to {}".format(*kinds, raw=raw))
        return self._decode(target, raw, value.lanes)

    def reverse(self, text: str, element: str, lanes: int) -> str:
        kind = vector(element, lanes)
        order = ", ".join(f"i32 {lane}" for lane in reversed(range(lanes)))
        return self._builder.emit(f"shufflevector {kind} {text}, {kind} poison, <{lanes} x i32> <{order}>")

    def offset(self, place: BufferPlace, pointer: str, elements: int | str) -> str:
        """``pointer`` moved by a number of elements. Not `inbounds`: parts of an index may lie outside of the buffer."""
        if elements == 0:
            return pointer
        return self._builder.emit(f"getelementptr {place.element}, ptr {pointer}, i64 {elements}")

    def _addresses(self, place: BufferPlace, indices: LlvmValue) -> str:
        return self._builder.emit(f"getelementptr {place.element}, ptr {place.pointer}, {indices.type} {indices.text}")

    def _plain_load(self, place: BufferPlace, pointer: str, lanes: int) -> str:
        return self._builder.emit(f"load {vector(place.element, lanes)}, ptr {pointer}, align {place.size}")

    def _scalar_load(self, place: BufferPlace, pointer: str, mask: str) -> str:
        builder = self._builder
        before, then, join = builder.block, builder.label("load"), builder.label("loaded")
        builder.branch_if(mask, then, join)
        builder.start(then)
        raw = self._plain_load(place, pointer, 1)
        builder.branch(join)
        builder.start(join)
        zero = "0" if place.element.startswith("i") else "0.0"
        return builder.emit(f"phi {place.element} [ {raw}, %{then} ], [ {zero}, %{before} ]")

    def _scalar_store(self, place: BufferPlace, pointer: str, raw: str, mask: str) -> None:
        builder = self._builder
        then, join = builder.label("store"), builder.label("stored")
        builder.branch_if(mask, then, join)
        builder.start(then)
        builder.line(f"store {place.element} {raw}, ptr {pointer}, align {place.size}")
        builder.branch(join)
        builder.start(join)

    def _decode(self, place: BufferPlace, raw: str, lanes: int) -> LlvmValue:
        if place.dtype is DType.BOOL:
            zero = splat("0", "i8", lanes)
            return LlvmValue(self._builder.emit(f"icmp ne {vector('i8', lanes)} {raw}, {zero}"), DType.BOOL, lanes)
        if place.is_packed:
            return LlvmValue(pattern_to_float(self._builder, raw, place.dtype, lanes), place.dtype, lanes)
        if place.dtype in SUB_BYTE_INTEGERS:
            return LlvmValue(decode_integer(self._builder, raw, place.dtype, lanes), place.dtype, lanes)
        return LlvmValue(raw, place.dtype, lanes)

    def _encode(self, place: BufferPlace, value: LlvmValue) -> str:
        if place.dtype is DType.BOOL:
            return self._builder.emit(f"zext {value.type} {value.text} to {vector('i8', value.lanes)}")
        if place.is_packed:
            return float_to_pattern(self._builder, value.text, place.dtype, value.lanes)
        if place.dtype in SUB_BYTE_INTEGERS:
            return encode_integer(self._builder, value.text, place.dtype, value.lanes)
        return value.text


def _all(lanes: int) -> str:
    return splat("true", "i1", lanes)
