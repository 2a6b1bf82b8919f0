"""Assignments to a part of a tensor: what exporters write as scattering is a concatenation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_service.compiler.graph_passes.algebra.simplify_algebra import SimplifyAlgebra
from compiler_service.compiler.graph_passes.cleaning.eliminate_dead_code import EliminateDeadCode
from compiler_service.compiler.graph_passes.cleaning.fold_constants import FoldConstants
from shared_ir.graph.ir import Graph
from tests.compiler_service.compiler.graph_passes.pass_graphs import assert_same, graph, ops, run_passes

SHAPE = (2, 6, 3)


def _assignment(positions: np.ndarray, attributes: str = 'reduction="none"') -> Graph:
    """x[positions] = u"""
    dims, count = ", ".join(map(str, positions.shape)), positions.shape[-1]
    updates = ", ".join(map(str, (*positions.shape[:-1], *SHAPE[count:])))
    numbers = ", ".join(map(str, positions.ravel().tolist()))
    return graph(f"""
        graph main(%x: float32[2, 6, 3], %u: float32[{updates}]) -> (%y) {{
          const %i: int64[{dims}] = [{numbers}]
          %y: float32[2, 6, 3] = ScatterND(%x, %i, %u) {{{attributes}}}
        }}
        """)


def _positions(*places: range | int) -> np.ndarray:
    ranges = [range(p, p + 1) if isinstance(p, int) else p for p in places]
    return np.stack(np.meshgrid(*map(np.array, ranges), indexing="ij"), axis=-1)


ALL = tuple(map(range, SHAPE))
PLACES: dict[str, tuple[tuple[range | int, ...], list[str]]] = {
    "a row of each": ((ALL[0], 2), ["Slice", "Slice", "Concat"]),
    "first rows": ((ALL[0], range(3)), ["Slice", "Concat"]),
    "last rows, written from the end": ((ALL[0], range(-2, 0)), ["Slice", "Concat"]),
    "elements": ((ALL[0], range(1, 4), ALL[2]), ["Slice", "Slice", "Concat"]),
    "the first axis": ((1,), ["Slice", "Concat"]),
    "parts of two axes": ((1, range(1, 6)), ["Slice", "Slice", "Slice", "Concat", "Concat"]),
    "rows of every second column": (
        (ALL[0], range(0, 6, 2), range(1, 3)),
        ["Reshape", "Slice", "Slice", "Slice", "Reshape", "Concat", "Concat", "Reshape"],
    ),
    "everything": (ALL, ["Identity"]),
    "every second row": ((ALL[0], range(1, 6, 2)), ["Reshape", "Slice", "Reshape", "Concat", "Reshape"]),
}


def _simplified(before: Graph) -> Graph:
    return run_passes(before, FoldConstants(), SimplifyAlgebra(), FoldConstants(), EliminateDeadCode())


@pytest.mark.parametrize("name", PLACES)
def test_what_is_not_assigned_to_is_kept(name: str) -> None:
    places, wanted = PLACES[name]
    before = _assignment(_positions(*places))
    after = _simplified(before)
    assert sorted(ops(after)) == sorted(wanted)
    assert_same(before, after)


@settings(deadline=None)
@given(st.data())
def test_any_slice(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 3))
    steps = [data.draw(st.integers(1, 3)) for _ in range(count)]
    starts = [data.draw(st.integers(0, n - 1)) for n in SHAPE[:count]]
    stops = [data.draw(st.integers(a + 1, n)) for a, n in zip(starts, SHAPE, strict=False)]
    before = _assignment(_positions(*map(range, starts, stops, steps)))
    assert_same(before, _simplified(before))


OTHERS = {
    "backwards": _positions(ALL[0], range(2, 0, -1)),
    "twice": _positions(ALL[0], 2)[:, [0, 0]],
    "out of step": _positions(ALL[0], range(0, 6, 4)),
    "not of every step": _positions(ALL[0], range(0, 4, 2)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_places_are_scattered(name: str) -> None:
    before = _assignment(OTHERS[name])
    assert ops(_simplified(before)) == ["ScatterND"]


def test_every_element_named_by_numbers_that_repeat() -> None:
    """As PyTorch's exporter writes ``x[:, 1:4, 2] = u``: an index for every element, expanded from a few numbers."""
    before = graph("""
        graph main(%x: float32[2, 6, 3], %u: float32[2, 3]) -> (%y) {
          const %a: int64[2, 1] = [0, 1]
          const %b: int64[3] = [1, 2, 3]
          const %c: int64[1] = [-1]
          const %s: int64[2] = [2, 3]
          const %t: int64[3] = [2, 3, 1]
          %d: int64[2, 3] = Expand(%a, %s)
          %e: int64[2, 3] = Expand(%b, %s)
          %f: int64[2, 3] = Expand(%c, %s)
          %g: int64[2, 3, 1] = Reshape(%d, %t)
          %h: int64[2, 3, 1] = Reshape(%e, %t)
          %j: int64[2, 3, 1] = Reshape(%f, %t)
          %i: int64[2, 3, 3] = Concat(%g, %h, %j) {axis=-1}
          %y: float32[2, 6, 3] = ScatterND(%x, %i, %u) {reduction="none"}
        }
        """)
    after = run_passes(before, SimplifyAlgebra(), EliminateDeadCode())
    assert not {"ScatterND", "ingot.Scattered", "Expand"} & set(ops(after))
    assert_same(before, after)


def test_more_places_than_are_looked_at() -> None:
    """A few numbers that name more places than memory has."""
    extent, axes = 1 << 10, range(4)
    whole, numbers = ", ".join([str(extent)] * 4), ", ".join(map(str, range(extent)))
    constants, nodes = [], []
    for axis in axes:
        shape = ", ".join(str(extent if a == axis else 1) for a in axes)
        constants.append(f"const %a{axis}: int64[{shape}] = [{numbers}]")
        nodes.append(f"%b{axis}: int64[{whole}] = Expand(%a{axis}, %s)")
        nodes.append(f"%c{axis}: int64[{whole}, 1] = Reshape(%b{axis}, %t)")
    before = graph(
        f"graph main(%x: float32[{whole}], %u: float32[{whole}]) -> (%y) {{\n"
        + "\n".join([f"const %s: int64[4] = [{whole}]", f"const %t: int64[5] = [{whole}, 1]", *constants, *nodes])
        + f"\n%i: int64[{whole}, 4] = Concat({', '.join(f'%c{a}' for a in axes)}) {{axis=-1}}"
        + f'\n%y: float32[{whole}] = ScatterND(%x, %i, %u) {{reduction="none"}}\n}}'
    )
    assert "ingot.Scattered" in ops(run_passes(before, SimplifyAlgebra()))


def test_sums_are_scattered() -> None:
    assert ops(_simplified(_assignment(_positions(ALL[0], 2), 'reduction="add"'))) == ["ScatterND"]


def test_a_loop_over_rows_leaves_nothing_of_what_was_there() -> None:
    rows = range(SHAPE[1])
    constants = [f"const %i{i}: int64[2, 2] = [0, {i}, 1, {i}]" for i in rows]
    lines = []
    for i in rows:
        before = f"%y{i - 1}" if i else "%x"
        lines.append(f'%y{i}: float32[2, 6, 3] = ScatterND({before}, %i{i}, %u{i}) {{reduction="none"}}')
    given_ = ", ".join(f"%u{i}: float32[2, 3]" for i in rows)
    graph_ = graph(
        f"graph main(%x: float32[2, 6, 3], {given_}) -> (%y{rows[-1]}) {{\n" + "\n".join([*constants, *lines]) + "\n}"
    )
    after = _simplified(graph_)
    assert sorted(ops(after)) == ["Concat"] + ["Reshape"] * len(rows)
    assert_same(graph_, after)


@pytest.mark.parametrize(
    ("start", "stop", "wanted"),
    [
        (0, 2, ["Identity"]),
        (2, 5, ["Identity"]),
        (3, 4, ["Slice"]),
        (0, 5, ["Concat"]),
        (2, 6, ["Concat"]),
        (1, 3, ["Concat", "Slice"]),
    ],
)
def test_slices_of_concatenations(start: int, stop: int, wanted: list[str]) -> None:
    before = graph(f"""
        graph main(%a: float32[batch, 2], %b: float32[batch, 3], %c: float32[batch, 1]) -> (%y) {{
          const %s: int64[1] = [{start}]
          const %e: int64[1] = [{stop}]
          const %x: int64[1] = [1]
          %j: float32[batch, 6] = Concat(%a, %b, %c) {{axis=1}}
          %y: float32[batch, {stop - start}] = Slice(%j, %s, %e, %x)
        }}
        """)
    after = _simplified(before)
    assert ops(after) == wanted
    assert_same(before, after)
