"""What a random model may do next: one function per family, each drawing operands and attributes that fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.random_models.model_maker import Entry, Maker

Step = Callable[[Maker], Entry | None]


def _is_float(v: Entry) -> bool:
    return v.kind == "float"


def _is_plain(v: Entry) -> bool:
    return v.array.dtype in (np.float32, np.int64, np.int32, np.float64)


def unary(make: Maker) -> Entry | None:
    x = make.pick(_is_float)
    op = make.choose(
        ["Sigmoid", "Tanh", "Erf", "Softplus", "HardSigmoid", "Elu", "Sin", "Cos", "Softsign", "Atan", "Exp"]
    )
    return None if x is None else make.add(op, x.name)


def exact_unary(make: Maker) -> Entry | None:
    x = make.pick(_is_plain)
    return None if x is None else make.add(make.choose(["Relu", "Abs", "Neg", "Identity"]), x.name, exact=x.exact)


def rounding(make: Maker) -> Entry | None:
    x = make.pick(lambda v: _is_float(v) and v.exact)
    return None if x is None else make.add(make.choose(["Floor", "Ceil", "Round", "Sign"]), x.name, exact=True)


def root(make: Maker) -> Entry | None:
    x = make.pick(_is_float)
    if x is None:
        return None
    positive = make.add("Abs", x.name)
    if positive is None:
        return None
    shifted = make.add("Add", positive.name, make.constant(np.array(0.5, x.array.dtype)))
    return None if shifted is None else make.add(make.choose(["Sqrt", "Log", "Reciprocal"]), shifted.name)


def _pair(make: Maker, accepts: Callable[[Entry], bool]) -> tuple[Entry, Entry] | None:
    """Two values that broadcast against each other."""
    a = make.pick(accepts)
    b = None if a is None else make.pick(lambda v: v.array.dtype == a.array.dtype and accepts(v) and _fit(a, v))
    return None if a is None or b is None else (a, b)


def _fit(a: Entry, b: Entry) -> bool:
    return all(1 in (m, n) or m == n for m, n in zip(reversed(a.shape), reversed(b.shape), strict=False))


def binary(make: Maker) -> Entry | None:
    pair = _pair(make, _is_plain)
    if pair is None:
        return None
    op = make.choose(["Add", "Sub", "Mul", "Min", "Max"])
    exact = all(v.exact for v in pair) and (op != "Mul" or pair[0].kind == "int")
    return make.add(op, *(v.name for v in pair), exact=exact)


def with_constant(make: Maker) -> Entry | None:
    x = make.pick(_is_plain)
    if x is None:
        return None
    shape = make.choose([(), (1,), x.shape[-1:], (*x.shape[-2:-1], 1) if x.rank > 1 else (1,)])
    numbers = make.random.integers(1, 9, shape)
    held = numbers if x.kind == "int" else numbers / 4
    op = make.choose(["Add", "Mul", "Sub", "Div", *(["Mod"] if x.kind == "int" else [])])
    names = [x.name, make.constant(held.astype(x.array.dtype))]
    names = names[::-1] if op in ("Add", "Mul", "Sub") and make.flag() else names
    return make.add(op, *names, exact=x.exact and (op in ("Add", "Sub") or x.kind == "int"))


def compare(make: Maker) -> Entry | None:
    pair = _pair(make, lambda v: v.exact and _is_plain(v))
    op = make.choose(["Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"])
    return None if pair is None else make.add(op, *(v.name for v in pair), exact=True)


def logic(make: Maker) -> Entry | None:
    pair = _pair(make, lambda v: v.kind == "bool")
    if pair is None:
        return None
    if make.flag():
        return make.add("Not", pair[0].name, exact=True)
    return make.add(make.choose(["And", "Or", "Xor"]), *(v.name for v in pair), exact=True)


def where(make: Maker) -> Entry | None:
    condition = make.pick(lambda v: v.kind == "bool")
    pair = _pair(make, lambda v: _is_plain(v) and condition is not None and _fit(condition, v))
    if condition is None or pair is None:
        return None
    return make.add("Where", condition.name, *(v.name for v in pair), exact=all(v.exact for v in pair))


def cast(make: Maker) -> Entry | None:
    to = make.choose(
        [
            TensorProto.FLOAT,
            TensorProto.DOUBLE,
            TensorProto.INT64,
            TensorProto.INT32,
            TensorProto.BOOL,
            TensorProto.INT8,
        ]
    )
    is_float = to in (TensorProto.FLOAT, TensorProto.DOUBLE)
    x = make.pick(lambda v: is_float or (v.exact and bool(np.all(np.abs(v.array.astype(np.float64)) < 120))))
    return None if x is None else make.add("Cast", x.name, to=to, exact=x.exact)


def reduce(make: Maker) -> Entry | None:
    x = make.pick(lambda v: v.rank > 0 and v.array.dtype in (np.float32, np.int64))
    if x is None:
        return None
    axes = sorted({make.integer(-x.rank, x.rank - 1) % x.rank for _ in range(make.integer(1, 2))})
    whole = ["ReduceSum", "ReduceMax", "ReduceMin"]
    op = make.choose(
        whole
        if x.kind == "int"
        else [*whole, "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"]
    )
    keep = int(make.flag())
    exact = x.exact and op in whole
    if op == "ReduceSum":
        return make.add(op, x.name, make.constant(axes), keepdims=keep, exact=exact)
    return make.add(op, x.name, make.constant(axes), keepdims=keep, exact=exact)


def along(make: Maker) -> Entry | None:
    x = make.pick(lambda v: v.rank > 0 and v.array.dtype == np.float32)
    if x is None:
        return None
    axis = make.integer(-x.rank, x.rank - 1)
    op = make.choose(["Softmax", "LogSoftmax", "CumSum", "LayerNormalization"])
    if op == "CumSum":
        held = make.constant(np.array(axis, np.int64))
        return make.add(op, x.name, held, exclusive=int(make.flag()), reverse=int(make.flag()))
    if op == "LayerNormalization":
        return make.add(op, x.name, make.weights(*x.shape[axis % x.rank :]), axis=axis)
    return make.add(op, x.name, axis=axis)


def choose_positions(make: Maker) -> Entry | None:
    """ArgMax and TopK of what has no equal elements along the axis."""
    x = make.pick(lambda v: v.exact and v.rank > 0 and _is_float(v) and 0 < v.array.size == len(np.unique(v.array)))
    if x is None:
        return None
    axis = make.integer(0, x.rank - 1)
    if make.flag():
        return make.add(make.choose(["ArgMax", "ArgMin"]), x.name, axis=axis, keepdims=int(make.flag()), exact=True)
    count = make.constant([make.integer(1, x.shape[axis])])
    return make.add("TopK", x.name, count, outputs=2, axis=axis, largest=int(make.flag()), exact=True)


def product(make: Maker) -> Entry | None:
    x = make.pick(lambda v: v.array.dtype == np.float32 and v.rank >= 1 and v.shape[-1] > 0)
    if x is None:
        return None
    other = make.pick(lambda v: v.array.dtype == np.float32 and v.rank == x.rank >= 2 and v.shape[-2] == x.shape[-1])
    if other is not None and make.flag():
        return make.add("MatMul", x.name, other.name)
    if x.rank == 2 and make.flag():
        columns = make.integer(1, 9)
        weight = make.weights(columns, x.shape[1])
        return make.add("Gemm", x.name, weight, make.weights(columns), transB=1, alpha=0.5)
    return make.add("MatMul", x.name, make.weights(x.shape[-1], make.integer(1, 9)))


def image(make: Maker) -> Entry | None:
    x = make.pick(lambda v: v.array.dtype == np.float32 and v.rank in (3, 4) and min(v.shape) > 0)
    if x is None:
        return None
    spatial = x.rank - 2
    kind = make.choose(
        [
            "Conv",
            "Conv",
            "ConvTranspose",
            "MaxPool",
            "AveragePool",
            "GlobalAveragePool",
            "BatchNormalization",
            "InstanceNormalization",
        ]
    )
    channels, kernel = x.shape[1], make.integer(1, 3)
    options: dict[str, Any] = {"kernel_shape": [kernel] * spatial, "strides": [make.integer(1, 2)] * spatial}
    match kind:
        case "Conv":
            group = channels if make.flag() else 1
            out = channels * make.integer(1, 2) if group > 1 else make.integer(1, 6)
            pads = [make.integer(0, kernel // 2)] * (2 * spatial)
            weight = make.weights(out, channels // group, *[kernel] * spatial)
            return make.add(kind, x.name, weight, make.weights(out), group=group, pads=pads, **options)
        case "ConvTranspose":
            return make.add(kind, x.name, make.weights(channels, make.integer(1, 4), *[kernel] * spatial), **options)
        case "MaxPool" | "AveragePool":
            return make.add(kind, x.name, pads=[kernel // 2] * (2 * spatial), **options)
        case "BatchNormalization":
            variance = make.constant(make.random.integers(4, 9, channels).astype(np.float32) / 4)
            return make.add(kind, x.name, *(make.weights(channels) for _ in range(3)), variance)
        case "InstanceNormalization":
            return make.add(kind, x.name, make.weights(channels), make.weights(channels))
    return make.add(kind, x.name)


STEPS: tuple[Step, ...] = (
    unary, unary, exact_unary, exact_unary, rounding, root, binary, binary, binary, with_constant, with_constant, compare,
    logic, where, cast, reduce, reduce, along, choose_positions, product, product, image, image,
)  # fmt: skip
