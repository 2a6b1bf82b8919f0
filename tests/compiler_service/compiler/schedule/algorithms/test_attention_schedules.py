"""Products of attention that read slices and transposes in place."""

from __future__ import annotations

import pytest

from compiler_service.compiler.schedule.language.steps import ComputeAt
from compiler_service.compiler.schedule.model.analysis import KernelView
from compiler_service.compiler.schedule.rules.contraction.rule import contraction_schedule
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, symbol
from tests.compiler_service.compiler.schedule.kernels import AVX512, ONE_QUICK_TARGET, TARGETS, check

F32 = DType.FLOAT32
b, s = symbol("b"), symbol("s")


def scores(batch: Dim, length: Dim, heads: int, depth: int) -> Tensor:
    """``q @ k^T * c`` with q and k parts of ``qkv[batch, length, 3, heads, depth]``."""
    qkv = placeholder("qkv", (batch, length, 3, heads, depth), F32)
    q = compute((batch, heads, length, depth), lambda i, h, m, k: qkv[i, m, 0, h, k], name="q")
    part = compute((batch, length, heads, depth), lambda i, m, h, k: qkv[i, m, 1, h, k], name="k")
    turned = compute((batch, heads, depth, length), lambda i, h, k, n: part[i, n, h, k], name="kt")
    product = reduce(
        ReduceOp.SUM,
        (batch, heads, length, length),
        (depth,),
        lambda i, h, m, n, k: q[i, h, m, k] * turned[i, h, k, n],
        name="matmul",
        axes=("b", "h", "m", "n"),
        reduced=("k",),
    )
    return compute(product.shape, lambda *i: product[i] * 0.5, name="scale")


def mixed(batch: Dim, length: Dim, heads: int, depth: int) -> Tensor:
    """``p @ v`` with the heads beside each other."""
    p = placeholder("p", (batch, heads, length, length), F32)
    qkv = placeholder("qkv", (batch, length, 3, heads, depth), F32)
    v = compute((batch, heads, length, depth), lambda i, h, m, k: qkv[i, m, 2, h, k], name="v")
    return reduce(
        ReduceOp.SUM,
        (batch, length, heads, depth),
        (length,),
        lambda i, m, h, n, k: p[i, h, m, k] * v[i, h, k, n],
        name="einsum",
        axes=("b", "m", "h", "n"),
        reduced=("k",),
    )


def beside(batch: Dim, length: Dim, heads: int, depth: int) -> Tensor:
    """``p @ v`` with v the last part of what each head has of ``qkv[batch, length, heads, 3 * depth]``."""
    p = placeholder("p", (batch, heads, length, length), F32)
    qkv = placeholder("qkv", (batch, length, heads, 3 * depth), F32)
    v = compute((batch, length, heads, depth), lambda i, k, h, n: qkv[i, k, h, n + 2 * depth], name="v")
    return reduce(
        ReduceOp.SUM,
        (batch, heads, length, depth),
        (length,),
        lambda i, h, m, n, k: p[i, h, m, k] * v[i, k, h, n],
        name="einsum",
        axes=("b", "h", "m", "n"),
        reduced=("k",),
    )


CASES: list[tuple[Tensor, list[dict[str, int]]]] = [
    (scores(2, 37, 2, 32), [{}]),
    (scores(1, 16, 3, 20), [{}]),
    (scores(b, s, 2, 16), [{"b": 1, "s": 1}, {"b": 2, "s": 21}]),
    (mixed(2, 19, 2, 24), [{}]),
    (mixed(b, s, 2, 16), [{"b": 1, "s": 3}, {"b": 2, "s": 20}]),
    (beside(2, 19, 2, 24), [{}]),
    (beside(b, s, 2, 16), [{"b": 1, "s": 3}, {"b": 2, "s": 20}]),
]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_attention_computes_the_expression(case: int, target: str) -> None:
    tensor, sizes = CASES[case]
    output, _ = coalesce(tensor)
    for symbols in sizes:
        for after_passes in (False, True):
            check(output, symbols, TARGETS[target], frozenset(), after_passes=after_passes)


@pytest.mark.parametrize("length", [64, s])
def test_values_beside_keys_and_queries_are_multiplied_by_the_register_tile(length: Dim) -> None:
    found = contraction_schedule(KernelView.of(coalesce(beside(1, length, 2, 32))[0], frozenset()), AVX512)
    assert found is not None


def test_keys_are_turned_in_scratch_and_nothing_else_is_copied() -> None:
    view = KernelView.of(coalesce(scores(2, 64, 2, 32))[0], frozenset())
    found = contraction_schedule(view, AVX512)
    assert found is not None
    assert [s.stage for s in found if isinstance(s, ComputeAt) and s.scope == "scratch"] == ["kt"]
    view = KernelView.of(coalesce(mixed(2, 64, 2, 32))[0], frozenset())
    found = contraction_schedule(view, AVX512)
    assert found is not None
    assert not [s for s in found if isinstance(s, ComputeAt) and s.scope == "scratch"]
