"""What is calculated of repeated values is calculated once; masks whose rows are the same become one row."""

from __future__ import annotations

import pytest

from compiler_service.compiler.graph_passes.algebra.simplify_algebra import SimplifyAlgebra
from compiler_service.compiler.graph_passes.cleaning.fold_constants import FoldConstants
from shared_ir.graph.ir import Graph
from tests.compiler_service.compiler.graph_passes.pass_graphs import assert_same, graph, ops, run_passes


def of_columns(nodes: str) -> Graph:
    """``nodes`` that make ``%y`` of ``%x``, four numbers, and of ``%z``, three rows of four."""
    return graph(f"""graph main(%x: float32[1, 4], %z: float32[3, 4]) -> (%y) {{
      const %shape: int64[2] = [3, 4]
      const %high: int64[3] = [2, 3, 4]
      const %zeros: float32[3, 1] = [0.0, 0.0, 0.0]
      const %ones: float32[3, 1] = [1.0, 1.0, 1.0]
      const %all: bool[3, 1] = [true, true, true]
      const %none: bool[3, 1] = [false, false, false]
      const %half: float32[] = [0.5]
      {nodes}
    }}""")


BOOLEAN = "%b: bool[1, 4] = Greater(%x, %half)"
ROWS = {
    "x + 0": ("%y: float32[3, 4] = Add(%x, %zeros)", ["Expand"]),
    "1 * x": ("%y: float32[3, 4] = Mul(%ones, %x)", ["Expand"]),
    "x and true": (f"{BOOLEAN}\n%y: bool[3, 4] = And(%b, %all)", ["Greater", "Expand"]),
    "false or x": (f"{BOOLEAN}\n%y: bool[3, 4] = Or(%none, %b)", ["Greater", "Expand"]),
    "true ? x : z": ("%y: float32[3, 4] = Where(%all, %x, %z)", ["Expand"]),
    "false ? x : z": ("%i: float32[3, 4] = Where(%none, %x, %z)\n%y: float32[3, 4] = Relu(%i)", ["Relu"]),
    "a row in a sum": ("%e: float32[3, 4] = Expand(%x, %shape)\n%y: float32[3, 4] = Add(%e, %z)", ["Add"]),
    "a row and a number": (
        "%e: float32[3, 4] = Expand(%x, %shape)\n%y: float32[3, 4] = Mul(%e, %half)",
        ["Mul", "Expand"],
    ),
    "a row of other rank": (
        "%e: float32[2, 3, 4] = Expand(%x, %high)\n%y: float32[2, 3, 4] = Add(%e, %z)",
        ["Add", "Expand"],
    ),
    "a chain": (
        "%e: float32[3, 4] = Expand(%x, %shape)\n%n: float32[3, 4] = Neg(%e)\n%y: float32[3, 4] = Sub(%z, %n)",
        ["Neg", "Sub"],
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_calculated_once(name: str) -> None:
    nodes, wanted = ROWS[name]
    before = of_columns(nodes)
    after = run_passes(before, SimplifyAlgebra())
    assert ops(after) == wanted
    assert_same(before, after)


def test_rows_of_unknown_number() -> None:
    before = graph(
        """
        graph main(%x: float32[1, 4], %z: float32[batch, 4]) -> (%y) {
          %shape: int64[2] = ingot.Dims() {dims=(`batch`, 4)}
          %e: float32[batch, 4] = Expand(%x, %shape)
          %n: float32[batch, 4] = Neg(%e)
          %y: float32[batch, 4] = Add(%n, %z)
        }
        """
    )
    after = run_passes(before, SimplifyAlgebra())
    assert ops(after) == ["Neg", "Add"]
    assert_same(before, after)


def test_a_padding_mask_is_one_row() -> None:
    """As transformers are exported: positions gather the mask, which meets a mask of rows that hides nothing."""
    before = graph(
        """
        graph main(%mask: int64[1, 4], %scores: float32[2, 4, 4]) -> (%y) {
          const %flat: int64[2] = [4, 1]
          const %places: int64[1, 1, 4] = [0, 1, 2, 3]
          const %row: int64[3] = [1, 1, 4]
          const %rows: bool[1, 4, 1] = [true, true, true, true]
          const %zero: float32[] = [0.0]
          const %low: float32[] = [-1e30]
          %c: bool[1, 4] = Cast(%mask) {to=bool}
          %f: bool[4, 1] = Reshape(%c, %flat)
          %g: bool[1, 1, 4, 1] = Gather(%f, %places) {axis=0}
          %r: bool[1, 1, 4] = Reshape(%g, %row)
          %a: bool[1, 4, 4] = And(%rows, %r)
          %w: float32[1, 4, 4] = Where(%a, %zero, %low)
          %y: float32[2, 4, 4] = Add(%scores, %w)
        }
        """
    )
    after = run_passes(before, FoldConstants(), SimplifyAlgebra())
    assert ops(after) == ["Reshape", "Cast", "Where", "Add"]
    (where,) = (n for n in after.nodes if n.op == "Where")
    assert where.results[0].shape == (1, 1, 4)
    assert_same(before, after)
