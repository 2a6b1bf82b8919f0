"""Activations: elementwise functions of one tensor, some with parameters."""

from __future__ import annotations

import math

from compiler_service.compiler.tensor_expr.broadcast import elementwise
from compiler_service.compiler.tensor_expr.gaussian import normal_distribution
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.refusal import unsupported_attribute
from compiler_service.compiler.tensor_expr.scalar import absolute, exp, exp_minus_one, sigmoid, softplus, tanh
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast, lift, maximum, minimum, select


def relu(x: Tensor) -> Tensor:
    return elementwise("relu", lambda v: maximum(v, 0), x)


def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return elementwise("leaky_relu", lambda v: select(v < 0, v * alpha, v), x)


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """Broadcast is from ``slope`` to ``x`` only."""
    return elementwise("prelu", lambda v, s: select(v < 0, v * s, v), x, slope)


def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return elementwise("thresholded_relu", lambda v: select(v > alpha, v, 0), x)


def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return elementwise("elu", lambda v: select(v < 0, exp_minus_one(v) * alpha, v), x)


def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return elementwise("celu", lambda v: maximum(v, 0) + minimum(exp_minus_one(v / alpha) * alpha, 0), x)


def selu(x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Tensor:
    return elementwise("selu", lambda v: select(v > 0, v, exp_minus_one(v) * alpha) * gamma, x)


def sigmoid_(x: Tensor) -> Tensor:
    return elementwise("sigmoid", sigmoid, x)


def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return elementwise("hard_sigmoid", lambda v: _unit(v * alpha + beta), x)


def hard_swish(x: Tensor) -> Tensor:
    return elementwise("hard_swish", lambda v: v * _unit(v * (1 / 6) + 0.5), x)


def _unit(x: Expr) -> Expr:
    return maximum(minimum(x, 1), 0)


def softplus_(x: Tensor) -> Tensor:
    return elementwise("softplus", softplus, x)


def softsign(x: Tensor) -> Tensor:
    return elementwise("softsign", lambda v: v / (absolute(v) + 1), x)


def mish(x: Tensor) -> Tensor:
    """``x * tanh(softplus(x))`` is ``x * n / (n + 2)`` with ``n = exp(x) * (exp(x) + 2)``, here by the exponential that is at most 1."""

    def body(v: Expr) -> Expr:
        t = exp(-absolute(v))
        small, square = t + t, t * t
        n = select(v > 0, small + 1, square + small)
        return v * (n / (select(v > 0, square + square, 2) + n))

    return elementwise("mish", body, x)


def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return elementwise("swish", lambda v: v / (exp(v * -alpha) + 1), x)


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """Hendrycks and Gimpel, Gaussian Error Linear Units, with the error function or its tanh approximation."""
    match approximate:
        case "none":
            return elementwise("gelu", lambda v: v * normal_distribution(v), x)
        case "tanh":
            scale = math.sqrt(2 / math.pi)
            return elementwise("gelu", lambda v: v * 0.5 * (tanh((v + v * v * v * 0.044715) * scale) + 1), x)
    raise unsupported_attribute("approximate", "none or tanh", approximate)


def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    """Integers move by a ``bias`` with a fraction, and are cut and wrap around then, as in ONNX Runtime and the reference."""

    def moved(v: Expr, low: Expr, high: Expr) -> Expr:
        return select(v < -lambd, low, select(v > lambd, high, lift(0, low.dtype)))

    def body(v: Expr) -> Expr:
        if not v.dtype.is_integer:
            return moved(v, v + bias, v - bias)
        wide = cast(v, DType.FLOAT64)
        if bias == int(bias):
            return moved(wide, v + int(bias), v - int(bias))
        return cast(cast(moved(wide, wide + bias, wide - bias), DType.INT64), v.dtype)

    return elementwise("shrink", body, x)


def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    if low is not None and high is not None:
        return elementwise("clip", lambda v, a, b: minimum(maximum(v, a), b), x, low, high)
    if low is not None:
        return elementwise("clip", maximum, x, low)
    return elementwise("clip", minimum, x, high) if high is not None else elementwise("clip", lambda v: v, x)


OPERATORS = (
    Operator("Relu", relu),
    Operator("LeakyRelu", leaky_relu),
    Operator("PRelu", prelu),
    Operator("ThresholdedRelu", thresholded_relu),
    Operator("Elu", elu),
    Operator("Celu", celu),
    Operator("Selu", selu),
    Operator("Sigmoid", sigmoid_),
    Operator("HardSigmoid", hard_sigmoid),
    Operator("HardSwish", hard_swish),
    Operator("Softplus", softplus_),
    Operator("Softsign", softsign),
    Operator("Mish", mish),
    Operator("Swish", swish),
    Operator("Gelu", gelu),
    Operator("Shrink", shrink),
    Operator("Clip", clip),
)
