"""Axes that are read as quotient and remainder are split; memory stays as it is."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.kernel.split_axes import split_axes
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.operators.convolution import conv_transpose
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.expr import lift, maximum
from shared_ir.expr.dim import Dim, symbol
from shared_ir.expr.dim import evaluate as evaluate_dim

F32 = DType.FLOAT32


def interleaved(n: Dim, size: Dim) -> Tensor:
    """``relu(m[o // 2, o % 2] + r[o])`` with ``m`` a sum of products."""
    x, w, r = placeholder("x", (n, 5), F32), placeholder("w", (5, 2), F32), placeholder("r", (size,), F32)
    m = reduce(ReduceOp.SUM, (n, 2), (5,), lambda q, p, k: x[q, k] * w[k, p], name="m")
    y = compute((size,), lambda o: m[o // 2, o % 2], name="y")
    return compute((size,), lambda o: maximum(y[o] + r[o], 0.0), name="relu")


def test_an_axis_is_split_up_to_the_output() -> None:
    output = split_axes(interleaved(6, 12))
    assert output.shape == (6, 2)
    shapes = {t: tuple(evaluate_dim(d, {}) for d in t.shape) for t in leaves(output)}
    feeds = {t: np.random.default_rng(0).standard_normal(s).astype(np.float32) for t, s in shapes.items()}
    (got,) = evaluate([output], feeds, {})
    by_name = {t.name: a for t, a in feeds.items()}
    wanted = np.maximum((by_name["x"] @ by_name["w"]).reshape(-1) + by_name["r"], 0)
    np.testing.assert_allclose(got.reshape(-1), wanted, rtol=1e-5)


def test_a_symbolic_extent_is_split_where_the_factor_divides_it() -> None:
    n = symbol("n")
    assert split_axes(interleaved(n, lift(n) * 2)).shape == (n, 2)
    assert split_axes(interleaved(lift(n) // 2 + 1, n)).rank == 1


def test_an_axis_with_another_use_stays() -> None:
    x = placeholder("x", (4, 2), F32)
    y = compute((4, 2), lambda i, j: x[i, j] + 1.0, name="y")
    both = compute((8,), lambda o: y[o // 2, o % 2] + y[o % 4, o // 4], name="both")
    assert split_axes(both) is both
    total = compute((8,), lambda o: y[o // 2, o % 2], name="z")
    assert split_axes(reduce(ReduceOp.SUM, (), (8,), lambda k: total[k])).op is not None
    assert [t.rank for t in split_axes(reduce(ReduceOp.SUM, (), (8,), lambda k: total[k])).producers] == [1]


@pytest.mark.parametrize("kernel", [2, 3, 4])
def test_a_transposed_convolution_multiplies_no_zeros(kernel: int) -> None:
    x, w = placeholder("x", (1, 6, 7, 8), F32), placeholder("w", (8, 4, kernel, kernel), F32)
    pad = (kernel - 1) // 2
    extra = (kernel % 2,) * 2
    y = conv_transpose(x, w, strides=(2, 2), pads=(pad,) * 4, output_padding=extra, layout="NHWC")
    output, _ = coalesce(y)
    assert output.shape == (6, 2, 7, 2, 4)


def leaves(output: Tensor) -> list[Tensor]:
    found: dict[Tensor, None] = {}
    pending = [output]
    while pending:
        tensor = pending.pop()
        pending += tensor.producers
        if not tensor.producers:
            found[tensor] = None
    return list(found)
