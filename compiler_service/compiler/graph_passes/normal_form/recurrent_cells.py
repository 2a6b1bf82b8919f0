"""One step of LSTM, GRU and RNN as nodes: gates from the input's share and the last state, in the words of the ONNX operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np

from compiler_service.compiler.graph_passes.rewriting.builder import Builder
from shared_ir.arrays import storage_dtype
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import Value

Activation = Callable[[Builder, Value], Value]

_PLAIN = frozenset({"Sigmoid", "Tanh", "Relu", "Softsign", "Softplus"})
_WITH_ALPHA = {"LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "Elu": 1.0}
_WITH_BOTH = {"Affine": (1.0, 0.0), "ScaledTanh": (1.0, 1.0), "HardSigmoid": (0.2, 0.5)}


def activation_functions(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> tuple[Activation, ...]:
    """One function per name; those with parameters take them from the lists in order, or have the default of ONNX.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE for an unknown name.
    """
    alpha, beta = chain(alphas, repeat(None)), chain(betas, repeat(None))
    return tuple(_activation(name, alpha, beta) for name in names)


def _activation(name: str, alphas: Iterator[float | None], betas: Iterator[float | None]) -> Activation:
    known = {n.lower(): n for n in (*_PLAIN, *_WITH_ALPHA, *_WITH_BOTH)}
    op = known.get(name.lower())
    if op is None:
        raise IngotError(
            ErrorCode.UNSUPPORTED_ATTRIBUTE,
            "an activation is unknown",
            field="activations",
            expected=", ".join(sorted(known.values())),
            received=name,
            remedy="Export the model with one of these activations.",
        )
    if op in _PLAIN:
        return lambda builder, x: builder.node(op, x)
    given = next(alphas)
    if op in _WITH_ALPHA:
        alpha = _WITH_ALPHA[op] if given is None else given
        return lambda builder, x: builder.node(op, x, alpha=alpha)
    first, second = _WITH_BOTH[op]
    other = next(betas)
    return _with_both(op, first if given is None else given, second if other is None else other)


def _with_both(op: str, alpha: float, beta: float) -> Activation:
    if op == "HardSigmoid":
        return lambda builder, x: builder.node(op, x, alpha=alpha, beta=beta)
    if op == "Affine":
        return lambda builder, x: _plus(builder, _times(builder, x, alpha), beta)
    return lambda builder, x: _times(builder, builder.node("Tanh", _times(builder, x, beta)), alpha)


def _scalar(builder: Builder, like: Value, number: float) -> Value:
    return builder.constant(np.array(number, storage_dtype(like.dtype)), "number")


def _times(builder: Builder, x: Value, number: float) -> Value:
    return x if number == 1 else builder.node("Mul", x, _scalar(builder, x, number))


def _plus(builder: Builder, x: Value, number: float) -> Value:
    return x if number == 0 else builder.node("Add", x, _scalar(builder, x, number))


@dataclass(frozen=True)
class CellWeights:
    """What one direction holds beside the input's share of the gates.

    Attributes:
        recurrence: R transposed, [hidden, gates * hidden].
        recurrence_bias: the share of the bias that GRU adds inside of the reset gate, [hidden]; elsewhere None.
        peepholes: [3 * hidden], order i, o, f; or None.
    """

    recurrence: Value
    recurrence_bias: Value | None = None
    peepholes: Value | None = None


@dataclass(frozen=True)
class Cell:
    """An operator's options.

    Attributes:
        gates: how many of ``hidden`` rows W and R hold.
        activations: f, g, h of the ONNX operators, as many as it has.
    """

    op: str
    hidden: int
    activations: tuple[Activation, ...]
    clip: float | None = None
    coupled: bool = False
    linear_before_reset: bool = False

    @property
    def gates(self) -> int:
        return {"LSTM": 4, "GRU": 3, "RNN": 1}[self.op]

    def step(self, builder: Builder, share: Value, state: Sequence[Value], weights: CellWeights) -> tuple[Value, ...]:
        """The next state ((h, c) for LSTM, (h,) otherwise). ``share`` is [batch, gates * hidden]: X W^T and biases."""
        steps: Mapping[str, Callable[[Builder, Value, Sequence[Value], CellWeights], tuple[Value, ...]]] = {
            "LSTM": self._lstm,
            "GRU": self._gru,
            "RNN": self._rnn,
        }
        return steps[self.op](builder, share, state, weights)

    def _gate(self, builder: Builder, x: Value, number: int, count: int = 1) -> Value:
        """Columns of ``count`` gates from ``number`` on."""
        if x.shape[-1] == count * self.hidden:
            return x
        return builder.slice(x, x.type.rank - 1, number * self.hidden, (number + count) * self.hidden)

    def _activate(self, builder: Builder, index: int, x: Value) -> Value:
        if self.clip:
            limits = (_scalar(builder, x, -self.clip), _scalar(builder, x, self.clip))
            x = builder.node("Clip", x, *limits)
        return self.activations[index](builder, x)

    def _lstm(self, builder: Builder, share: Value, state: Sequence[Value], weights: CellWeights) -> tuple[Value, ...]:
        h, c = state
        gates = builder.node("Add", builder.node("MatMul", h, weights.recurrence), share)
        i, o, f, g = (self._gate(builder, gates, n) for n in range(4))
        i = self._activate(builder, 0, self._peep(builder, i, c, weights, 0))
        if self.coupled:
            f = builder.node("Sub", _scalar(builder, i, 1.0), i)
        else:
            f = self._activate(builder, 0, self._peep(builder, f, c, weights, 2))
        g = self._activate(builder, 1, g)
        c = builder.node("Add", builder.node("Mul", f, c), builder.node("Mul", i, g))
        o = self._activate(builder, 0, self._peep(builder, o, c, weights, 1))
        return builder.node("Mul", o, self.activations[2](builder, c)), c

    def _peep(self, builder: Builder, gate: Value, c: Value, weights: CellWeights, number: int) -> Value:
        if weights.peepholes is None:
            return gate
        own = builder.slice(weights.peepholes, 0, number * self.hidden, (number + 1) * self.hidden)
        return builder.node("Add", gate, builder.node("Mul", own, c))

    def _gru(self, builder: Builder, share: Value, state: Sequence[Value], weights: CellWeights) -> tuple[Value, ...]:
        (h,) = state
        if self.linear_before_reset:
            past = builder.node("MatMul", h, weights.recurrence)
            zr = builder.node("Add", self._gate(builder, share, 0, 2), self._gate(builder, past, 0, 2))
            inner = self._gate(builder, past, 2)
            if weights.recurrence_bias is not None:
                inner = builder.node("Add", inner, weights.recurrence_bias)
        else:
            columns = [
                builder.slice(weights.recurrence, 1, n * self.hidden, m * self.hidden) for n, m in ((0, 2), (2, 3))
            ]
            past = builder.node("MatMul", h, columns[0])
            zr = builder.node("Add", self._gate(builder, share, 0, 2), past)
        z = self._activate(builder, 0, self._gate(builder, zr, 0))
        r = self._activate(builder, 0, self._gate(builder, zr, 1))
        inner = (
            builder.node("Mul", r, inner)
            if self.linear_before_reset
            else builder.node("MatMul", builder.node("Mul", r, h), columns[1])
        )
        new = self._activate(builder, 1, builder.node("Add", self._gate(builder, share, 2), inner))
        kept = builder.node("Mul", builder.node("Sub", _scalar(builder, z, 1.0), z), new)
        return (builder.node("Add", kept, builder.node("Mul", z, h)),)

    def _rnn(self, builder: Builder, share: Value, state: Sequence[Value], weights: CellWeights) -> tuple[Value, ...]:
        (h,) = state
        return (self._activate(builder, 0, builder.node("Add", builder.node("MatMul", h, weights.recurrence), share)),)
