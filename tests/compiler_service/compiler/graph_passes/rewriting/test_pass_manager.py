"""Pipelines, contexts, instruments, the rewrite driver."""

from __future__ import annotations

import itertools
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from compiler_service.compiler.graph_passes.algebra.fold_batch_norm import FoldBatchNorm
from compiler_service.compiler.graph_passes.algebra.simplify_algebra import SimplifyAlgebra
from compiler_service.compiler.graph_passes.cleaning.eliminate_dead_code import EliminateDeadCode
from compiler_service.compiler.graph_passes.cleaning.fold_constants import FoldConstants
from compiler_service.compiler.graph_passes.convolutions.divide_means import DivideMeans
from compiler_service.compiler.graph_passes.convolutions.separate_taps import SeparateTaps
from compiler_service.compiler.graph_passes.fusion.fuse import Fuse
from compiler_service.compiler.graph_passes.fusion.tile_batch import TileBatch
from compiler_service.compiler.graph_passes.layout.choose_layout import ChooseLayout
from compiler_service.compiler.graph_passes.memory.pad_rows import PadRows
from compiler_service.compiler.graph_passes.memory.place_parts import PlaceParts
from compiler_service.compiler.graph_passes.memory.separate_outputs import SeparateOutputs
from compiler_service.compiler.graph_passes.pipelines import PASSES, default_pipeline
from compiler_service.compiler.graph_passes.precision.halve_weights import HalveWeights
from compiler_service.compiler.graph_passes.precision.keep_quantized import KeepQuantized
from compiler_service.compiler.graph_passes.rewriting.instruments import Dump, PrintBetween, Time, Verify
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass, PassContext, Pipeline
from compiler_service.compiler.graph_passes.rewriting.rewrite import rewrite, rule
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import Graph, Module
from shared_ir.graph.text import array_digest, parse_graph
from shared_ir.machine.target import PRESETS, parse_target
from tests.compiler_service.compiler.graph_passes.pass_graphs import graph

TEXT = """
graph main(%x: float32[4]) -> (%y) {
  %dead: float32[4] = Exp(%x)
  %a: float32[4] = Neg(%x)
  %b: float32[4] = Neg(%a)
  %y: float32[4] = Relu(%b)
}
"""


@dataclass(frozen=True)
class Break(Pass):
    """Leaves out the definition of the output."""

    name: ClassVar[str] = "break"

    def run(self, graph: Graph) -> Graph:
        return graph.with_(nodes=graph.nodes[:-1])


@dataclass(frozen=True)
class Crash(Pass):
    name: ClassVar[str] = "crash"

    def run(self, graph: Graph) -> Graph:
        raise KeyError("oops")


PIPELINE = Pipeline((EliminateDeadCode(), SimplifyAlgebra()))


def test_levels_and_disabled_passes_decide_what_runs() -> None:
    counts = []
    for context in (PassContext(0), PassContext(1), PassContext(3), PassContext(3, frozenset({"simplify-algebra"}))):
        counts.append(len(PIPELINE.run_graph(graph(TEXT), context).nodes))
    assert counts == [4, 3, 1, 3]


def test_an_unchanged_module_is_the_same_object() -> None:
    module = Module(PIPELINE.run_graph(graph(TEXT), PassContext(3)), opset=17)
    assert PIPELINE.run(module, PassContext(3)) is module


def test_a_module_keeps_what_is_not_its_graph() -> None:
    module = Module(graph(TEXT), opset=17, metadata={"a": "b"}, output_names=("out",))
    changed = PIPELINE.run(module, PassContext(3))
    assert (changed.opset, changed.metadata, changed.output_names) == (17, {"a": "b"}, ("out",))


def test_an_unknown_disabled_pass_is_an_error() -> None:
    with pytest.raises(IngotError, match="unknown pass 'simplify'") as caught:
        PIPELINE.run_graph(graph(TEXT), PassContext(3, frozenset({"simplify"})))
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_a_pass_that_code_needs_cannot_be_disabled() -> None:
    with pytest.raises(IngotError, match="pass 'fuse' brings the graph to the form") as caught:
        default_pipeline(3).run_graph(graph(TEXT), PassContext(3, frozenset({"fuse"})))
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_verification_names_the_pass() -> None:
    with pytest.raises(IngotError, match=r"after pass 'break': .*%y is used but not defined"):
        Pipeline((Break(),)).run_graph(graph(TEXT), PassContext(instruments=(Verify(),)))


def test_a_crash_names_the_pass_and_those_before_it() -> None:
    with pytest.raises(IngotError, match="pass 'crash' failed after eliminate-dead-code: KeyError") as caught:
        Pipeline((EliminateDeadCode(), Crash())).run_graph(graph(TEXT), PassContext())
    assert caught.value.code is ErrorCode.COMPILER_FAULT


def test_dump_writes_numbered_files(tmp_path: Path) -> None:
    PIPELINE.run_graph(graph(TEXT), PassContext(instruments=(Dump(tmp_path / "out"),)))
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert names == ["00_input.txt", "01_eliminate-dead-code.txt", "02_simplify-algebra.txt"]
    assert len(parse_graph((tmp_path / "out" / names[-1]).read_text()).nodes) == 1


def test_time_and_print_between() -> None:
    timer = Time()
    printed: list[str] = []
    PIPELINE.run_graph(graph(TEXT), PassContext(instruments=(timer, PrintBetween(printed.append))))
    assert [name for name, _ in timer.seconds] == ["eliminate-dead-code", "simplify-algebra"]
    assert printed[0] == "# 01 eliminate-dead-code\n"
    assert printed[-1].count("=") == 1


def test_passes_are_frozen_and_named_once() -> None:
    assert all(PASSES[p.name] is type(p) for level in range(4) for p in default_pipeline(level).passes)
    with pytest.raises(FrozenInstanceError):
        SimplifyAlgebra().split = False  # type: ignore[misc]  # what is refused


def test_level_zero_does_what_code_needs() -> None:
    assert [p.name for p in default_pipeline(0).passes] == [
        "expand-operators",
        "lower-loops",
        "fold-shapes",
        "fuse",
        "separate-outputs",
        "split-concatenations",
    ]


@pytest.mark.parametrize("target", [None, *PRESETS])
def test_default_pipelines_are_in_a_legal_order(target: str | None) -> None:
    for level, filters in itertools.product(range(4), (False, True)):
        assert default_pipeline(level, None if target is None else parse_target(target), filters=filters).passes


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ((SeparateTaps(), ChooseLayout()), "'separate-taps' needs channels-last and comes before pass 'choose-layout'"),
        ((DivideMeans(), ChooseLayout()), "'divide-means' needs channels-last and comes before pass 'choose-layout'"),
        ((Fuse(), ChooseLayout()), "'choose-layout' must not find grouped and comes behind pass 'fuse'"),
        (
            (ChooseLayout(), FoldBatchNorm()),
            "'fold-batch-norm' must not find channels-last and comes behind pass 'choo",
        ),
        (
            (FoldConstants(), KeepQuantized()),
            "'keep-quantized' must not find weights-dequantized and comes behind pass",
        ),
        (
            (HalveWeights(), FoldConstants()),
            "'halve-weights' needs constants-folded and comes before pass 'fold-constan",
        ),
        ((PadRows(), PlaceParts()), "'pad-rows' needs parts-placed and comes before pass 'place-parts'"),
        (
            (SeparateOutputs(), TileBatch()),
            "'tile-batch' must not find outputs-apart and comes behind pass 'separate-out",
        ),
    ],
    ids=lambda value: ",".join(p.name for p in value) if isinstance(value, tuple) else "",
)
def test_an_illegal_order_is_refused_with_both_names(order: tuple[Pass, ...], message: str) -> None:
    with pytest.raises(IngotError, match=message) as caught:
        Pipeline(order)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_what_nobody_gives_the_graph_may_bring() -> None:
    assert Pipeline((SeparateTaps(), Fuse())).passes
    assert Pipeline((FoldConstants(keeps=frozenset({"DequantizeLinear"})), KeepQuantized(), FoldConstants())).passes


def test_weights_stored_as_halves_are_not_folded_back() -> None:
    """What the order guards: folding the Cast behind the halves would make them floats again."""
    weight = np.arange(1 << 15, dtype=np.float32).reshape(128, 256) % 64
    before = parse_graph(
        f"""
        graph main(%x: float32[1, 128]) -> (%y) {{
          const %w: float32[128, 256] = {array_digest(weight)}
          %y: float32[1, 256] = MatMul(%x, %w)
        }}
        """,
        {array_digest(weight): weight},
    )
    halved = Pipeline((HalveWeights(),)).run_graph(before, PassContext())
    assert {a.dtype for a in halved.constants.values()} == {np.dtype(np.float16)}
    with pytest.raises(IngotError, match="'fold-constants' must not find weights-halved"):
        Pipeline((FoldConstants(), HalveWeights(), FoldConstants()))


def test_rules_that_never_rest_are_reported() -> None:
    forever = rule("Relu", lambda node, site: site.node("Relu", *node.inputs))
    with pytest.raises(IngotError, match="do not come to rest"):
        rewrite(graph(TEXT), [forever])


def test_a_rule_that_loses_a_joint_extent_is_reported() -> None:
    """What is joined of ``n`` and ``m`` is not ``n``: the check would be gone, and the shape wrong where ``n`` is 1."""
    text = """
    graph main(%x: float32[n], %s: float32[m]) -> (%y) {
      %shape: int64[1] = ingot.Dims() {dims=(`select(m == 1, n, m)`,)}
      %y: float32[select(m == 1, n, m)] = Expand(%x, %shape)
    }
    """
    with pytest.raises(IngotError, match="changed a type"):
        rewrite(graph(text), [rule("Expand", lambda node, site: node.operands[0])])


def test_a_rule_that_changes_a_type_is_reported() -> None:
    taller = rule("Relu", lambda node, site: site.reshape(node.operands[0], (1, 4)))
    with pytest.raises(IngotError, match=r"changed a type; at node .*Relu.*received float32\[1, 4\]"):
        rewrite(graph(TEXT), [taller])


def test_rules_reach_nested_graphs_and_see_outer_constants() -> None:
    before = graph(
        """
        graph main(%x: float32[4], %p: bool[]) -> (%y) {
          const %one: float32[1] = [1.0]
          %y: float32[4] = If(%p) {
            then_branch=graph then() -> (%a) {
              %t: float32[4] = Mul(%x, %one)
              %a: float32[4] = Neg(%t)
            },
            else_branch=graph other() -> (%b) { %b: float32[4] = Exp(%x) }
          }
        }
        """
    )
    after = PIPELINE.run_graph(before, PassContext(instruments=(Verify(),)))
    assert [n.op for n in after.nodes[0].subgraphs[0].nodes] == ["Neg"]
    assert not after.constants
