"""Products of matrices, plain and quantized, quantization itself, and recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracle.builder import Axis, Builder, Shape, fixed
from tests.oracle.families.table import drawn_opset, drawn_type, family


def _matrices(b: Builder) -> tuple[Shape, Shape]:
    """Shapes whose product there is: vectors, matrices, batches that broadcast."""
    inner = b.axis(1, 17)
    lead = b.shape(0, 2, least=1, most=4)
    left, right = (*lead, b.axis(0, 17), inner), (*b.broadcast(lead), inner, b.axis(0, 17))
    if b.draw.rarely(3) and len(left) == len(right):
        left, right = (*right[:-2], *left[-2:]), (*left[:-2], *right[-2:])
    if b.draw.rarely(8):
        left = (inner,)
    elif b.draw.rarely(8):
        right = (inner,)
    return left, right


@family("MatMul")
def matmul(b: Builder, op: str) -> None:
    drawn_opset(b, 21, 13)
    dtype = drawn_type(b, op, among=("float32", "float64", "float16", "int32", "int64"))
    left, right = _matrices(b)
    x, y = b.either(left, dtype, "tame", low=-2, high=2), b.either(right, dtype, "tame", low=-2, high=2)
    x, y = (_turned(b, s, dtype) if len(s) > 1 and b.draw.rarely(4) else n for s, n in ((left, x), (right, y)))
    product = b.node(op, x, y)
    b.out(b.node("Add", product, product) if b.draw.rarely() else product)


def _turned(b: Builder, shape: Shape, dtype: Any) -> str:
    """An operand that lies in memory in another order."""
    order = b.draw.order(len(shape))
    x = b.input(tuple(shape[axis] for axis in order), dtype, "tame", low=-2, high=2)
    return b.node("Transpose", x, perm=[order.index(axis) for axis in range(len(shape))])


@family("Gemm")
def gemm(b: Builder, op: str) -> None:
    dtype = drawn_type(b, op, among=("float32", "float64", "float16"))
    rows, inner, columns = b.axis(0, 17), b.axis(1, 17), b.axis(0, 17)
    flips = {k: b.draw.choose((0, 1)) for k in b.draw.some(("transA", "transB"))}
    left = (inner, rows) if flips.get("transA") else (rows, inner)
    right = (columns, inner) if flips.get("transB") else (inner, columns)
    names = [b.input(left, dtype, "tame", low=-2, high=2), b.either(right, dtype, "tame", low=-2, high=2)]
    if b.draw.flag():
        names.append(b.either(b.broadcast((rows, columns)), dtype, "tame"))
    scales = {k: b.draw.choose((1.0, 0.5, 0.0, -2.0)) for k in b.draw.some(("alpha", "beta"))}
    b.out(b.node(op, *names, **flips, **scales))


_EQUATIONS = (
    "ij,jk->ik", "ij,kj->ik", "bij,bjk->bik", "i,j->ij", "ij->ji", "ij->", "ii->i", "ij,ij->i", "bhid,bhjd->bhij", "ij,jk",
    "ab,ca->", "ab,cda->", "abc,cd->abd", "ij,jk,kl->il", "...ij,...jk->...ik", "b...->...", "bn,anm,bm->ba", "ii", "ij,i->j",
)  # fmt: skip


@family("Einsum")
def einsum(b: Builder, op: str) -> None:
    dtype = drawn_type(b, op, among=("float32", "float64", "int64"))
    equation = b.draw.choose(_EQUATIONS)
    axes: dict[str, Axis] = {}
    dots = b.shape(0, 1, least=1, most=4)
    names = []
    for term in equation.split("->")[0].split(","):
        shape: Shape = ()
        for letter in term.replace("...", "."):
            shape += dots if letter == "." else (axes.setdefault(letter, b.axis(1, 7)),)
        names.append(b.either(shape, dtype, "tame", low=-2, high=2))
    b.out(b.node(op, *names, equation=equation))


@family("Det")
def determinant(b: Builder, op: str) -> None:
    size = b.draw.integer(1, 9)
    shape = (*b.shape(0, 2, least=1), *fixed(size, size))
    b.out(b.node(op, b.input(shape, drawn_type(b, op, among=("float32",)), "tame", low=-2, high=2)))


@family("MatMulInteger")
def matmul_integer(b: Builder, op: str) -> None:
    kinds = [b.draw.choose((np.uint8, np.int8)), b.draw.choose((np.uint8, np.int8))]
    left, right = _matrices(b)
    x, y = (b.either(s, k, "tame", low=-128, high=255) for s, k in zip((left, right), kinds, strict=True))
    zeros = [b.constant(np.array(b.draw.integer(0, 9), k)) for k in kinds] if b.draw.flag() else []
    b.out(b.node(op, x, y, *zeros))


def _scale(b: Builder) -> str:
    return b.constant(np.array(b.draw.choose((0.5, 0.25, 0.0625, 2.0)), np.float32))


def _zero(b: Builder, kind: Any) -> str:
    return b.constant(np.array(b.draw.integer(0, 9), kind))


def _dequantized(b: Builder, y: str, scale: str, zero: str) -> str:
    """What follows a quantized operator in most models."""
    return b.node("DequantizeLinear", y, scale, zero) if b.draw.flag() else y


@family("QLinearMatMul")
def quantized_matmul(b: Builder, op: str) -> None:
    kind = b.draw.choose((np.uint8, np.int8))
    left, right = _matrices(b)
    x, y = (b.either(s, kind, "tame", low=-8, high=8) for s in (left, right))
    out = [_scale(b), _zero(b, kind)]
    product = b.node(op, x, _scale(b), _zero(b, kind), y, _scale(b), _zero(b, kind), *out)
    b.out(_dequantized(b, product, *out))


@family("QLinearConv")
def quantized_conv(b: Builder, op: str) -> None:
    channels, filters = b.draw.choose((1, 3, 8)), b.draw.choose((1, 4, 5))
    x = b.input((b.axis(1, 3), *fixed(channels), b.axis(3, 9), b.axis(3, 9)), np.uint8, "tame", low=0, high=255)
    weight = b.constant(b.draw.numbers().integers(0, 20, (filters, channels, 3, 3)).astype(np.uint8))
    names = [x, _scale(b), _zero(b, np.uint8), weight, _scale(b), _zero(b, np.uint8), _scale(b), _zero(b, np.uint8)]
    if b.draw.flag():
        names.append(b.constant(b.draw.numbers().integers(-99, 99, filters).astype(np.int32)))
    y = b.node(op, *names, pads=b.draw.choose((None, [1] * 4)), strides=b.draw.choose((None, [2, 2])))
    b.out(_dequantized(b, y, *names[6:8]))


@family("QuantizeLinear", "DequantizeLinear")
def quantize(b: Builder, op: str) -> None:
    drawn_opset(b, 21, 19, 13)
    kind = np.dtype(b.draw.choose((np.uint8, np.int8)))
    shape = b.shape(1)
    axis, per_axis = b.draw.integer(0, len(shape) - 1), b.draw.rarely(3)
    own: Shape = (shape[axis],) if per_axis else ()
    scale = b.either(own, np.float32, "tame", low=0.25, high=2)
    names = [b.input(shape, np.float32 if op == "QuantizeLinear" else kind, "tame", low=-20, high=20), scale]
    if b.draw.flag() or kind != np.uint8 or op == "DequantizeLinear":
        names.append(b.either(own, kind, "tame", low=0, high=9))
    b.out(b.node(op, *names, axis=axis if per_axis else None))


@family("DynamicQuantizeLinear")
def dynamic_quantize(b: Builder, op: str) -> None:
    b.out(*b.multi(op, [b.input(b.shape(1, least=1), values="tame")], 3))


@family("RNN", "GRU", "LSTM")
def recurrent(b: Builder, op: str) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    drawn_opset(b, 22, 14)
    steps, batch, width = b.axis(1, 5), b.axis(1, 4), b.axis(1, 5)
    hidden = b.draw.choose((2, 3, 1, 8))
    direction = b.draw.choose((None, "forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    low = {"low": -1.0, "high": 1.0}
    names = [
        b.input((steps, batch, width), values="tame"),
        b.either((*fixed(ways, gates * hidden), width), values="tame", **low),
        b.either(fixed(ways, gates * hidden, hidden), values="tame", **low),
    ]
    state = (*fixed(ways), batch, *fixed(hidden))
    bias = b.either(fixed(ways, 2 * gates * hidden), values="tame", **low) if b.draw.flag() else ""
    lengths = ""
    if b.draw.rarely(3):
        numbers = b.draw.numbers()
        made = [numbers.integers(1, steps.extents[r] + 1, batch.extents[r]).astype(np.int32) for r in range(2)]
        lengths = b.given(made, (batch,))
    first = b.input(state, values="tame", **low) if b.draw.flag() else ""
    names += [bias, lengths, first]
    if op == "LSTM":
        names += [b.input(state, values="tame", **low) if b.draw.flag() else ""]
        names += [b.either(fixed(ways, 3 * hidden), values="tame", **low) if b.draw.flag() else ""]
    attributes: dict[str, Any] = {"clip": 0.5} if b.draw.rarely(6) else {}
    if op == "GRU" and b.draw.flag():
        attributes["linear_before_reset"] = b.draw.choose((0, 1))
    if b.draw.rarely():
        attributes["activations"] = ["Sigmoid", "Tanh", "Relu"][-1 if op == "RNN" else 0 :][
            : {"RNN": 1, "GRU": 2, "LSTM": 3}[op]
        ] * ways
    while names[-1] == "":
        names.pop()
    found = b.multi(op, names, 3 if op == "LSTM" else 2, hidden_size=hidden, direction=direction, **attributes)
    b.out(*found)
