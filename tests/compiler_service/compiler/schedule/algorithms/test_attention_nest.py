"""Attention as one nest: any block and tile sizes give what the expression says, for known and unknown lengths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_service.compiler.schedule.algorithms.attention.step import Attend
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.records import from_json, to_json
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.operators.normalization import safe_softmax, softmax
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, symbol
from tests.compiler_service.compiler.schedule.kernels import (
    AVX512,
    ONE_QUICK_TARGET,
    TARGETS,
    arguments_of,
    check,
    interpreted,
    random_feeds,
)

F32 = DType.FLOAT32
b, m, s = symbol("b"), symbol("m"), symbol("s")


def attention(
    batch: Dim,
    heads: int,
    rows: Dim,
    keys: Dim,
    depth: int,
    columns: int,
    *,
    masked: bool = True,
    epilogue: bool = False,
    safe: bool = False,
) -> Tensor:
    """``softmax(q @ k^T * c + mask) @ v`` with the heads beside each other."""
    q = placeholder("q", (batch, rows, heads, depth), F32)
    k = placeholder("k", (batch, keys, heads, depth), F32)
    v = placeholder("v", (batch, keys, heads, columns), F32)
    mask = placeholder("mask", (batch, rows, keys), F32)
    scores = reduce(
        ReduceOp.SUM,
        (batch, heads, rows, keys),
        (depth,),
        lambda i, h, r, j, d: q[i, r, h, d] * k[i, j, h, d],
        name="matmul",
        axes=("b", "h", "m", "n"),
        reduced=("k",),
    )
    if masked:
        plain = scores
        scores = compute(plain.shape, lambda i, h, r, j: plain[i, h, r, j] * 0.25 + mask[i, r, j], name="masked")
    weights = safe_softmax(scores) if safe else softmax(scores)
    mixed = reduce(
        ReduceOp.SUM,
        (batch, rows, heads, columns),
        (keys,),
        lambda i, r, h, n, j: weights[i, h, r, j] * v[i, j, h, n],
        name="einsum",
        axes=("b", "m", "h", "n"),
        reduced=("k",),
    )
    return compute(mixed.shape, lambda *i: mixed[i] * 2 + 1, name="doubled") if epilogue else mixed


def step_of(schedule: Schedule) -> Attend:
    (found,) = (x for x in schedule if isinstance(x, Attend))
    return found


CASES: list[tuple[Tensor, list[dict[str, int]]]] = [
    (attention(1, 2, 5, 7, 4, 4), [{}]),
    (attention(2, 2, 17, 19, 16, 16), [{}]),
    (attention(1, 2, 3, 131, 8, 24), [{}]),
    (attention(1, 3, 1, 40, 12, 20, masked=False), [{}]),
    (attention(1, 1, 9, 16, 16, 16, epilogue=True), [{}]),
    (attention(b, 2, s, s, 8, 8), [{"b": 1, "s": 1}, {"b": 2, "s": 21}]),
    (attention(1, 2, m, s, 16, 8, masked=False), [{"m": 1, "s": 130}, {"m": 7, "s": 128}, {"m": 2, "s": 16}]),
]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_attention_computes_the_expression(case: int, target: str) -> None:
    tensor, sizes = CASES[case]
    output, _ = coalesce(tensor)
    step_of(default_schedule(output, frozenset(), TARGETS[target]))
    for symbols in sizes:
        for after_passes in (False, True):
            check(output, symbols, TARGETS[target], frozenset(), after_passes=after_passes)


def resized(output: Tensor, step: Attend) -> Schedule:
    """The default schedule of ``output`` with the sizes of ``step``."""
    default = default_schedule(output, frozenset(), AVX512)
    sizes = Attend(step_of(default).stage, step.rows, step.keys, step.scores, step.values, step.units)
    return tuple(sizes if isinstance(x, Attend) else x for x in default)


@pytest.mark.slow
@settings(deadline=None, max_examples=6)
@given(
    st.builds(
        Attend,
        st.just(""),
        st.integers(1, 9),
        st.sampled_from([16, 32, 48]),
        st.tuples(st.integers(1, 4), st.integers(1, 2)),
        st.tuples(st.integers(1, 4), st.integers(1, 2)),
        st.integers(1, 5),
    )
)
def test_any_sizes_give_the_same_result(step: Attend) -> None:
    output, _ = coalesce(attention(1, 2, 7, 37, 5, 18))
    feeds = random_feeds(output, {})
    got = interpreted(output, feeds, {}, AVX512, resized(output, step), after_passes=False)
    (wanted,) = evaluate([output], feeds, {})
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)


def masked_run(mask: np.ndarray, value: float = 1.0, *, safe: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(computed in blocks of 16 keys, by the expression) with ``mask`` over 3 rows and 37 keys, ``value`` among the values."""
    output, _ = coalesce(attention(1, 1, 3, 37, 4, 4, safe=safe))
    feeds = random_feeds(output, {})
    arguments = {t.name: t for t in arguments_of(output)}
    feeds[arguments["mask"]] = mask.reshape(feeds[arguments["mask"]].shape).astype(np.float32)
    feeds[arguments["v"]].flat[5] = value
    schedule = resized(output, Attend("", 3, 16, (3, 1), (3, 1)))
    with np.errstate(invalid="ignore"):
        (wanted,) = evaluate([output], feeds, {})
        return interpreted(output, feeds, {}, AVX512, schedule, after_passes=True), wanted


@pytest.mark.parametrize("hidden", [slice(0, 16), slice(0, 20), slice(16, 37), slice(36, 37)])
def test_hidden_blocks_leave_no_trace(hidden: slice) -> None:
    mask = np.zeros((3, 37))
    mask[1, hidden] = -np.inf
    got, wanted = masked_run(mask)
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)


def test_a_row_without_any_key_is_not_a_number_as_in_softmax() -> None:
    mask = np.zeros((3, 37))
    mask[1] = -np.inf
    got, wanted = masked_run(mask)
    assert np.isnan(wanted.reshape(3, -1)[1]).all()
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)


def test_not_a_number_stays_in_its_row() -> None:
    mask = np.zeros((3, 37))
    mask[2, 20] = np.nan
    got, wanted = masked_run(mask)
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("hidden", [np.inf, -np.inf, np.nan])
def test_safe_weights_of_a_row_without_any_key_are_nothing(hidden: float) -> None:
    mask = np.zeros((3, 37))
    mask[1] = hidden
    got, wanted = masked_run(mask, safe=True)
    assert not wanted.reshape(3, -1)[1].any()
    assert wanted.reshape(3, -1)[[0, 2]].any()
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)


def test_nothing_of_a_value_that_is_not_a_number_is_not_a_number() -> None:
    mask = np.zeros((3, 37))
    mask[1] = -np.inf
    got, wanted = masked_run(mask, np.nan, safe=True)
    assert np.isnan(wanted).sum() == 3
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)


def test_the_step_goes_through_json() -> None:
    schedule = default_schedule(coalesce(CASES[0][0])[0], frozenset(), AVX512)
    assert from_json(to_json(schedule)) == schedule


def test_softmax_of_something_else_than_a_product_is_not_attention() -> None:
    x, y = placeholder("x", (4, 6), F32), placeholder("y", (6, 8), F32)
    weights = softmax(x)
    out = reduce(ReduceOp.SUM, (4, 8), (6,), lambda i, n, j: weights[i, j] * y[j, n], name="mixed", reduced=("k",))
    assert not any(isinstance(x, Attend) for x in default_schedule(out, frozenset(), AVX512))
