"""The evaluator itself: grids, guards, blocks, contractions."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_service.compiler.tensor_expr.meaning import evaluate as module
from compiler_service.compiler.tensor_expr.meaning.contraction import contract
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.registry import infer
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, compute, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.expr import logical_and, select
from shared_ir.expr.dim import symbol
from tests.compiler_service.compiler.tensor_expr.reference import random


def test_transposed_views_and_gathers_agree() -> None:
    x = placeholder("x", (3, 4), DType.FLOAT32)
    array = random((3, 4))
    view = compute((4, 3), lambda i, j: x[j, i])
    gather = compute((4, 3), lambda i, j: x[j + 0, (i + 4) - 4])
    assert (evaluate([view], {x: array}, {})[0] == array.T).all()
    assert (evaluate([gather], {x: array}, {})[0] == array.T).all()


def test_guarded_loads_may_point_outside() -> None:
    x = placeholder("x", (4,), DType.INT64)
    y = compute((8,), lambda i: select(logical_and(i >= 2, i < 6), x[i - 2], 9))
    assert evaluate([y], {x: np.arange(4)}, {})[0].tolist() == [9, 9, 0, 1, 2, 3, 9, 9]


@pytest.mark.parametrize("shift", [-1, 1])
def test_unguarded_loads_must_not(shift: int) -> None:
    x = placeholder("x", (4,), DType.INT64)
    with pytest.raises(IndexError, match="axis of extent 4"):
        evaluate([compute((4,), lambda i: x[i + shift])], {x: np.arange(4)}, {})


def test_missing_and_misfit_feeds_are_refused() -> None:
    x = placeholder("x", (symbol("n"),), DType.FLOAT32)
    y = compute(x.shape, lambda i: x[i] * 2)
    with pytest.raises(KeyError, match="placeholder x"):
        evaluate([y], {}, {"n": 3})
    with pytest.raises(KeyError, match="n"):
        evaluate([y], {x: np.zeros(3, np.float32)}, {})
    with pytest.raises(ValueError, match=r"x is float32\[3\]"):
        evaluate([y], {x: np.zeros(4, np.float32)}, {"n": 3})
    with pytest.raises(ValueError, match="float64"):
        evaluate([y], {x: np.zeros(3)}, {"n": 3})


def test_symbols_are_values_in_bodies() -> None:
    n = symbol("n")
    assert evaluate([compute((3,), lambda i: i + n)], {}, {"n": 5})[0].tolist() == [5, 6, 7]


def test_empty_tensors() -> None:
    x = placeholder("x", (0, 3), DType.FLOAT32)
    array = np.zeros((0, 3), np.float32)
    assert evaluate([compute((0, 3), lambda i, j: x[i, j])], {x: array}, {})[0].shape == (0, 3)
    total = reduce(ReduceOp.MAX, (3,), (0,), lambda j, k: x[k, j])
    assert evaluate([total], {x: array}, {})[0].tolist() == [-np.inf] * 3


@pytest.mark.parametrize("op", list(ReduceOp))
def test_blocks_do_not_change_the_result(op: ReduceOp, monkeypatch: pytest.MonkeyPatch) -> None:
    logical = op in (ReduceOp.AND, ReduceOp.OR)
    x = placeholder("x", (3, 5, 7), DType.BOOL if logical else DType.INT64)
    array = random((3, 5, 7), "bool" if logical else "int64")
    y = reduce(op, (3,), (5, 7), lambda i, j, k: x[i, j, k])
    (whole,) = evaluate([y], {x: array}, {})
    monkeypatch.setattr(module, "MOST_ELEMENTS_AT_ONCE", 12)
    (blocked,) = evaluate([y], {x: array}, {})
    assert (whole == blocked).all()


def test_sums_of_products_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = placeholder("a", (4, 6), DType.FLOAT64), placeholder("b", (6, 5), DType.FLOAT64)
    feeds = {a: random((4, 6), "float64"), b: random((6, 5), "float64", seed=1)}
    y = reduce(ReduceOp.SUM, (4, 5), (6,), lambda i, j, k: a[i, k] * b[k, j])
    monkeypatch.setattr(module, "MOST_ELEMENTS_AT_ONCE", 10)
    np.testing.assert_allclose(evaluate([y], feeds, {})[0], feeds[a] @ feeds[b])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_contract_is_a_sum_of_products(data: st.DataObject) -> None:
    extents = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5)))
    kept = data.draw(st.integers(0, len(extents)))
    shapes = [[n if data.draw(st.booleans()) else 1 for n in extents] for _ in range(2)]
    a, b = (random(shape, "float64", seed=i) for i, shape in enumerate(shapes))
    expected = np.broadcast_to(a * b, extents).sum(axis=tuple(range(kept, len(extents))))
    found = contract(a, b, extents, kept)
    assert found.ndim == kept
    np.testing.assert_allclose(np.broadcast_to(found, extents[:kept]), expected, atol=1e-12)


def test_a_convolution_is_quick() -> None:
    x = placeholder("x", (1, 32, 16, 16), DType.FLOAT32)
    w = placeholder("w", (32, 32, 3, 3), DType.FLOAT32)
    (y,) = infer("Conv", (x, w), {"pads": (1, 1, 1, 1)})
    assert y is not None
    start = time.perf_counter()
    evaluate([y], {x: random((1, 32, 16, 16)), w: random((32, 32, 3, 3))}, {})
    assert time.perf_counter() - start < 1
