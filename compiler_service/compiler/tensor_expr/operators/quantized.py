"""Matrix products and convolutions of 8-bit integers: exact sums in int32, scaled and rounded at the end."""

from __future__ import annotations

from compiler_service.compiler.tensor_expr.axes import normal_axis
from compiler_service.compiler.tensor_expr.broadcast import broadcast_load, broadcast_pairs, widen
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.operators.conversion import saturated
from compiler_service.compiler.tensor_expr.operators.convolution import conv
from compiler_service.compiler.tensor_expr.operators.matmul import matmul
from compiler_service.compiler.tensor_expr.operators.reduction import reduced
from compiler_service.compiler.tensor_expr.refusal import mismatch
from compiler_service.compiler.tensor_expr.scalar import rounded
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast
from shared_ir.expr.dim import dims_text

Ints = tuple[int, ...]


def _along(parameter: Tensor, x: Tensor, axis: int) -> Tensor:
    """A quantisation parameter as a tensor that broadcasts to ``x``: one number, one per index of ``axis``, or of its rank."""
    if parameter.rank == 0 or parameter.shape == (1,):
        return compute((), lambda: parameter[(0,) * parameter.rank], name="parameter")
    if parameter.rank == x.rank:
        return parameter
    if parameter.rank != 1:
        raise mismatch(
            "a quantisation parameter does not fit", "a number or a vector", f"[{dims_text(parameter.shape)}]"
        )
    shape = [parameter.shape[0] if a == axis % x.rank else 1 for a in range(x.rank)]
    return compute(shape, lambda *index: parameter[index[axis % x.rank]], name="parameter")


def _shifted(x: Tensor, zero_point: Tensor | None, axis: int) -> Tensor:
    """``x - zero_point`` as int32."""
    if zero_point is None:
        return compute(x.shape, lambda *i: cast(x[i], DType.INT32), name="shifted")
    zero = _along(zero_point, x, axis)

    def body(*index: Expr) -> Expr:
        return cast(x[index], DType.INT32) - cast(broadcast_load(zero, index, x.shape), DType.INT32)

    return compute(x.shape, body, name="shifted", assumes=broadcast_pairs(x.shape, zero.shape))


def matmul_integer(
    a: Tensor, b: Tensor, a_zero_point: Tensor | None = None, b_zero_point: Tensor | None = None
) -> Tensor:
    """The int32 product of ``a - a_zero_point`` (by row) and ``b - b_zero_point`` (by column)."""
    return matmul(_shifted(a, a_zero_point, -2), _shifted(b, b_zero_point, -1))


def conv_integer(
    x: Tensor,
    w: Tensor,
    x_zero_point: Tensor | None = None,
    w_zero_point: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
    layout: str = "NCHW",
    data_layout: str = "",
) -> Tensor:
    """The int32 convolution of ``x - x_zero_point`` (one number) with ``w - w_zero_point`` (by output channel)."""
    return conv(
        _shifted(x, x_zero_point, 1),
        _shifted(w, w_zero_point, 0),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
        layout=layout,
        data_layout=data_layout,
    )


def sum_bytes(x: Tensor, *, axis: int) -> Tensor:
    """``ingot.SumBytes``: int32 sums of integers along ``axis``, which stays with extent 1."""
    along = (normal_axis(axis, x.rank),)
    return reduced(ReduceOp.SUM, x, along, "sum_bytes", lambda v: cast(v, DType.INT32))


def _requantized(
    total: Tensor, scales: tuple[Tensor, Tensor, Tensor], zero_point: Tensor, axes: tuple[int, int, int]
) -> Tensor:
    """``saturate(round(total * (scale_a * scale_b / scale_y)) + zero_point)``; ``axes`` that vectors of each scale run along."""
    scale_a, scale_b, scale_y = (_along(s, total, axis) for s, axis in zip(scales, axes, strict=True))
    zero = _along(zero_point, total, axes[2])
    shape = total.shape

    def body(*index: Expr) -> Expr:
        a, b, y = (widen(broadcast_load(s, index, shape)) for s in (scale_a, scale_b, scale_y))
        scaled = cast(total[index], a.dtype) * (a * b / y)
        shifted = rounded(scaled) + cast(broadcast_load(zero, index, shape), a.dtype)
        return cast(saturated(shifted, zero.dtype), zero.dtype)

    pairs = broadcast_pairs(shape, *(t.shape for t in (scale_a, scale_b, scale_y, zero)))
    return compute(shape, body, name="requantized", assumes=pairs)


def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
) -> Tensor:
    total = matmul_integer(a, b, a_zero_point, b_zero_point)
    return _requantized(total, (a_scale, b_scale, y_scale), y_zero_point, (-2, -1, -2))


def qlinear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """``b`` is int32, in units of ``x_scale * w_scale``."""
    total = conv(
        _shifted(x, x_zero_point, 1),
        _shifted(w, w_zero_point, 0),
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return _requantized(total, (x_scale, w_scale, y_scale), y_zero_point, (1, 1, 1))


OPERATORS = (
    Operator("MatMulInteger", matmul_integer),
    Operator("ConvInteger", conv_integer),
    Operator("ingot.SumBytes", sum_bytes),
    Operator("QLinearMatMul", qlinear_matmul),
    Operator("QLinearConv", qlinear_conv),
)
