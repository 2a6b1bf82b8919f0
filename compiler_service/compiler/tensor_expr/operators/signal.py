"""Signals: Fourier transforms as products with roots of unity, frames, mel filters."""

from __future__ import annotations

import math

from compiler_service.compiler.tensor_expr.broadcast import converted, must_equal, widen
from compiler_service.compiler.tensor_expr.extents import fitting_extent, inhabited
from compiler_service.compiler.tensor_expr.meaning.known import known_dims
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.operators.chosen_axes import ChosenAxes
from compiler_service.compiler.tensor_expr.refusal import mismatch
from compiler_service.compiler.tensor_expr.scalar import exp, floored, log
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Expr, Unary, UnaryOp, cast, equal, lift, logical_and, logical_or, maximum, minimum, select
from shared_ir.expr.dim import Dim, as_dim

_FLOAT64 = DType.FLOAT64


def fourier_matrix(
    x: Tensor, axis: Tensor, length: Tensor | None = None, *, inverse: int = 0, onesided: int = 0
) -> Tensor:
    """The real matrix ``[n, parts of x, k, parts of y]`` of a discrete Fourier transform of ``x`` along ``axis``.

    ``n`` runs over the elements of ``x`` that take part: those beyond ``length`` do not, missing ones are zero. Angles are
    reduced in integers and their functions taken in float64.
    """
    own, parts = ChosenAxes.of(axis, "axis", x.rank).pick(x.shape), x.shape[-1]
    if isinstance(parts, int) and parts not in (1, 2):
        raise mismatch("DFT takes real or complex numbers", "a last axis of 1 or 2", str(parts))
    is_real_result = bool(inverse and onesided)
    if length is not None:
        (size,) = known_dims(length, "dft_length")
    else:
        size = as_dim((lift(own) - 1) * 2) if is_real_result else own
    half = as_dim(lift(size) // 2 + 1)
    taken = as_dim(minimum(own, half if is_real_result else size))
    bins = half if onesided and not inverse else size

    def body(n: Expr, part: Expr, k: Expr, component: Expr) -> Expr:
        turn = cast(n * k % lift(size), _FLOAT64) / cast(lift(size), _FLOAT64)
        angle = turn * (2 * math.pi)
        cosine, sine = Unary(UnaryOp.COS, angle), Unary(UnaryOp.SIN, angle)
        outward, inward = (sine, -sine) if not inverse else (-sine, sine)
        value = select(equal(part, component), cosine, select(equal(component, 0), outward, inward))
        if inverse:
            value = value / cast(lift(size), _FLOAT64)
        if is_real_result:  # the other half of the spectrum is conjugate
            alone = logical_or(equal(n, 0), equal(n * 2, lift(size)))
            value = select(alone, value, value * 2)
        return cast(value, x.dtype)

    shape = (taken, parts, bins, 1 if is_real_result else 2)
    assumes = [] if isinstance(parts, int) else [(fitting_extent(parts, 2), 2)]  # 1 or 2
    points = as_dim(minimum(size, 1)) if onesided else inhabited(own, bins)[0]
    something = [] if length is not None else must_equal((points, 1))
    return compute(shape, body, name="fourier_matrix", assumes=[*assumes, *something])


def fourier(x: Tensor, matrix: Tensor, axis: Tensor) -> Tensor:
    """``y[.., k, .., q] = sum over n, p of x[.., n, .., p] * matrix[n, p, k, q]`` with ``n`` and ``k`` at ``axis``."""
    along = ChosenAxes.of(axis, "axis", x.rank)

    def body(*index: Expr) -> Expr:
        *own, component, n, part = index
        at = [select(along.has(a), n, i) for a, i in enumerate(own)]
        return widen(x[(*at, part)]) * widen(matrix[(n, part, along.pick_index(own), component)])

    bins = lift(matrix.shape[2])
    shape = (*(as_dim(select(along.has(a), bins, lift(d))) for a, d in enumerate(x.shape[:-1])), matrix.shape[3])
    total = reduce(ReduceOp.SUM, shape, matrix.shape[:2], body, name="fourier", partial=True)
    return converted(total, x.dtype)


def frames(signal: Tensor, step: Tensor, window: Tensor | None = None, length: Tensor | None = None) -> Tensor:
    """``y[b, f, n, p] = signal[b, f * step + n, p] * window[n]``; frames that would reach beyond the signal are left out.

    A signal ``[b, length]`` is one of real numbers, as PyTorch writes it.
    """
    if signal.rank not in (2, 3):
        raise mismatch("STFT takes signals [batch, length, parts]", "3 axes, or 2 for real numbers", str(signal.rank))
    (stride,) = known_dims(step, "frame_step")
    size: Dim
    if length is not None:
        (size,) = known_dims(length, "frame_length")
    else:
        size = signal.shape[1] if window is None else window.shape[0]
    count = as_dim((lift(signal.shape[1]) - lift(size)) // lift(stride) + 1)
    pairs = [] if window is None else must_equal((window.shape[0], size))

    def body(b: Expr, f: Expr, n: Expr, part: Expr) -> Expr:
        at = (b, f * lift(stride) + n, part)
        element = signal[at[: signal.rank]]
        return element if window is None else cast(widen(element) * widen(window[n]), signal.dtype)

    shape = (signal.shape[0], count, size, signal.shape[2] if signal.rank == 3 else 1)
    return compute(shape, body, name="frames", assumes=pairs)


def mel_weight_matrix(
    num_mel_bins: Tensor,
    dft_length: Tensor,
    sample_rate: Tensor,
    lower_edge_hertz: Tensor,
    upper_edge_hertz: Tensor,
    *,
    output_datatype: int = 1,
) -> Tensor:
    """Triangular filters, equally spaced on the mel scale, over the bins of a one-sided spectrum."""
    (mels,) = known_dims(num_mel_bins, "num_mel_bins")
    (size,) = known_dims(dft_length, "dft_length")
    kinds = {1: DType.FLOAT32, 10: DType.FLOAT16, 11: DType.FLOAT64, 16: DType.BFLOAT16}
    if output_datatype not in kinds:
        raise mismatch("MelWeightMatrix gives floats", ", ".join(map(str, kinds)), str(output_datatype))

    def mel(hertz: Tensor) -> Expr:
        return log(cast(hertz[(0,) * hertz.rank], _FLOAT64) / 700.0 + 1.0) * (2595 / math.log(10))

    def edge(number: Expr) -> Expr:
        """The spectrum bin of a corner of the filters."""
        low, high = mel(lower_edge_hertz), mel(upper_edge_hertz)
        step = (high - low) / cast(lift(mels) + 2, _FLOAT64)
        hertz = (exp((cast(number, _FLOAT64) * step + low) * (math.log(10) / 2595)) - 1.0) * 700.0
        rate = cast(sample_rate[(0,) * sample_rate.rank], _FLOAT64)
        return cast(floored(hertz * cast(lift(size) + 1, _FLOAT64) / rate), DType.INT64)

    def body(j: Expr, i: Expr) -> Expr:
        left, centre, right = edge(i), edge(i + 1), edge(i + 2)
        rising = cast(j - left, _FLOAT64) / cast(maximum(centre - left, 1), _FLOAT64)
        falling = cast(right - j, _FLOAT64) / cast(maximum(right - centre, 1), _FLOAT64)
        up = logical_and(j >= left, j <= centre)
        down = logical_and(j >= centre, j < right)
        at_peak = logical_and(equal(left, centre), equal(j, centre))
        value = select(down, falling, select(up, select(at_peak, 1.0, rising), lift(0.0, _FLOAT64)))
        return cast(value, kinds[output_datatype])

    return compute((as_dim(lift(size) // 2 + 1), mels), body, name="mel_weight_matrix")


OPERATORS = (
    Operator("ingot.FourierMatrix", fourier_matrix),
    Operator("ingot.Fourier", fourier),
    Operator("ingot.Frames", frames),
    Operator("MelWeightMatrix", mel_weight_matrix),
)
