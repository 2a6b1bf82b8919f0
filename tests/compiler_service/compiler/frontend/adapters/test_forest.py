"""Trees packed into records, and the loop function that walks them, against tests made one by one."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_service.compiler.frontend.adapters.forest import DEEPEST, MODES, Forest, PackedNodes, packed
from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.loop_ir.algorithms.table import algorithm_function
from compiler_service.compiler.loop_ir.interpret import run
from compiler_service.compiler.loop_ir.verify import verify
from compiler_service.compiler.tensor_expr.operators.sequential import RECORD
from compiler_service.compiler.tensor_expr.tensor import placeholder
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, symbol

Array = np.ndarray[Any, np.dtype[Any]]

COMPARE = dict(zip(MODES, (operator.le, operator.lt, operator.ge, operator.gt, operator.eq, operator.ne), strict=True))
TINY = float(np.finfo(np.float32).tiny)
NUMBERS = [-np.inf, -2.0, -TINY, 0.0, TINY, 1.0, float(np.nextafter(np.float32(1), np.float32(0))), np.inf]
COLUMNS = 3


def forest_of(roots: list[int], children: list[tuple[int, int]], tests: list[tuple[int, float, str, bool]]) -> Forest:
    features, thresholds, modes, missing = zip(*tests, strict=True)
    return Forest(
        np.array(roots),
        np.array(children),
        np.array(features),
        np.array(thresholds, np.float32),
        np.array([MODES.index(m) for m in modes], np.int8),
        np.array(missing),
    )


@st.composite
def forests(draw: st.DrawFn) -> Forest:
    """Nodes lead to later ones, several to the same; the last few are leaves."""
    leaves, inner = draw(st.integers(1, 4)), draw(st.integers(0, 12))
    count = inner + leaves
    later = [st.integers(i + 1, count - 1) for i in range(inner)]
    children = [(draw(no), draw(no)) for no in later]
    children += [(i, i) for i in range(inner, count)]
    tests = st.tuples(
        st.integers(0, COLUMNS - 1), st.sampled_from([*NUMBERS, np.nan]), st.sampled_from(MODES), st.booleans()
    )
    roots = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=11))
    return forest_of(roots, children, draw(st.lists(tests, min_size=count, max_size=count)))


def leaf_of(forest: Forest, root: int, row: Array) -> int:
    node = root
    while tuple(forest.children[node]) != (node, node):
        value, limit = row[forest.features[node]], forest.thresholds[node]
        holds = COMPARE[MODES[forest.modes[node]]](value, limit) or (np.isnan(value) and forest.missing[node])
        node = int(forest.children[node, int(holds)])
    return node


def walked(records: PackedNodes, x: Array, trees: int, rows: Dim) -> Array:
    """What the loop function finds, before and after the loop passes."""
    operands = [x, records.roots, records.words, records.steps]
    shapes: list[tuple[Dim, ...]] = [(rows, x.shape[1]), *(a.shape for a in operands[1:])]
    word = DType.INT32 if x.dtype == np.float32 else DType.INT64
    dtypes = [DType.FLOAT32 if x.dtype == np.float32 else DType.FLOAT64, DType.INT32, word, DType.INT32]
    arguments = [placeholder(f"x{i}", s, t) for i, (s, t) in enumerate(zip(shapes, dtypes, strict=True))]
    out = placeholder("y", (rows, trees), DType.INT32)
    attributes = {"trees": trees, "is_missing_tested": int(records.is_missing_tested)}
    symbols = {} if isinstance(rows, int) else {"d0": len(x)}
    function = algorithm_function("ingot.TreeLeaves", "walk", arguments, out, len(symbols), attributes)
    verify(function)
    flat = passes.run(function)
    verify(flat, flat=True)
    results = []
    for program in (function, flat):
        results.append(np.full((len(x), trees), -7, np.int32))
        run(program, [*operands, results[-1]], symbols)
    np.testing.assert_array_equal(results[0], results[1])
    return results[0]


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(forests(), st.lists(st.sampled_from([*NUMBERS, np.nan]), min_size=0, max_size=15), st.booleans())
def test_walks_end_at_the_same_leaves(forest: Forest, numbers: list[float], known: bool) -> None:
    x = np.array(numbers[: len(numbers) // COLUMNS * COLUMNS], np.float32).reshape(-1, COLUMNS)
    records = packed(forest)
    assert records is not None
    found = walked(records, x, len(forest.roots), len(x) if known else symbol("d0"))
    expected = [[leaf_of(forest, root, row) for root in forest.roots] for row in x]
    np.testing.assert_array_equal(records.leaves[found], np.array(expected, np.int64).reshape(found.shape))


def test_doubles_have_words_of_their_own_width() -> None:
    limits = [0.1, float(np.nextafter(0.1, 1)), 0.3]
    tests = [(0, limit, "LT", False) for limit in limits] + [(0, 0.0, "LEQ", False)] * 4
    children = [(1, 3), (2, 4), (5, 6), *((i, i) for i in range(3, 7))]
    forest = forest_of([0], children, tests)
    forest = Forest(
        forest.roots, forest.children, forest.features, np.array([*limits, 0, 0, 0, 0]), forest.modes, forest.missing
    )
    records = packed(forest)
    assert records is not None
    x = np.array([[0.09], [0.1], [0.2], [0.3]])
    assert records.leaves[walked(records, x, 1, 4)].reshape(-1).tolist() == [3, 4, 6, 5]


def test_a_shared_node_has_one_record() -> None:
    """A list of members: each test leads on, or to the same subtree."""
    members = 40
    children = [(i + 1, members + 1) for i in range(members)]
    children += [(members, members), (members + 2, members + 3), (members + 2, members + 2), (members + 3, members + 3)]
    tests = [(0, float(i), "LEQ", False) for i in range(len(children))]
    records = packed(forest_of([0], children, tests))
    assert records is not None
    assert len(records.words) // RECORD <= 1 + 2 * (members + 1)


def test_steps_are_those_of_the_deepest_tree_of_a_group() -> None:
    children = [(1, 2), (1, 1), (3, 4), (3, 3), (4, 4), (6, 7), (6, 6), (7, 7)]
    tests = [(0, 0.0, "LEQ", False)] * 8
    records = packed(forest_of([0] + [1] * 7 + [5, 6, 7] + [6] * 5, children, tests))
    assert records is not None
    assert records.steps.tolist() == [2, 1]  # a root that has its record elsewhere leads there first


@pytest.mark.parametrize("children", [[(0, 1), (1, 1)], [(1, 2), (0, 2), (2, 2)]])
def test_a_cycle_is_no_tree(children: list[tuple[int, int]]) -> None:
    tests = [(0, 0.0, "LEQ", False)] * len(children)
    assert packed(forest_of([0], children, tests)) is None


@pytest.mark.parametrize(("levels", "fits"), [(DEEPEST, True), (DEEPEST + 1, False)])
def test_depth_is_limited(levels: int, fits: bool) -> None:
    children = [(i + 1, i + 1) for i in range(levels)] + [(levels, levels)]
    tests = [(0, 0.0, "LEQ", False)] * len(children)
    assert (packed(forest_of([0], children, tests)) is not None) == fits
