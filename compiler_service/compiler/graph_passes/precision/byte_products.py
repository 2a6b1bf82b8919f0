"""Products of 8-bit integers for processors that multiply bytes: data by signed constant weights, four at a time.

Zero points and scales move out of the sum::

    sum over k of (x[k] - z) * w[k, n]      ->    sum over k of x[k] * w[k, n]  -  z * sum over k of w[k, n]
    sum over k of x[k] * w[k, n]            ->    sum over k of x[k] * (w[k, n] - v[n])  +  v[n] * sum over k of x[k]
    Conv(DQ(x, s, z), DQ(w, t))             ->    float(ConvInteger(x, w) - z * sum of w) * (s * t)

Integers are exact, so this rounds less than sums of floats do. Padding is with z, which stands for 0; signed data is moved
up by 128 where the processor takes unsigned bytes, and unsigned data down where it takes signed ones. Unsigned weights less a
zero point that is not 128 leave the signed bytes by a few (-121 to 134): the second line moves them back, by an amount for
each output, and the sums of the data are computed once for all outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute, is_channels_first
from compiler_service.compiler.graph_passes.rewriting.operands import as_number, is_single, permutation
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, RewriteRule, Site, rule
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim
from shared_ir.expr.operations import DOT4_OF
from shared_ir.graph.ir import Attribute, Node, Value

_SIGNED_TO_UNSIGNED = 128
"""What is added to signed bytes to make them unsigned."""
_LEAST_INT8, _LARGEST_INT8 = DType.INT8.limits
MOST_BYTE_DIFFERENCE = 255
"""Largest difference between an 8-bit integer and its zero point."""
EXACT_FLOAT32 = 1 << 24
"""float32 holds every integer below this one."""
_INTEGER_OPS = {"Conv": "ConvInteger", "MatMul": "MatMulInteger"}


def is_byte_product(node: Node, kind: DType) -> bool:
    """Whether ``node`` is what :func:`byte_product` builds: data of the type ``kind`` by signed weights, no zero points."""
    op = next((op for op, integer in _INTEGER_OPS.items() if integer == node.op), None)
    if op is None or len(node.operands) != 2:
        return False
    data, weight = node.operands
    kinds = (data.dtype, weight.dtype) == (kind, DType.INT8)
    return kinds and _is_served(op, weight.shape, node.attributes)


def _is_served(op: str, weight: Sequence[Dim], attributes: Mapping[str, Attribute]) -> bool:
    """Whether words are summed up: all outputs of ``op`` read the same channels, of which there are several."""
    if op == "MatMul":
        return len(weight) == 2 and weight[0] != 1
    by_rule = attributes.get("auto_pad", "NOTSET") != "NOTSET"
    return weight[1] != 1 and attributes.get("group", 1) == 1 and not by_rule


@dataclass(frozen=True)
class Bytes:
    """8-bit data and the zero point of all of it."""

    value: Value
    zero: Value | None


def byte_product(
    site: Site, op: str, data: Bytes, weight: np.ndarray, attributes: Mapping[str, Attribute], kind: DType
) -> Value | None:
    """The int32 ``op`` (Conv or MatMul) of ``data`` less its zero point and the integers ``weight``, by bytes of type ``kind``.

    None where weights of one output are further apart than those of a byte, channels come in groups or one alone, or windows are
    padded by a rule.
    """
    if data.value.dtype not in DOT4_OF or not is_single(data.zero) or not _is_served(op, weight.shape, attributes):
        return None
    moved = _moved_weights(op, weight)
    if moved is None:
        return None
    x, zero = _moved(site, data, kind)
    attributes = dict(attributes)
    if op == "Conv":
        x = _padded(site, x, zero, attributes)
    total = site.write(_INTEGER_OPS[op], (x, site.constant(moved.int8, "weight")), attributes)
    if moved.offset.any():
        sums = _sums_of_data(site, op, x, weight.shape[2:], attributes)
        total = site.node("Add", total, site.node("Mul", sums, site.constant(moved.offset, "offset")))
    return _less_zero(site, total, zero, _sums(op, weight))


@dataclass(frozen=True)
class _MovedWeights:
    """Weights that fit int8 once a number of each output is subtracted from all weights of it.

    Attributes:
        int8: what is left; with ``offset`` added, the weights.
        offset: int32, of the shape that the product broadcasts: one number for each output, 0 where its weights fit as they are.
    """

    int8: np.ndarray
    offset: np.ndarray


def _moved_weights(op: str, weight: np.ndarray) -> _MovedWeights | None:
    """``weight`` with the smallest offsets that make it fit int8. None where no offset does, or where the sum of the data, which the
    offsets are multiplied with, may be too large for a float32 to be exact."""
    if weight.size == 0:
        return None
    summed = (0,) if op == "MatMul" else tuple(range(1, weight.ndim))
    wide = weight.astype(np.int64)
    offset = np.maximum(wide.max(summed, keepdims=True) - _LARGEST_INT8, 0) + np.minimum(
        wide.min(summed, keepdims=True) - _LEAST_INT8, 0
    )
    fitting = wide - offset
    if fitting.min() < _LEAST_INT8 or fitting.max() > _LARGEST_INT8:
        return None
    terms = weight.size // offset.size
    if offset.any() and terms * MOST_BYTE_DIFFERENCE >= EXACT_FLOAT32:
        return None
    shape = (-1,) if op == "MatMul" else (-1, *(1,) * (weight.ndim - 2))
    return _MovedWeights(fitting.astype(np.int8), offset.astype(np.int32).reshape(shape))


def _sums_of_data(site: Site, op: str, x: Value, window: tuple[int, ...], attributes: Mapping[str, Attribute]) -> Value:
    """The sum of all data that an output reads, int32: ``[.., m, 1]`` for MatMul, ``[n, 1, ..]`` for the windows of ``x``, which is padded
    already. Windows are summed in float32, which is exact for them."""
    own = site.node("ingot.SumBytes", x, axis=-1 if op == "MatMul" else 1)
    if {*window, *_integers_of(attributes.get("strides"))} <= {1}:
        return own
    ones = site.constant(np.ones((1, 1, *window), np.float32), "window")
    total = site.write("ingot.ExactConv", (site.node("Cast", own, to=DType.FLOAT32), ones), attributes)
    return site.node("Cast", total, to=DType.INT32, integral=1)


def _moved(site: Site, data: Bytes, kind: DType) -> tuple[Value, Value]:
    """(data of the type ``kind``, its int32 zero point)"""
    zero = _zero_point(site, data.zero)
    if data.value.dtype is kind:
        return data.value, zero
    half = _SIGNED_TO_UNSIGNED if kind is DType.UINT8 else -_SIGNED_TO_UNSIGNED
    bits = site.node("Cast", data.value, to=kind)
    moved = site.node("BitwiseXor", bits, site.constant(np.array(half, kind.numpy)))
    known = site.array(zero)
    if known is not None:
        return moved, site.constant(np.asarray(known + np.int32(half)), "zero")
    return moved, site.node("Add", zero, site.constant(np.array(half, np.int32)))


def _zero_point(site: Site, zero: Value | None) -> Value:
    """``zero`` as an int32 scalar; 0 where there is none."""
    known = np.zeros((), np.int8) if zero is None else site.array(zero)
    if zero is None or known is not None:
        assert known is not None
        return site.constant(known.reshape(()).astype(np.int32), "zero")
    return site.node("Cast", as_number(site, zero), to=DType.INT32)


def _padded(site: Site, x: Value, zero: Value, attributes: dict[str, Attribute]) -> Value:
    """``x`` with the zero point around it; ``attributes`` then ask for no padding."""
    axes = x.type.rank - 2
    pads = _integers_of(attributes.get("pads"))
    if not any(pads):
        return x
    amounts = (0, 0, *pads[:axes], 0, 0, *pads[axes:])
    attributes["pads"] = (0,) * (2 * axes)
    fill = site.node("Cast", zero, to=x.dtype)
    return site.node("Pad", x, site.integers(*amounts), fill)


def _integers_of(attribute: Attribute | None) -> list[int]:
    return [n for n in attribute if isinstance(n, int)] if isinstance(attribute, tuple) else []


def _sums(op: str, weight: np.ndarray) -> np.ndarray:
    """The sum of the weights of each output, int32, of the shape that the product broadcasts."""
    wide = weight.astype(np.int64)
    if op == "MatMul":
        return np.asarray(wide.sum(axis=0), np.int32)
    sums = np.asarray(wide.sum(axis=tuple(range(1, weight.ndim))), np.int32)
    return sums.reshape(-1, *(1,) * (weight.ndim - 2))


def _less_zero(site: Site, total: Value, zero: Value, sums: np.ndarray) -> Value:
    known = site.array(zero)
    if known is None:
        return site.node("Sub", total, site.node("Mul", zero, site.constant(sums, "sums")))
    moved = -sums * known
    return site.node("Add", total, site.constant(moved.astype(np.int32), "moved")) if moved.any() else total


# -- products of dequantized operands


@dataclass(frozen=True)
class _Scaled:
    """Dequantized constant weights: integers less their zero points, and a scale for all or for each output."""

    integers: np.ndarray
    scale: np.ndarray


def _dequantized_product(node: Node, site: Site, kind: DType) -> Replacement:
    """Conv, MatMul, Gemm of dequantized data and dequantized constant weights"""
    op = "Conv" if node.op == "Conv" else "MatMul"
    given = site.producer(node.inputs[0], "DequantizeLinear")
    outputs = 0 if node.op == "Conv" or node.attributes.get("transB", 0) else node.operands[1].type.rank - 1
    weight = None if given is None else _weight(site, node.operands[1], outputs)
    if given is None or weight is None or not _is_plain(node) or not _has_one_step(given):
        return None
    if node.op == "Gemm":
        if node.attributes.get("transB", 0):
            weight = _Scaled(weight.integers.T, weight.scale)
        attributes: Mapping[str, Attribute] = {}
    else:
        attributes = node.attributes
    zero = given.inputs[2] if len(given.inputs) > 2 else None
    total = byte_product(site, op, Bytes(given.operands[0], zero), weight.integers, attributes, kind)
    if total is None:
        return None
    tail = (1,) * (node.results[0].type.rank - 2) if op == "Conv" else ()
    factor = _factor(site, given.operands[1], weight.scale, tail)
    result = site.node("Mul", site.node("Cast", total, to=DType.FLOAT32), factor, title=node.name)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None:
        return result
    return site.node("Add", result, site.reshape(bias, (*bias.shape, *tail)) if tail else bias)


def _is_plain(node: Node) -> bool:
    plain = node.attributes.get("alpha", 1.0) == 1 and node.attributes.get("beta", 1.0) == 1
    plain = plain and is_channels_first(node) and not node.attributes.get("transA", 0)
    return plain and node.results[0].dtype is DType.FLOAT32


def _has_one_step(dequantize: Node) -> bool:
    scale = dequantize.operands[1]
    return is_single(scale) and scale.dtype is DType.FLOAT32


def _weight(site: Site, value: Value, outputs: int) -> _Scaled | None:
    """The constant weights behind ``value`` whose scales, if there are several, run along the axis ``outputs``."""
    turned = site.producer(value, "Transpose")
    if turned is not None and permutation(turned) == (1, 0):
        found = _weight(site, turned.operands[0], 1 - outputs)
        return None if found is None else _Scaled(found.integers.T, found.scale)
    node = site.producer(value, "DequantizeLinear")
    array = None if node is None else site.array(node.operands[0])
    scale = None if node is None else site.array(node.operands[1])
    if node is None or array is None or scale is None or array.dtype not in (np.int8, np.uint8):
        return None
    zero = site.array(node.operands[2]) if len(node.operands) > 2 else np.zeros_like(scale, array.dtype)
    if (
        zero is None
        or zero.size != scale.size
        or scale.ndim > 1
        or int_attribute(node, "block_size", 0)
        or scale.dtype != np.float32
    ):
        return None
    if scale.size > 1 and int_attribute(node, "axis", 1) % array.ndim != outputs:
        return None
    shape = tuple(scale.size if a == outputs and scale.size > 1 else 1 for a in range(array.ndim))
    return _Scaled(array.astype(np.int32) - zero.astype(np.int32).reshape(shape), scale.reshape(-1))


def _factor(site: Site, data_scale: Value, weight_scale: np.ndarray, tail: tuple[int, ...]) -> Value:
    shape = (weight_scale.size, *tail) if weight_scale.size > 1 else ()
    shaped = weight_scale.reshape(shape)
    known = site.array(data_scale)
    if known is not None:
        product = known.reshape(()).astype(np.float64) * shaped
        return site.constant(np.asarray(product.astype(np.float32)), "factor")
    return site.node("Mul", as_number(site, data_scale), site.constant(np.asarray(shaped), "scale"))


def dequantized_product_rules(kind: DType) -> tuple[RewriteRule, ...]:
    """The table, for processors that multiply data of the type ``kind``."""
    return (rule("Conv MatMul Gemm", lambda node, site: _dequantized_product(node, site, kind)),)
