"""One step of an optimiser (domain ai.onnx.preview.training): new weights and new state from gradients.

Inputs are the learning rate ``r``, the number of steps so far ``t``, then all weights, all gradients and all states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler_service.compiler.tensor_expr.broadcast import elementwise
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.refusal import mismatch, unsupported_attribute
from compiler_service.compiler.tensor_expr.scalar import power, sqrt
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.expr import Expr, cast, lift, select


def _stepped(
    name: str, r: Tensor, t: Tensor, tensors: Sequence[Tensor], states: int, rules: Sequence[Callable[..., Expr]]
) -> tuple[Tensor, ...]:
    """``rules[k](r, t, x, g, *state)`` of every weight, for k = 0 (the weights) to ``states``."""
    kinds = states + 2
    if not tensors or len(tensors) % kinds:
        raise mismatch(f"{name} has a wrong number of inputs", f"2 and a multiple of {kinds}", str(2 + len(tensors)))
    count = len(tensors) // kinds

    def updated(rule: Callable[..., Expr], own: Sequence[Tensor]) -> Tensor:
        def body(x: Expr, rate: Expr, step: Expr, *rest: Expr) -> Expr:
            return rule(cast(rate, x.dtype), cast(step, x.dtype), x, *rest)

        return elementwise(name, body, own[0], r, t, *own[1:])

    groups = [tensors[i::count] for i in range(count)]
    return tuple(updated(rule, own) for rule in rules for own in groups)


def adagrad(
    r: Tensor,
    t: Tensor,
    *tensors: Tensor,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Tensor, ...]:
    """Duchi et al., Adaptive Subgradient Methods (2011)."""

    def squares(rate: Expr, step: Expr, x: Expr, g: Expr, h: Expr) -> Expr:
        gradient = x * norm_coefficient + g
        return h + gradient * gradient

    def weights(rate: Expr, step: Expr, x: Expr, g: Expr, h: Expr) -> Expr:
        gradient = x * norm_coefficient + g
        root = sqrt(squares(rate, step, x, g, h)) + epsilon
        return x - rate / (step * decay_factor + 1) * gradient / root

    return _stepped("adagrad", r, t, tensors, 1, (weights, squares))


def adam(
    r: Tensor,
    t: Tensor,
    *tensors: Tensor,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Tensor, ...]:
    """Kingma and Ba, Adam (2015); without bias correction in step 0."""

    def momentum_(rate: Expr, step: Expr, x: Expr, g: Expr, v: Expr, h: Expr) -> Expr:
        return v * alpha + (x * norm_coefficient + g) * (1 - alpha)

    def squares(rate: Expr, step: Expr, x: Expr, g: Expr, v: Expr, h: Expr) -> Expr:
        gradient = x * norm_coefficient + g
        return h * beta + gradient * gradient * (1 - beta)

    def weights(rate: Expr, step: Expr, x: Expr, g: Expr, v: Expr, h: Expr) -> Expr:
        root = sqrt(squares(rate, step, x, g, v, h)) + epsilon
        first, second = (power(lift(k, x.dtype), step) for k in (alpha, beta))
        corrected = select(step > 0, rate * sqrt(1 - second) / (1 - first), rate)
        return (x - corrected * (momentum_(rate, step, x, g, v, h) / root)) * (1 - norm_coefficient_post)

    return _stepped("adam", r, t, tensors, 2, (weights, momentum_, squares))


def momentum(
    r: Tensor, t: Tensor, *tensors: Tensor, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> tuple[Tensor, ...]:
    """Gradient descent with momentum, Nesterov's by ``mode``."""
    if mode not in ("standard", "nesterov"):
        raise unsupported_attribute("mode", "standard or nesterov", mode)

    def velocity(rate: Expr, step: Expr, x: Expr, g: Expr, v: Expr) -> Expr:
        gradient = x * norm_coefficient + g
        return v * alpha + select(step > 0, gradient * beta, gradient)

    def weights(rate: Expr, step: Expr, x: Expr, g: Expr, v: Expr) -> Expr:
        new = velocity(rate, step, x, g, v)
        if mode == "standard":
            return x - rate * new
        return x - rate * (x * norm_coefficient + g + new * alpha)

    return _stepped("momentum", r, t, tensors, 1, (weights, velocity))


_DOMAIN = "ai.onnx.preview.training"

OPERATORS = (
    Operator(f"{_DOMAIN}.Adagrad", adagrad),
    Operator(f"{_DOMAIN}.Adam", adam),
    Operator(f"{_DOMAIN}.Momentum", momentum),
)
