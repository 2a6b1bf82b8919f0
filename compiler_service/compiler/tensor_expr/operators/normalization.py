"""Normalisations and softmax: a few small reductions, then one elementwise pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler_service.compiler.tensor_expr.axes import normal_axes, normal_axis, replaced
from compiler_service.compiler.tensor_expr.broadcast import (
    converted,
    elementwise,
    must_equal,
    vector_along,
    widen,
)
from compiler_service.compiler.tensor_expr.layout import Layout
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.operators.moments import moments
from compiler_service.compiler.tensor_expr.operators.pooling import raised, root
from compiler_service.compiler.tensor_expr.operators.reduction import mean_of, position_of, reduced
from compiler_service.compiler.tensor_expr.operators.reshaping import reshaped
from compiler_service.compiler.tensor_expr.refusal import unsupported_attribute
from compiler_service.compiler.tensor_expr.scalar import exp, log, power, reciprocal, rsqrt, sqrt
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast, equal, lift, logical_and, select
from shared_ir.expr.dim import Dim


def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """``exp(x - max) * (1 / sum)``; a row with a NaN or +inf in it is NaN, whatever its largest number is."""
    powers, total = _powers(x, axis)
    inverse = elementwise("inverse", reciprocal, total)
    return converted(elementwise("softmax", lambda p, i: p * i, powers, inverse), x.dtype)


def safe_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """Softmax in which 0 takes the place of NaN: a row of -inf only, of which no key may be attended to, has no weight.

    An element is NaN where the sum of its row is, so that asking the sum is enough: the largest element adds 1 to it, and none
    adds more.
    """
    powers, total = _powers(x, axis)
    inverse = elementwise("inverse", reciprocal, total)
    weights = elementwise("safe", lambda p, i, t: select(equal(t, t), p * i, 0.0), powers, inverse, total)
    return converted(weights, x.dtype)


def _powers(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """``exp(x - max)`` along ``axis``, and its sum."""
    axis = normal_axis(axis, x.rank)
    largest = reduced(ReduceOp.MAX_NUMBER, x, (axis,), "max")
    powers = elementwise("exp", lambda v, m: exp(v - m), _wide(x), largest)
    return powers, reduced(ReduceOp.SUM, powers, (axis,), "sum")


def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """``x - max - log(sum of exp(x - max))``; NaN spreads over its row by way of the sum."""
    axis = normal_axis(axis, x.rank)
    largest = reduced(ReduceOp.MAX_NUMBER, x, (axis,), "max")
    shifted = elementwise("sub", lambda v, m: v - m, _wide(x), largest)
    total = reduced(ReduceOp.SUM, shifted, (axis,), "sum", exp)
    logarithm = elementwise("logarithm", log, total)
    return converted(elementwise("log_softmax", lambda v, s: v - s, shifted, logarithm), x.dtype)


def _wide(x: Tensor) -> Tensor:
    """``x`` in the width that arithmetic on it is done in."""
    return converted(x, x.dtype.arithmetic)


def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """1 at the first largest element along ``axis``, 0 elsewhere."""
    axis = normal_axis(axis, x.rank)
    first = position_of(ReduceOp.MAX)(x, axis=axis)

    def body(*index: Expr) -> Expr:
        is_first = equal(first[replaced(index, axis, lift(0))], index[axis])
        return select(is_first, lift(1, x.dtype), lift(0, x.dtype))

    return compute(x.shape, body, name="hardmax")


def batch_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    layout: str = "NCHW",
) -> tuple[Tensor, ...]:
    """``(x - mean[c]) * factor[c] + bias[c]`` with ``factor = scale / sqrt(variance + epsilon)``.

    In training the mean and variance are those of the batch; the running ones are further outputs.
    """
    channel = Layout.of(layout, x).channel_axis(x.rank)
    scale, bias, mean, variance = (vector_along(t, x.shape[channel]) for t in (scale, bias, mean, variance))
    if not training_mode:
        return (_batch_normalized(x, scale, bias, mean, variance, epsilon, channel),)
    axes = [axis for axis in range(x.rank) if axis != channel]
    batch_mean = mean_of(reduced(ReduceOp.SUM, x, axes, "sum", keep=False), x, axes)

    def deviation(*index: Expr) -> Expr:
        centred = widen(x[index]) - batch_mean[index[channel]]
        return centred * centred

    squares = compute(x.shape, deviation, name="square")
    batch_variance = mean_of(reduced(ReduceOp.SUM, squares, axes, "sum", keep=False), x, axes, "variance")

    def running(old: Tensor, new: Tensor) -> Tensor:
        mixed = elementwise("running", lambda a, b: a * momentum + cast(b, a.dtype) * (1 - momentum), old, new)
        return replace(converted(mixed, old.dtype), assumes=tuple(must_equal((old.shape[0], new.shape[0]))))

    y = _batch_normalized(x, scale, bias, batch_mean, batch_variance, epsilon, channel)
    return y, running(mean, batch_mean), running(variance, batch_variance)


def _batch_normalized(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, epsilon: float, channel: int
) -> Tensor:
    wide = _wide(variance)

    def scaling(c: Expr) -> Expr:
        return cast(widen(scale[c]), wide.dtype) * rsqrt(wide[c] + epsilon)

    factor = compute((x.shape[channel],), scaling, name="factor")

    def body(*index: Expr) -> Expr:
        c = index[channel]
        centred = widen(x[index]) - cast(mean[c], x.dtype.arithmetic)
        scaled = centred * cast(factor[c], centred.dtype) + cast(bias[c], centred.dtype)
        return cast(scaled, x.dtype)

    pairs = must_equal(*((t.shape[0], x.shape[channel]) for t in (scale, bias, mean, variance)))
    return compute(x.shape, body, name="batch_normalization", assumes=pairs)


def _standardised(x: Tensor, axes: Sequence[int], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """``(x - mean) / sqrt(variance + epsilon)`` over ``axes``, the mean, and the reciprocal of the root; all wide."""
    found = moments(_wide(x), axes)
    deviation = elementwise("inverse_deviation", lambda v: rsqrt(v + epsilon), found.variance)
    return elementwise("standardised", lambda v, d: v * d, found.centred, deviation), found.mean, deviation


def layer_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: DType = DType.FLOAT32,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised over all axes from ``axis`` on; also the mean and the reciprocal of the standard deviation."""
    axes = range(normal_axis(axis, x.rank), x.rank)
    standard, mean, deviation = _standardised(_stashed(x, stash_type), axes, epsilon)
    scaled = elementwise("scaled", lambda v, s: v * cast(s, v.dtype), standard, scale, shape=x.shape)
    if bias is not None:
        scaled = elementwise("layer_normalization", lambda v, b: v + cast(b, v.dtype), scaled, bias, shape=x.shape)
    return converted(scaled, x.dtype), converted(mean, stash_type), converted(deviation, stash_type)


def _stashed(x: Tensor, stash_type: DType) -> Tensor:
    """``x`` in the type that its moments are computed in: never a narrower one, as in ONNX Runtime."""
    return x if x.dtype is DType.FLOAT64 else converted(x, stash_type)


def rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: DType = DType.FLOAT32
) -> Tensor:
    """``x / sqrt(mean(x * x) + epsilon) * scale`` over all axes from ``axis`` on."""
    axes = range(normal_axis(axis, x.rank), x.rank)
    stashed = _stashed(x, stash_type)
    square = mean_of(reduced(ReduceOp.SUM, stashed, axes, "sum_square", lambda v: v * v), x, axes, "mean_square")
    inverse = elementwise("inverse_root", lambda v: rsqrt(v + epsilon), square)
    normal = elementwise("normal", lambda v, i: v * i, stashed, inverse)
    scaled = elementwise("rms_normalization", lambda v, s: v * cast(s, v.dtype), normal, scale, shape=x.shape)
    return converted(scaled, x.dtype)


def instance_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, layout: str = "NCHW"
) -> Tensor:
    """Every channel of every image by its own mean and deviation."""
    images = Layout.of(layout, x)
    standard, _, _ = _standardised(x, images.parts(range(x.rank))[2], epsilon)
    return _per_channel(standard, scale, bias, x, images.channel_axis(x.rank))


def _per_channel(standard: Tensor, scale: Tensor, bias: Tensor, x: Tensor, channel: int) -> Tensor:
    def body(*index: Expr) -> Expr:
        v, c = standard[index], index[channel]
        return cast(v * cast(scale[c], v.dtype) + cast(bias[c], v.dtype), x.dtype)

    return compute(x.shape, body, name="normalization")


def group_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: DType = DType.FLOAT32,
) -> Tensor:
    """Every group of channels of every image by its own mean and deviation; scale and bias are per channel."""
    n, channels, *spatial = x.shape
    if num_groups < 1 or (isinstance(channels, int) and channels % num_groups):
        raise unsupported_attribute("num_groups", f"a divisor of {channels}", str(num_groups))
    grouped = reshaped(_stashed(x, stash_type), (n, num_groups, channels // num_groups, *spatial))
    standard, _, _ = _standardised(grouped, range(2, grouped.rank), epsilon)
    scale, bias = (_for_all(t, channels) for t in (scale, bias))
    return _per_channel(reshaped(standard, x.shape), scale, bias, x, channel=1)


def _for_all(parameter: Tensor, channels: Dim) -> Tensor:
    """One number for every channel is taken too, as ONNX Runtime and the reference do."""
    return compute((channels,), lambda _: parameter[0], name="along") if parameter.shape == (1,) else parameter


def mean_variance_normalization(x: Tensor, *, axes: tuple[int, ...] = (0, 2, 3)) -> Tensor:
    """``(x - mean) / (deviation + 1e-9)``"""
    found = moments(_wide(x), normal_axes(axes, x.rank))
    scaled = elementwise("normalised", lambda v, s: v / (sqrt(s) + 1e-9), found.centred, found.variance)
    return converted(scaled, x.dtype)


def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """``x`` divided by its p-norm along ``axis``; 0 where the norm is 0."""
    total = reduced(ReduceOp.SUM, x, (normal_axis(axis, x.rank),), "norm", lambda v: raised(v, p))
    norm = elementwise("norm", lambda v: root(v, p), total)
    return converted(elementwise("lp", lambda v, s: select(equal(s, 0), 0, v / s), _wide(x), norm), x.dtype)


def local_response_normalization(
    x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, layout: str = "NCHW"
) -> Tensor:
    """``x / (bias + alpha / size * sum of squares over size neighbouring channels) ** beta``"""
    channel = Layout.of(layout, x).channel_axis(x.rank)

    def square(*index: Expr) -> Expr:
        *own, k = index
        c = own[channel] + k - (size - 1) // 2
        inside = logical_and(c >= 0, c < lift(x.shape[channel]))
        v = select(inside, widen(x[replaced(own, channel, c)]), 0)
        return v * v

    def scaled(v: Expr, s: Expr) -> Expr:
        return v * reciprocal(power(s * (alpha / size) + bias, lift(beta, v.dtype)))

    squares = reduce(ReduceOp.SUM, x.shape, [size], square, name="square_sum", reduced=["k"])
    return converted(elementwise("lrn", scaled, _wide(x), squares), x.dtype)


def dropout(
    x: Tensor, ratio: Tensor | None = None, training_mode: Tensor | None = None, *, seed: int | None = None
) -> tuple[Tensor, Tensor]:
    """At inference everything passes; the mask is true everywhere.

    A ``ratio`` known to be 0 makes training the same thing; ``seed`` does not matter.
    """
    if training_mode is not None and not (_is_known(training_mode, False) or _is_known(ratio, 0)):
        raise unsupported_attribute("training_mode", "false, known at compile time", "true or computed")
    kept = compute(x.shape, lambda *index: x[index], name="dropout")
    return kept, compute(x.shape, lambda *_: lift(True, DType.BOOL), name="mask")


def _is_known(x: Tensor | None, value: float) -> bool:
    return x is not None and x.value is not None and x.value.size == 1 and x.value.reshape(-1)[0] == value


OPERATORS = (
    Operator("Softmax", softmax),
    Operator("ingot.SafeSoftmax", safe_softmax),
    Operator("LogSoftmax", log_softmax),
    Operator("Hardmax", hardmax),
    Operator("BatchNormalization", batch_normalization),
    Operator("LayerNormalization", layer_normalization),
    Operator("RMSNormalization", rms_normalization),
    Operator("InstanceNormalization", instance_normalization),
    Operator("GroupNormalization", group_normalization),
    Operator("MeanVarianceNormalization", mean_variance_normalization),
    Operator("LpNormalization", lp_normalization),
    Operator("LRN", local_response_normalization),
    Operator("Dropout", dropout),
)
