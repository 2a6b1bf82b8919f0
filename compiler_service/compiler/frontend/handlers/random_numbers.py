"""Random operators, all from ``ingot.Uniform``: a model is a function of its inputs, so every run draws the same numbers.

The numbers of a node depend on its attribute ``seed``, or on its name where it has none, and on the iteration of the loops that it
is in. The standard leaves the generator open; ours is counter-based, so that kernels draw in parallel.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from compiler_service.compiler.frontend.importing.handler import Handler, Importer
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.scope import Frame, GraphDraft
from compiler_service.compiler.frontend.requirements.defining import Nodes
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr
from shared_ir.expr.dim import Dim
from shared_ir.graph.ir import Value

_SECOND = 0x5851F42D4C957F2D
"""Tells the second numbers of a node from the first."""

_WIDE = frozenset({DType.FLOAT32, DType.FLOAT64})


class _Draws:
    """Draws numbers for one node."""

    def __init__(self, nodes: Nodes, counters: tuple[Expr, ...]) -> None:
        self.nodes = nodes
        self._counters = counters
        seed = nodes.source.attributes.get("seed")
        text = f"name {nodes.source.title}" if seed is None else f"seed {float(seed)!r}"
        self._seed = zlib.crc32(text.encode("utf-8", "surrogatepass"))

    def uniform(self, shape: Sequence[Dim], dtype: DType = DType.FLOAT32, salt: int = 0) -> Value:
        """Numbers from 0 to 1, without 1."""
        seed = (self._seed << 32 | self._seed) ^ salt
        return self.nodes.node(
            "ingot.Uniform", dims=tuple(shape), seed=seed, streams=self._counters, dtype=_computed(dtype)
        )

    def normal(self, shape: Sequence[Dim], dtype: DType) -> Value:
        """The standard normal distribution (Box and Muller, 1958)."""
        nodes, kind = self.nodes, _computed(dtype)
        first, second = self.uniform(shape, kind), self.uniform(shape, kind, _SECOND)
        positive = nodes.node("Sub", nodes.scalar(1.0, kind), first)
        radius = nodes.node("Sqrt", nodes.node("Mul", nodes.node("Log", positive), nodes.scalar(-2.0, kind)))
        angle = nodes.node("Mul", second, nodes.scalar(2 * math.pi, kind))
        return nodes.node("Mul", radius, nodes.node("Cos", angle))

    def scaled(self, x: Value, factor: float, offset: float, dtype: DType) -> Value:
        nodes = self.nodes
        x = nodes.node("Add", nodes.node("Mul", x, nodes.scalar(factor, x.dtype)), nodes.scalar(offset, x.dtype))
        return self.cast(x, dtype)

    def cast(self, x: Value, dtype: DType) -> Value:
        return x if x.dtype is dtype else self.nodes.node("Cast", x, to=dtype)


def _computed(dtype: DType) -> DType:
    return dtype if dtype in _WIDE else DType.FLOAT32


Results: TypeAlias = "Sequence[Value | None]"
Expansion: TypeAlias = Callable[[_Draws, Sequence[Value | None]], Results]


def _drawn(expansion: Expansion) -> Handler:
    def handle(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
        if importer.has_unknown_inputs(node, frame):
            importer.bind_unknown(node, frame)
            return
        if frame.counters is None:
            raise IngotError(
                ErrorCode.UNSUPPORTED_OPERATOR,
                f"{node.op} that draws numbers inside of Scan is not supported: every iteration would draw the same",
                remedy="Export the model with Loop in place of Scan, or draw the numbers before it.",
            )
        draws = _Draws(Nodes(node, draft, importer.context), frame.counters)
        for name, value in zip(node.outputs, expansion(draws, importer.operands(node, frame)), strict=False):
            if name and value is not None:
                frame.bindings[name] = value

    return handle


def _like(draws: _Draws, operands: Sequence[Value | None]) -> tuple[Sequence[Dim], DType]:
    """Shape and element type of what is drawn."""
    given = draws.nodes.source.attributes
    if operands:
        x = _required(operands[0])
        return x.shape, given.get("dtype", x.dtype)
    return tuple(int(d) for d in given.get("shape", ())), given.get("dtype", DType.FLOAT32)


def _required(value: Value | None) -> Value:
    if value is None:
        raise IngotError(ErrorCode.INVALID_MODEL, "a required input is absent", remedy="Export the model again.")
    return value


def random_uniform(draws: _Draws, operands: Sequence[Value | None]) -> Results:
    shape, dtype = _like(draws, operands)
    low, high = (float(draws.nodes.source.attributes.get(k, d)) for k, d in (("low", 0.0), ("high", 1.0)))
    return [draws.scaled(draws.uniform(shape, dtype), high - low, low, dtype)]


def random_normal(draws: _Draws, operands: Sequence[Value | None]) -> Results:
    shape, dtype = _like(draws, operands)
    mean, scale = (float(draws.nodes.source.attributes.get(k, d)) for k, d in (("mean", 0.0), ("scale", 1.0)))
    return [draws.scaled(draws.normal(shape, dtype), scale, mean, dtype)]


def bernoulli(draws: _Draws, operands: Sequence[Value | None]) -> Results:
    """1 with the probability that the operand says."""
    x = _required(operands[0])
    _, dtype = _like(draws, operands)
    below = draws.nodes.node("Less", draws.uniform(x.shape, x.dtype), draws.cast(x, _computed(x.dtype)))
    return [draws.nodes.node("Cast", below, to=dtype)]


def multinomial(draws: _Draws, operands: Sequence[Value | None]) -> Results:
    """Classes of unnormalised log probabilities ``[batch, classes]``: how many of their running sums lie below a number."""
    nodes, x = draws.nodes, draws.cast(_required(operands[0]), DType.FLOAT32)
    given = nodes.source.attributes
    count, dtype = int(given.get("sample_size", 1)), given.get("dtype", DType.INT32)
    sums = nodes.node("CumSum", nodes.node("Softmax", x, axis=1), nodes.scalar(1))
    number = nodes.node("Unsqueeze", draws.uniform((x.shape[0], count)), nodes.integers(2))
    below = nodes.node("LessOrEqual", nodes.node("Unsqueeze", sums, nodes.integers(1)), number)
    found = nodes.node("ReduceSum", nodes.node("Cast", below, to=DType.INT64), nodes.integers(2), keepdims=0)
    last = nodes.node("Sub", nodes.dims([x.shape[1]]), nodes.integers(1))
    return [draws.cast(nodes.node("Min", found, last), dtype)]


def dropout(draws: _Draws, operands: Sequence[Value | None]) -> Results:
    """Every element is 0 with the probability ``ratio`` where the run trains, and the others grow by ``1 / (1 - ratio)``."""
    nodes, x, training = draws.nodes, _required(operands[0]), _required(operands[2])
    kind = _computed(x.dtype)
    ratio = nodes.scalar(0.5, kind) if operands[1] is None else draws.cast(operands[1], kind)
    share = nodes.node("Where", training, ratio, nodes.scalar(0.0, kind))
    drawn = nodes.node("Less", draws.uniform(x.shape, kind), share)
    grown = nodes.node("Div", draws.cast(x, kind), nodes.node("Sub", nodes.scalar(1.0, kind), share))
    kept = nodes.node("Where", drawn, nodes.scalar(0.0, kind), grown)
    return [draws.cast(kept, x.dtype), nodes.node("Not", drawn)]


def _dropout(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
    """The plain operator, unless the run may train."""
    training = frame.lookup(node.input(2))
    if not isinstance(training, Value) or importer.context.known.scalar(training) is False:
        importer.operator(node, frame, draft)
    else:
        _drawn(dropout)(node, frame, draft, importer)


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "RandomUniform": _drawn(random_uniform),
        "RandomUniformLike": _drawn(random_uniform),
        "RandomNormal": _drawn(random_normal),
        "RandomNormalLike": _drawn(random_normal),
        "Bernoulli": _drawn(bernoulli),
        "Multinomial": _drawn(multinomial),
        "Dropout": _dropout,
    }
)
