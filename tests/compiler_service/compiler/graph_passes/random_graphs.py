"""Random small graphs of the operators that picture models and transformers are made of, in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import hypothesis.strategies as st
import numpy as np

from compiler_service.compiler.graph_passes.rewriting.builder import Builder
from shared_ir.dtype import DType
from shared_ir.expr import Var
from shared_ir.expr.dim import Dim, product
from shared_ir.graph.ir import Graph, Value
from shared_ir.types import TensorType

SIZES = {"batch": 2, "h": 5, "w": 7}


@dataclass
class Maker:
    """Draws operators that fit the values there are."""

    draw: st.DrawFn
    builder: Builder
    random: np.random.Generator
    values: list[Value] = field(default_factory=list)

    def weights(self, *shape: int, low: float = -1.0) -> Value:
        return self.builder.constant(self.random.uniform(low, 1.5, shape), "weight")

    def pick(self, rank: int | None = None) -> Value | None:
        fitting = [v for v in self.values if rank is None or v.type.rank == rank]
        return self.draw(st.sampled_from(fitting)) if fitting else None

    def channels(self, x: Value) -> int:
        count = x.shape[1]
        assert isinstance(count, int)
        return count


def _convolution(make: Maker) -> Value | None:
    x = make.pick(4)
    if x is None or not isinstance(x.shape[1], int):
        return None
    size, stride = make.draw(st.sampled_from([1, 3])), make.draw(st.sampled_from([1, 2]))
    channels = make.channels(x)
    group = channels if make.draw(st.booleans()) else 1
    out = channels if group > 1 else make.draw(st.sampled_from([2, 4]))
    inputs = [x, make.weights(out, channels // group, size, size)]
    if make.draw(st.booleans()):
        inputs.append(make.weights(out))
    pad = (size // 2,) * 4
    return make.builder.node(
        "Conv", *inputs, kernel_shape=(size, size), strides=(stride, stride), pads=pad, group=group
    )


def _batch_norm(make: Maker) -> Value | None:
    x = make.pick(4)
    if x is None or not isinstance(x.shape[1], int):
        return None
    c = make.channels(x)
    statistics = [make.weights(c), make.weights(c), make.weights(c), make.weights(c, low=0.5)]
    return make.builder.node("BatchNormalization", x, *statistics, epsilon=1e-3)


def _unary(make: Maker) -> Value | None:
    x = make.pick()
    op = make.draw(st.sampled_from(["Relu", "Sigmoid", "Neg", "Tanh", "Identity", "HardSigmoid", "Abs"]))
    return None if x is None else make.builder.node(op, x)


def _binary(make: Maker) -> Value | None:
    x = make.pick()
    others = [v for v in make.values if x is not None and v.shape == x.shape]
    if x is None or not others:
        return None
    return make.builder.node(
        make.draw(st.sampled_from(["Add", "Mul", "Sub", "Max"])), x, make.draw(st.sampled_from(others))
    )


def _constant(make: Maker) -> Value | None:
    x = make.pick()
    if x is None:
        return None
    shapes: list[tuple[int, ...]] = [(), (1,)]
    if x.type.rank == 4 and isinstance(x.shape[1], int):
        shapes.append((x.shape[1], 1, 1))
    if x.type.rank and isinstance(x.shape[-1], int):
        shapes.append((x.shape[-1],))
    c = make.weights(*make.draw(st.sampled_from(shapes)), low=0.5)
    operands = (c, x) if make.draw(st.booleans()) else (x, c)
    return make.builder.node(make.draw(st.sampled_from(["Add", "Mul", "Sub", "Div"])), *operands)


def _pool(make: Maker) -> Value | None:
    x = make.pick(4)
    if x is None or x.shape[2] == 1:
        return None
    op = make.draw(st.sampled_from(["MaxPool", "AveragePool", "GlobalAveragePool"]))
    if op == "GlobalAveragePool":
        return make.builder.node(op, x)
    return make.builder.node(op, x, kernel_shape=(3, 3), pads=(1, 1, 1, 1), strides=(2, 2))


def _squeeze_excite(make: Maker) -> Value | None:
    x = make.pick(4)
    if x is None:
        return None
    gate = make.builder.node("Sigmoid", make.builder.node("GlobalAveragePool", x))
    return make.builder.node("Mul", x, gate)


def _concatenation(make: Maker) -> Value | None:
    x = make.pick(4)
    others = [v for v in make.values if x is not None and v.type.rank == 4 and _without(v, 1) == _without(x, 1)]
    if x is None or not others:
        return None
    return make.builder.node("Concat", x, make.draw(st.sampled_from(others)), axis=1)


def _without(value: Value, axis: int) -> tuple[Dim, ...]:
    return tuple(d for i, d in enumerate(value.shape) if i != axis)


def _transpose(make: Maker) -> Value | None:
    x = make.pick()
    if x is None or x.type.rank < 2:
        return None
    return make.builder.transpose(x, make.draw(st.permutations(range(x.type.rank))))


def _flatten(make: Maker) -> Value | None:
    x = make.pick()
    if x is None or x.type.rank < 3:
        return None
    axis = make.draw(st.integers(1, x.type.rank - 1))
    shape = (*x.shape[:axis], product(x.shape[axis:]))
    return make.builder.reshape(x, shape)


def _split_channels(make: Maker) -> Value | None:
    x = make.pick(4)
    if x is None or not isinstance(x.shape[1], int) or x.shape[1] % 2:
        return None
    return make.builder.reshape(x, (x.shape[0], 2, x.shape[1] // 2, *x.shape[2:]))


def _matmul(make: Maker) -> Value | None:
    x = make.pick()
    if x is None or x.type.rank < 2 or not isinstance(x.shape[-1], int):
        return None
    return make.builder.node("MatMul", x, make.weights(x.shape[-1], 3))


def _reduction(make: Maker) -> Value | None:
    x = make.pick()
    if x is None or x.type.rank < 2:
        return None
    axis = make.draw(st.integers(0, x.type.rank - 1))
    op = make.draw(st.sampled_from(["ReduceMean", "ReduceMax", "ReduceSum", "Softmax"]))
    if op == "Softmax":
        return make.builder.node(op, x, axis=axis)
    return make.builder.node(op, x, make.builder.integers(axis), keepdims=make.draw(st.sampled_from([0, 1])))


def _slice(make: Maker) -> Value | None:
    x = make.pick()
    axes = [i for i, d in enumerate(x.shape) if isinstance(d, int) and d > 1] if x is not None else []
    if x is None or not axes:
        return None
    axis = make.draw(st.sampled_from(axes))
    return make.builder.slice(x, axis, make.draw(st.integers(0, 1)), int(str(x.shape[axis])))


def _pad(make: Maker) -> Value | None:
    x = make.pick(4)
    if x is None:
        return None
    return make.builder.node("Pad", x, make.builder.integers(0, 0, 1, 0, 0, 0, 0, 2))


STEPS: tuple[Callable[[Maker], Value | None], ...] = (
    _convolution, _convolution, _batch_norm, _unary, _unary, _binary, _binary, _constant, _pool, _squeeze_excite,
    _concatenation, _transpose, _flatten, _split_channels, _matmul, _reduction, _slice, _pad,
)  # fmt: skip


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """One to four outputs, among them every value that nothing reads."""
    builder = Builder(fresh=_counter())
    sides: list[tuple[Dim, Dim]] = [(5, 7), (Var("h"), Var("w"))]
    height, width = draw(st.sampled_from(sides))
    batches: list[Dim] = [2, Var("batch")]
    batch = draw(st.sampled_from(batches))
    x = Value("x", TensorType(DType.FLOAT64, (batch, 2, height, width)))
    make = Maker(draw, builder, np.random.default_rng(draw(st.integers(0, 1000))), [x])
    for _ in range(draw(st.integers(2, 14))):
        made = draw(st.sampled_from(STEPS))(make)
        if made is not None:
            make.values.append(made)
    read = {v for n in builder.nodes for v in n.operands}
    outputs = [v for v in make.values if v not in read][:3]
    outputs += [v for v in (draw(st.sampled_from(make.values)),) if v not in outputs]
    return Graph("main", (x,), tuple(outputs), tuple(builder.nodes), builder.added)


def _counter() -> Callable[[str], str]:
    count = iter(range(10**6))
    return lambda base: f"{base}_{next(count)}"
