"""Sums of products of bytes, four at a time: what instructions like VPDPBUSD compute for every lane of a vector.

A word is four bytes that follow each other along the axis that is summed, the first of them lowest; zeros fill the last one::

    y[.., n] = sum over k of data[.., k] * weight[k, n]                     bytes by signed bytes, in int32
             = sum over w of dot4(words of data[.., w], words of weight[w, n])

The bytes of the data are unsigned or signed, as the target takes them (VPDPBUSD, SDOT). Where they lie along k they are read as
words where they lie (every target is little-endian), also where they are padded; other data is put together once, ahead of the
sum. The words of the weights are made at compile time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from compiler_service.compiler.schedule.language.algorithm import Transform
from compiler_service.compiler.schedule.model.byte_products import (
    BYTE_MASK,
    BYTES_OF_WORD,
    ByteProduct,
    words_in,
)
from compiler_service.compiler.tensor_expr.strides import Strides
from compiler_service.compiler.tensor_expr.tensor import (
    Axis,
    Compute,
    Load,
    Placeholder,
    ReduceOp,
    Tensor,
    compute,
    placeholder,
    reduce,
)
from shared_ir.dtype import DType
from shared_ir.expr import Const, Expr, Select, Var, binary, select, substitute, variables
from shared_ir.expr.dim import Dim
from shared_ir.expr.operations import DOT4_OF


@dataclass(frozen=True)
class DotStages:
    """``data``, if there is any, is computed ahead of ``output``, which takes the place of the sum.

    Attributes:
        arguments: placeholders of bytes -> those of their words.
    """

    data: Tensor | None
    output: Tensor
    arguments: dict[Tensor, Tensor]


def dot_stages(product: ByteProduct, data_body: Expr | None) -> DotStages:
    """The tensors that stand for ``product``; ``data_body`` computes its data, where that is no argument."""
    arguments: dict[Tensor, Tensor] = {}

    def words_of(tensor: Tensor, axis: int) -> Tensor:
        if tensor not in arguments:
            shape, strides = Words(axis).shape(tensor.shape), _word_strides(tensor)
            arguments[tensor] = placeholder(f"{tensor.name}.words", shape, DType.INT32, strides=strides)
        return arguments[tensor]

    source, place = product.data.tensor, product.place
    data = None
    if data_body is None and _holds_words(source, place):
        words = words_of(source, place)
    else:
        axes = _axes(source)
        body = product.data.tensor[tuple(axes)] if data_body is None else data_body
        found = _in_place(body, axes[place], words_of) if place == source.rank - 1 else None
        if found is None:
            found = words_in(body, axes[place], source.shape[place])
        words = data = _computed(source, place, axes, found)
    weights = words_of(product.weight.tensor, product.position)
    return DotStages(data, _sum(product, words, weights), arguments)


def _holds_words(tensor: Tensor, place: int) -> bool:
    """Whether the bytes of an argument at ``place`` lie together, as whole words."""
    extent = tensor.shape[place]
    whole = place == tensor.rank - 1 and isinstance(extent, int) and extent % BYTES_OF_WORD == 0
    return whole and (tensor.strides is None or _word_strides(tensor) is not None)


def _word_strides(tensor: Tensor) -> Strides | None:
    """Strides of an argument, counted in words; None where it has none, or they are no whole words."""
    if tensor.strides is None:
        return None
    *outer, last = tensor.strides
    if last != 1 or any(not isinstance(s, int) or s % BYTES_OF_WORD for s in outer):
        return None
    return (*(s // BYTES_OF_WORD for s in outer if isinstance(s, int)), 1)


def _axes(source: Tensor) -> list[Var]:
    if isinstance(source.op, Compute):
        return [a.var for a in source.op.axes]
    return [Axis(f"i{position}", extent).var for position, extent in enumerate(source.shape)]


def _sum(product: ByteProduct, words: Tensor, weights: Tensor) -> Tensor:
    op, tensor = product.tensor.op, product.tensor
    assert isinstance(op, Compute)
    assert op.reduction is not None
    reduced = op.reduction.axes

    def body(*index: Expr) -> Expr:
        places = dict(zip((a.var for a in (*op.axes, *reduced)), index, strict=True))
        left, right = ([substitute(i, places) for i in load.indices] for load in (product.data, product.weight))
        return binary(DOT4_OF[product.data.dtype], words[tuple(left)], weights[tuple(right)])

    extents = [_word_count(a.extent) if a is product.depth else a.extent for a in reduced]
    axes, names = [a.name for a in op.axes], [a.name for a in reduced]
    return reduce(ReduceOp.SUM, tensor.shape, extents, body, name=tensor.name, axes=axes, reduced=names)


def _computed(source: Tensor, place: int, axes: Sequence[Var], body: Expr) -> Tensor:
    """The words of ``source``, ``body`` at ``axes``."""

    def at(*index: Expr) -> Expr:
        return substitute(body, dict(zip(axes, index, strict=True)))

    names = [v.name.removeprefix("$") for v in axes]
    return compute(Words(place).shape(source.shape), at, name=f"{source.name}.words", axes=names)


def _in_place(expr: Expr, byte: Var, words_of: Callable[[Tensor, int], Tensor]) -> Expr | None:
    """``expr``, a byte at the place ``byte``, as the word at that place among words; None where it is not read as it lies."""
    match expr:
        case Const(value=value, type=DType.UINT8 | DType.INT8):
            return Const(
                int.from_bytes(bytes([int(value) & BYTE_MASK] * BYTES_OF_WORD), "little", signed=True), DType.INT32
            )
        case Select(cond=cond, then=then, otherwise=otherwise) if byte not in variables(cond):
            one, other = (_in_place(e, byte, words_of) for e in (then, otherwise))
            return None if one is None or other is None else select(cond, one, other)
        case Load(tensor=tensor, indices=(*outer, last)) if isinstance(tensor.op, Placeholder) and last == byte:
            apart = not any(byte in variables(i) for i in outer)
            if apart and tensor.dtype in DOT4_OF and _holds_words(tensor, tensor.rank - 1):
                return words_of(tensor, tensor.rank - 1)[(*outer, last)]
    return None


def _word_count(extent: Dim) -> Dim:
    return -(-extent // BYTES_OF_WORD) if isinstance(extent, int) else extent


@dataclass(frozen=True)
class Words(Transform):
    """Bytes along ``axis`` as the int32 words of them, the last one filled up with zeros."""

    axis: int

    def shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        return tuple(_word_count(d) if i == self.axis else d for i, d in enumerate(shape))

    def itemsize(self, itemsize: int) -> int:
        return itemsize * BYTES_OF_WORD

    def apply(self, array: np.ndarray) -> np.ndarray:
        last = np.moveaxis(array, self.axis, -1)
        rest = -last.shape[-1] % BYTES_OF_WORD
        filled = np.ascontiguousarray(np.pad(last, [(0, 0)] * (last.ndim - 1) + [(0, rest)]))
        return np.ascontiguousarray(np.moveaxis(filled.view("<i4"), -1, self.axis))
