"""Rules on weights that stay quantised: zero points go into the codes; codes of 4 bits lie eight to a word.

ingot.Dequantize(w, s, z)         ->  ingot.Dequantize(w - z, s)
x @ ingot.Dequantize(w, s, z)     ->  ingot.MatMulNibbles(x, words of w, s, z, sums of x)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, RewriteRule, Site, rule
from compiler_service.compiler.tensor_expr.operators.conversion import KEPT_QUANTIZED
from compiler_service.compiler.tensor_expr.operators.nibbles import CODES
from shared_ir.graph.ir import Node, Value

_CODE = 15
"""The largest code of 4 bits."""
_INT8 = np.iinfo(np.int8)


@dataclass(frozen=True, eq=False)
class _Nibbles:
    """``(codes - zeros) * scales`` with a scale for ``block`` rows of a column.

    Attributes:
        codes: uint8 ``[k, n]``, at most 15.
        scales: float32 ``[k / block, n]``.
        zeros: int8 like ``scales``, or one number ``[]``.
    """

    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray
    block: int

    @property
    def words(self) -> np.ndarray:
        """The codes of ``CODES`` neighbouring rows in a uint32, the first in its lowest bits."""
        rows = self.codes.astype(np.uint32).reshape(-1, CODES, self.codes.shape[1])
        shifts = np.arange(CODES, dtype=np.uint32) * np.uint32(32 // CODES)
        return np.asarray(np.bitwise_or.reduce(rows << shifts[:, None], axis=1))


def _nibbles(node: Node, site: Site) -> _Nibbles | None:
    """The weights of the ``ingot.Dequantize`` ``node``, where its codes take 4 bits and its scales hold for whole words of a
    column."""
    found = _constants(node, site)
    scales = site.array(node.operands[1])
    if found is None or scales is None or scales.dtype != np.float32:
        return None
    codes, zeros = found
    depth, columns = codes.shape
    axis, block = int_attribute(node, "axis", 1) % 2, int_attribute(node, "block_size") or depth
    if block % CODES or depth % block or codes.size == 0:
        return None
    if scales.size == 1:
        scales = np.broadcast_to(scales.reshape(1, 1), (1, columns))
    elif axis == 1 and scales.shape == (columns,):
        scales, zeros = scales[None], zeros.reshape(1, -1) if zeros.size > 1 else zeros
    elif axis == 1 or scales.ndim < 2:
        return None
    up = 8 if codes.min() < 0 else 0  # int4 as uint4
    moved, zeros = codes.astype(np.int16) + up, zeros.astype(np.int16) + up
    if moved.min() < 0 or moved.max() > _CODE or zeros.max() > _INT8.max:
        return None
    zeros = zeros.reshape(()) if zeros.size == 1 or (zeros == zeros.flat[0]).all() else zeros
    return _Nibbles(moved.astype(np.uint8), np.ascontiguousarray(scales), zeros.astype(np.int8), depth // len(scales))


def _constants(node: Node, site: Site) -> tuple[np.ndarray, np.ndarray] | None:
    """(codes, zero points) of weights that are dequantized, where they are constants; without zero points they are 0."""
    weight, _, *zeros = node.operands
    codes, points = site.array(weight), site.array(zeros[0]) if zeros else np.zeros((), np.int8)
    return None if codes is None or points is None or codes.ndim != 2 else (codes, points)


def _multiplied(node: Node, site: Site) -> Replacement:
    """x @ ingot.Dequantize(w, s, z) of codes that take 4 bits"""
    data, weight, *bias = node.operands
    kept = site.producer(weight, KEPT_QUANTIZED)
    found = None if kept is None else _nibbles(kept, site)
    plain = node.attributes.get("alpha", 1.0) == 1 and node.attributes.get("beta", 1.0) == 1
    if found is None or not plain or int_attribute(node, "transA") or data.type.rank < 2:
        return None
    sums = _block_sums(data, len(found.scales), found.block, site)
    names = ("words", "scales", "zero_points")
    arrays = (found.words, found.scales, found.zeros)
    weights = (site.constant(a, f"{weight.name}_{n}") for a, n in zip(arrays, names, strict=True))
    product = site.node("ingot.MatMulNibbles", data, *weights, sums, block_size=found.block, title=node.name)
    return site.node("Add", product, bias[0]) if bias else product


def _block_sums(x: Value, blocks: int, size: int, site: Site) -> Value:
    """``[.., m, blocks * size] -> [.., m, blocks]``"""
    last = site.constant(np.array([-1], np.int64), "axes")
    if blocks == 1:
        return site.node("ReduceSum", x, last, keepdims=1)
    return site.node("ReduceSum", site.reshape(x, (*x.shape[:-1], blocks, size)), last, keepdims=0)


def _centred(node: Node, site: Site) -> Replacement:
    """``ingot.Dequantize(w, s, z) -> ingot.Dequantize(int8(w - z), s)`` where the differences of constants are bytes"""
    weight, scale, *_ = node.operands
    found = _constants(node, site)
    if found is None or _nibbles(node, site) is not None:
        return None
    codes, zeros = found
    if codes.dtype == np.int8 and not zeros.any():
        return None
    axis, block = int_attribute(node, "axis", 1) % codes.ndim, int_attribute(node, "block_size")
    less = zeros.astype(np.int16)
    if less.ndim == codes.ndim and block:
        less = np.repeat(less, block, axis)[tuple(map(slice, codes.shape))]
    elif less.size > 1:
        less = less.reshape([-1 if a == axis else 1 for a in range(codes.ndim)])
    centred = codes.astype(np.int16) - (less if less.size > 1 else less.reshape(()))
    if centred.size == 0 or centred.min() < _INT8.min or centred.max() > _INT8.max:
        return None
    return site.write(
        node.op, (site.constant(centred.astype(np.int8), weight.name), scale), node.attributes, title=node.name
    )


KEPT_WEIGHT_RULES: tuple[RewriteRule, ...] = (
    rule("MatMul Gemm", _multiplied),
    rule(KEPT_QUANTIZED, _centred),
)
