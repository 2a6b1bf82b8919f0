"""Default schedules compute what the expression says: any size, every target, before and after the loop passes."""

from __future__ import annotations

import pytest

from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.operators.convolution import conv_transpose
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Expr, Unary, UnaryOp, cast, lift, logical_and, maximum, select
from shared_ir.expr.dim import Dim, symbol
from tests.compiler_service.compiler.schedule.kernels import ONE_QUICK_TARGET, TARGETS, check

F32 = DType.FLOAT32


def matmul(m: Dim, n: Dim, k: Dim) -> Tensor:
    a, b, bias = placeholder("a", (m, k), F32), placeholder("b", (k, n), F32), placeholder("bias", (n,), F32)
    product = reduce(
        ReduceOp.SUM, (m, n), (k,), lambda i, j, c: a[i, c] * b[c, j], name="matmul", axes=("m", "n"), reduced=("k",)
    )
    return compute((m, n), lambda i, j: maximum(product[i, j] + bias[j], 0.0), name="relu", axes=("m", "n"))


def transposed_matmul(m: Dim, n: Dim, k: int) -> Tensor:
    a, b = placeholder("a", (2, m, k), F32), placeholder("b", (2, n, k), F32)
    return reduce(
        ReduceOp.SUM,
        (2, m, n),
        (k,),
        lambda h, i, j, c: a[h, i, c] * b[h, j, c],
        name="matmul",
        axes=("h", "m", "n"),
        reduced=("k",),
    )


def convolution(n: Dim, h: Dim, w: Dim, c: int, oc: int, kernel: int, stride: int, pad: int, groups: int = 1) -> Tensor:
    x = placeholder("x", (n, h, w, c), F32)
    weight = placeholder("w", (oc, c // groups, kernel, kernel), F32)
    residual_shape = tuple((lift(d) + (2 * pad - kernel)) // stride + 1 for d in (h, w))
    residual = placeholder("r", (n, *(d if not hasattr(d, "value") else d.value for d in residual_shape), oc), F32)
    source = x
    if pad:

        def padded(b: Expr, i: Expr, j: Expr, ch: Expr) -> Expr:
            inside = logical_and(logical_and(i >= pad, i < lift(h) + pad), logical_and(j >= pad, j < lift(w) + pad))
            return select(inside, x[b, i - pad, j - pad, ch], lift(0.0, F32))

        source = compute((n, lift(h) + 2 * pad, lift(w) + 2 * pad, c), padded, name="pad", axes=("n", "ih", "iw", "c"))
    per_group = oc // groups
    conv = reduce(
        ReduceOp.SUM,
        residual.shape,
        (kernel, kernel, c // groups),
        lambda b, i, j, o, kh, kw, ic: (
            source[b, i * stride + kh, j * stride + kw, o // per_group * (c // groups) + ic] * weight[o, ic, kh, kw]
        ),
        name="conv",
        axes=("n", "oh", "ow", "oc"),
        reduced=("kh", "kw", "ic"),
    )
    return compute(
        residual.shape, lambda *i: maximum(conv[i] + residual[i], 0.0), name="relu", axes=("n", "oh", "ow", "oc")
    )


def transposed_convolution(h: Dim, w: Dim, c: int, oc: int, kernel: int, stride: int, pad: int) -> Tensor:
    x, weight = placeholder("x", (1, h, w, c), F32), placeholder("w", (c, oc, kernel, kernel), F32)
    total = conv_transpose(x, weight, strides=(stride,) * 2, pads=(pad,) * 4, layout="NHWC")
    return compute(total.shape, lambda *i: maximum(total[i], 0.0), name="relu", axes=("n", "oh", "ow", "oc"))


def softmax(rows: Dim, n: Dim) -> Tensor:
    x = placeholder("x", (rows, n), F32)
    top = reduce(ReduceOp.MAX, (rows,), (n,), lambda i, k: x[i, k], name="max")
    e = compute((rows, n), lambda i, j: Unary(UnaryOp.EXP, x[i, j] - top[i]), name="exp")
    total = reduce(ReduceOp.SUM, (rows,), (n,), lambda i, k: e[i, k], name="sum")
    return compute((rows, n), lambda i, j: e[i, j] / total[i], name="softmax")


def layer_norm(rows: Dim, n: int) -> Tensor:
    x, scale = placeholder("x", (rows, n), F32), placeholder("scale", (n,), F32)
    total = reduce(ReduceOp.SUM, (rows,), (n,), lambda i, k: x[i, k], name="sum")
    mean = compute((rows,), lambda i: total[i] * (1.0 / n), name="mean")
    squares = reduce(
        ReduceOp.SUM, (rows,), (n,), lambda i, k: (x[i, k] - mean[i]) * (x[i, k] - mean[i]), name="squares"
    )
    return compute(
        (rows, n),
        lambda i, j: (x[i, j] - mean[i]) * Unary(UnaryOp.RSQRT, squares[i] * (1.0 / n) + 1e-5) * scale[j],
        name="norm",
    )


def max_pool(n: Dim, h: Dim, w: Dim, c: int) -> Tensor:
    x = placeholder("x", (n, h, w, c), F32)
    shape = (n, *((lift(d) - 3) // 2 + 1 for d in (h, w)), c)
    return reduce(
        ReduceOp.MAX,
        shape,
        (3, 3),
        lambda b, i, j, ch, kh, kw: x[b, i * 2 + kh, j * 2 + kw, ch],
        name="pool",
        axes=("n", "oh", "ow", "c"),
        reduced=("kh", "kw"),
    )


def global_average(n: Dim, h: Dim, c: int) -> Tensor:
    x = placeholder("x", (n, h, h, c), F32)
    total = reduce(ReduceOp.SUM, (n, c), (h, h), lambda b, ch, i, j: x[b, i, j, ch], name="sum")
    return compute((n, c), lambda b, ch: total[b, ch] * 0.25, name="mean")


def mean_rows(rows: Dim, n: Dim) -> Tensor:
    x = placeholder("x", (rows, n), F32)
    return reduce(ReduceOp.SUM, (rows,), (n,), lambda i, k: x[i, k], name="sum")


def broadcast_add(n: Dim, c: Dim) -> Tensor:
    x, y, b = placeholder("x", (n, 5, c), F32), placeholder("y", (n, 5, c), F32), placeholder("b", (c,), F32)
    return compute((n, 5, c), lambda i, j, k: x[i, j, k] * y[i, j, k] + b[k], name="add")


def transpose(n: Dim, c: Dim) -> Tensor:
    x = placeholder("x", (2, c, n), F32)
    return compute((2, n, c), lambda b, i, j: x[b, j, i], name="transpose")


def to_integers(n: Dim) -> Tensor:
    x = placeholder("x", (n,), F32)
    return compute((n,), lambda i: cast(x[i] * 10.0, DType.INT8), name="cast")


m, n = symbol("m"), symbol("n")
CASES: dict[str, tuple[Tensor, tuple[str, ...], tuple[dict[str, int], ...]]] = {
    "matmul": (matmul(37, 100, 19), ("b",), ({},)),
    "matmul_exact": (matmul(24, 128, 16), ("b",), ({},)),
    "matmul_rows": (matmul(m, 70, 19), ("b",), ({"m": 1}, {"m": 5}, {"m": 29})),
    "matmul_all": (matmul(m, n, symbol("k")), (), ({"m": 7, "n": 45, "k": 5}, {"m": 12, "n": 64, "k": 3})),
    "matvec": (matmul(1, 100, 30), ("b",), ({},)),
    "matmul_transposed": (transposed_matmul(9, 33, 8), (), ({},)),
    "matmul_transposed_rows": (transposed_matmul(m, n, 8), (), ({"m": 9, "n": 33}, {"m": 3, "n": 70})),
    "conv3x3": (convolution(1, 7, 9, 8, 40, 3, 1, 1), ("w",), ({},)),
    "conv3x3_stride": (convolution(2, 9, 9, 5, 20, 3, 2, 1), ("w",), ({},)),
    "conv1x1": (convolution(2, 5, 5, 16, 32, 1, 1, 0), ("w",), ({},)),
    "conv1x1_stride": (convolution(1, 8, 8, 16, 32, 1, 2, 0), ("w",), ({},)),
    "conv_valid": (convolution(1, 8, 8, 3, 24, 3, 1, 0), ("w",), ({},)),
    "conv_grouped": (convolution(1, 6, 6, 48, 72, 3, 1, 1, 3), ("w",), ({},)),
    "conv_grouped_small": (convolution(1, 5, 6, 16, 16, 3, 1, 1, 4), ("w",), ({},)),
    "conv_grouped_odd": (convolution(1, 4, 5, 12, 60, 3, 1, 1, 3), ("w",), ({},)),
    "conv_depthwise": (convolution(1, 6, 9, 40, 40, 3, 1, 1, 40), ("w",), ({},)),
    "conv_depthwise_stride": (convolution(n, 6, 9, 24, 24, 3, 2, 1, 24), ("w",), ({"n": 2},)),
    "conv_dynamic": (
        convolution(m, n, symbol("w"), 8, 24, 3, 1, 1),
        ("w",),
        ({"m": 1, "n": 5, "w": 6}, {"m": 2, "n": 9, "w": 13}),
    ),
    "conv_dynamic_stride": (convolution(1, n, symbol("w"), 3, 8, 3, 2, 1), ("w",), ({"n": 12, "w": 31},)),
    "transposed2x2": (transposed_convolution(5, 7, 12, 24, 2, 2, 0), ("w",), ({},)),
    "transposed2x2_one": (transposed_convolution(m, n, 12, 1, 2, 2, 0), ("w",), ({"m": 3, "n": 9},)),
    "transposed4x4": (transposed_convolution(5, n, 8, 20, 4, 2, 1), ("w",), ({"n": 6},)),
    "transposed3x3": (transposed_convolution(4, 5, 6, 10, 3, 2, 0), ("w",), ({},)),
    "softmax": (softmax(4, 50), (), ({},)),
    "softmax_vector": (softmax(1, 50), (), ({},)),
    "softmax_dynamic": (softmax(m, n), (), ({"m": 3, "n": 1}, {"m": 2, "n": 75}, {"m": 1, "n": 64})),
    "layer_norm": (layer_norm(m, 96), (), ({"m": 3},)),
    "layer_norm_odd": (layer_norm(3, 37), (), ({},)),
    "max_pool": (max_pool(1, 9, 11, 20), (), ({},)),
    "max_pool_dynamic": (max_pool(m, n, n, 16), (), ({"m": 2, "n": 9},)),
    "global_average": (global_average(m, 7, 70), (), ({"m": 2},)),
    "mean_rows": (mean_rows(m, n), (), ({"m": 3, "n": 5}, {"m": 2, "n": 130})),
    "mean_rows_static": (mean_rows(3, 100), (), ({},)),
    "broadcast_add": (broadcast_add(m, n), (), ({"m": 2, "n": 3}, {"m": 3, "n": 80})),
    "broadcast_add_static": (broadcast_add(2, 37), (), ({},)),
    "transpose": (transpose(20, 18), (), ({},)),
    "transpose_dynamic": (transpose(m, n), (), ({"m": 20, "n": 18},)),
    "cast": (to_integers(m), (), ({"m": 1}, {"m": 100})),
}
QUICK = (
    "matmul",
    "matmul_rows",
    "conv3x3",
    "conv_grouped_odd",
    "softmax_dynamic",
    "max_pool",
    "broadcast_add",
    "transpose",
)
"""One case of every rule."""


@pytest.mark.sampled
@pytest.mark.parametrize(
    "after_passes", [pytest.param(False, marks=pytest.mark.slow, id="lowered"), pytest.param(True, id="passes")]
)
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize("case", [pytest.param(c, marks=[] if c in QUICK else pytest.mark.slow) for c in CASES])
def test_default_schedule_computes_the_expression(case: str, target: str, after_passes: bool) -> None:
    output, packed, sizes = CASES[case]
    output, placeholders = coalesce(output)
    constants = frozenset(new for old, new in placeholders.items() if old.name in packed)
    for symbols in sizes:
        check(output, symbols, TARGETS[target], constants, after_passes)
