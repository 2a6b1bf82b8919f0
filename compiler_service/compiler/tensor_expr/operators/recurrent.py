"""Recurrent operators. They have a type here and no expression: a graph pass makes matrix products and a loop of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler_service.compiler.tensor_expr.broadcast import Pairs, must_equal
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.refusal import mismatch, unsupported_attribute
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from shared_ir.expr.dim import Dim, dims_text

_FUNCTIONS = {1: 1, 3: 2, 4: 3}
"""Number of gates -> number of activations."""
_DEFAULT = ("Tanh", "Tanh")
"""The standard's default of RNN, which has a name for both directions."""


def _check(r: Tensor, gates: int, directions: int, activations: tuple[str, ...], hidden_size: int | None) -> None:
    if activations not in ((), _DEFAULT) and len(activations) != _FUNCTIONS[gates] * directions:
        count = f"{_FUNCTIONS[gates]} for each direction"
        raise unsupported_attribute("activations", count, ", ".join(activations))
    if hidden_size is not None and hidden_size != r.shape[2]:
        raise unsupported_attribute("hidden_size", f"{r.shape[2]}, as R has it", str(hidden_size))


def _types(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    lengths: Tensor | None,
    states: Sequence[Tensor | None],
    gates: int,
    layout: int,
    direction: str,
    activations: tuple[str, ...],
    hidden_size: int | None,
) -> tuple[Tensor, Tensor]:
    """Y and Y_h for X, W, R, B, the lengths of sequences and the initial states."""
    if x.rank != 3 or r.rank != 3:
        raise mismatch("X and R must have 3 axes", "3 axes", f"{x.rank} and {r.rank}")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise unsupported_attribute("direction", "forward, reverse or bidirectional", direction)
    directions, hidden = 2 if direction == "bidirectional" else 1, r.shape[2]
    if r.shape[0] != directions or not isinstance(hidden, int) or r.shape[1] != gates * hidden:
        raise mismatch(
            "R does not fit the direction and the gates",
            f"[{directions}, {gates} * hidden, hidden]",
            f"[{', '.join(map(str, r.shape))}]",
        )
    _check(r, gates, directions, activations, hidden_size)
    steps, batch = (x.shape[1], x.shape[0]) if layout else (x.shape[0], x.shape[1])
    y = (batch, steps, directions, hidden) if layout else (steps, directions, batch, hidden)
    y_h = (batch, directions, hidden) if layout else (directions, batch, hidden)
    operands = [
        (w, (directions, gates * hidden, x.shape[2])),
        (b, (directions, 2 * gates * hidden)),
        (lengths, (batch,)),
    ]
    operands += [(state, y_h) for state in states]
    pairs = [pair for t, shape in operands if t is not None for pair in _fitting(t, shape)]
    return replace(placeholder("y", y, x.dtype), assumes=tuple(pairs)), placeholder("y_h", y_h, x.dtype)


def _fitting(operand: Tensor, shape: tuple[Dim, ...]) -> Pairs:
    if operand.rank != len(shape):
        expected, received = (f"[{dims_text(dims)}]" for dims in (shape, operand.shape))
        raise mismatch("an operand of a recurrent operator does not fit the others", expected, received)
    return must_equal(*zip(operand.shape, shape, strict=True))


def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    activation_alpha: tuple[float, ...] = (),
    activation_beta: tuple[float, ...] = (),
    activations: tuple[str, ...] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    y, y_h = _types(x, w, r, b, sequence_lens, (initial_h, initial_c), 4, layout, direction, activations, hidden_size)
    return y, y_h, placeholder("y_c", y_h.shape, x.dtype)


def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: tuple[float, ...] = (),
    activation_beta: tuple[float, ...] = (),
    activations: tuple[str, ...] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Tensor, Tensor]:
    return _types(x, w, r, b, sequence_lens, (initial_h,), 3, layout, direction, activations, hidden_size)


def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: tuple[float, ...] = (),
    activation_beta: tuple[float, ...] = (),
    activations: tuple[str, ...] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Tensor, Tensor]:
    return _types(x, w, r, b, sequence_lens, (initial_h,), 1, layout, direction, activations, hidden_size)


OPERATORS = (Operator("LSTM", lstm), Operator("GRU", gru), Operator("RNN", rnn))
