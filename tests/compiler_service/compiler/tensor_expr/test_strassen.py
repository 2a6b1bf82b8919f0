"""Strassen's products: the identity, the tensors that stand for it, and rounding errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_service.compiler.schedule.algorithms.product import product_of
from compiler_service.compiler.schedule.algorithms.strassen.stages import (
    PRODUCTS,
    W_MATRIX,
    X_MATRIX,
    Y_MATRIX,
    QuarterSums,
    error_bound,
    measured_error,
    strassen_stages,
)
from compiler_service.compiler.schedule.language.replacing import stage_of_tensor
from compiler_service.compiler.schedule.language.state import stage_names
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.tensor import (
    Compute,
    Placeholder,
    ReduceOp,
    Tensor,
    placeholder,
    reduce,
    topological,
)
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, symbol

F32 = DType.FLOAT32


def test_seven_products_are_the_product() -> None:
    x, w, y = (np.array(m, dtype=object) for m in (X_MATRIX, W_MATRIX, Y_MATRIX))
    assert (len(x), len(w), y.shape[1]) == (PRODUCTS,) * 3
    terms = np.einsum("op,px,pw->oxw", y, x, w)  # of each result, over pairs of quarters
    for i, j in np.ndindex(2, 2):
        wanted = np.zeros((4, 4), int)
        for k in range(2):
            wanted[2 * i + k, 2 * k + j] = 1
        assert (terms[2 * i + j] == wanted).all()


def product(shape: tuple[Dim, ...], depth: int, columns: int, *, by_column: bool) -> Tensor:
    x = placeholder("x", (*shape, depth), F32)
    w = placeholder("w", (columns, depth) if by_column else (depth, columns), F32)
    return reduce(
        ReduceOp.SUM,
        (*shape, columns),
        (depth,),
        lambda *i: x[(*i[:-2], i[-1])] * (w[i[-2], i[-1]] if by_column else w[i[-1], i[-2]]),
        name="y",
    )


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("block", [1, 2, 4])
@pytest.mark.parametrize("shape", [(6,), (7,), (2, 5), (1,), (symbol("n"),)])
def test_the_stages_compute_the_product(shape: tuple[Dim, ...], block: int, by_column: bool) -> None:
    plain = product(shape, 6, 8, by_column=by_column)
    found = product_of(stage_of_tensor(plain))
    assert found is not None
    stages = strassen_stages(found, block)
    random = np.random.default_rng(0)
    rows = tuple(5 if not isinstance(n, int) else n for n in shape)
    x = random.integers(-9, 9, (*rows, 6)).astype(np.float32)
    w = random.integers(-9, 9, (8, 6) if by_column else (6, 8)).astype(np.float32)
    own = {"x": x, "w.sums": QuarterSums(0 if by_column else 1, block).apply(w)}
    arguments = [t for t in topological(stages.output) if isinstance(t.op, Placeholder)]
    assert [own[t.name].shape[1:] for t in arguments if t is stages.weight] == [(4, 3)]
    (got,) = evaluate([stages.output], {t: own[t.name] for t in arguments}, {"n": 5})
    np.testing.assert_array_equal(got, x @ (w.T if by_column else w))
    assert set(stage_names(stages.output).values()) >= {"y.sums", "y.product", "y"}


def test_stages_have_axes_of_their_own() -> None:
    x, w = placeholder("x", (3, 4, 6), F32), placeholder("w", (8, 6), F32)
    plain = reduce(ReduceOp.SUM, (3, 4, 8), (6,), lambda n, p, t, k: x[n, p, k] * w[t, k], axes=("n", "p", "t"))
    found = product_of(stage_of_tensor(plain))
    assert found is not None
    for tensor in topological(strassen_stages(found, 1).output):
        names = [a.name for a in tensor.op.all_axes] if isinstance(tensor.op, Compute) else []
        assert len(names) == len(set(names))


@pytest.mark.parametrize("columns", [0, 1])
def test_sums_of_quarters_have_the_shape_that_they_promise(columns: int) -> None:
    shape = (32, 6) if columns == 0 else (6, 32)
    transform = QuarterSums(columns, 4)
    weights = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    found = transform.apply(weights)
    assert found.shape == transform.shape(shape) == (PRODUCTS, 16, 3)
    assert found.dtype == np.float32
    by_column = weights if columns == 0 else weights.T
    np.testing.assert_array_equal(
        found[1, 5], by_column[9, :3]
    )  # the second block of its pair begins at 4, the next pair at 8
    np.testing.assert_array_equal(found[0, 5], by_column[9, :3] + by_column[13, 3:])


@pytest.mark.parametrize("depth", [32, 384, 3072])
def test_errors_are_bounded(depth: int) -> None:
    assert 0 < measured_error(depth) < min(1e-5, error_bound(depth))
    assert error_bound(depth) < 1e-3


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=8, max_size=8), min_size=2, max_size=2),
    seed=st.integers(0, 1000),
    magnitude=st.sampled_from([1.0, 1e-4, 1e4]),
)
def test_no_data_exceeds_the_bound(rows: list[list[float]], seed: int, magnitude: float) -> None:
    plain = product((2,), 8, 2, by_column=True)
    found = product_of(stage_of_tensor(plain))
    assert found is not None
    stages = strassen_stages(found, 1)
    x = np.array(rows, np.float32)
    w = np.random.default_rng(seed).standard_normal((2, 8)).astype(np.float32)
    w[:, 3] *= magnitude
    own = {"x": x, "w.sums": QuarterSums(0, 1).apply(w)}
    arguments = [t for t in topological(stages.output) if isinstance(t.op, Placeholder)]
    (got,) = evaluate([stages.output], {t: own[t.name] for t in arguments}, {})
    error = np.abs(got - x.astype(np.float64) @ w.astype(np.float64).T).max()
    assert error <= error_bound(8) * np.abs(x).max() * np.abs(w.astype(np.float64)).sum() + 1e-30
