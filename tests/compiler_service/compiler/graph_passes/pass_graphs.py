"""Small graphs for the tests of graph passes, and ways to run and compare them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import numpy as np

from compiler_service.compiler.graph_passes.rewriting.instruments import Verify
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass, PassContext, Pipeline
from compiler_service.compiler.reference.interpret import run_graph
from shared_ir.expr.dim import evaluate
from shared_ir.graph.ir import GROUP_OP, Graph
from shared_ir.graph.text import parse_graph, print_graph

SIZES = {"batch": 2, "h": 6, "w": 5}


def graph(text: str) -> Graph:
    return parse_graph(textwrap.dedent(text))


def run_passes(before: Graph, *passes: Pass) -> Graph:
    return Pipeline(passes).run_graph(before, PassContext(3, instruments=(Verify(),)))


def body(printed: Graph) -> str:
    """The lines between the braces, without indentation."""
    lines = print_graph(printed).splitlines()[1:-1]
    return "\n".join(line.strip() for line in lines)


def lines(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def ops(found: Graph) -> list[str]:
    """Operators in order; for groups the operators inside, joined."""
    names = []
    for node in found.nodes:
        inner = [n.op for g in node.subgraphs for n in g.nodes] if node.op == GROUP_OP else [node.op]
        names.append("+".join(inner))
    return names


def feeds(found: Graph, sizes: Mapping[str, int] = SIZES, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    arrays = {}
    for value in found.inputs:
        shape = tuple(evaluate(d, sizes) for d in value.shape)
        arrays[value.name] = random.standard_normal(shape).astype(value.dtype.numpy)
    return arrays


def assert_same(before: Graph, after: Graph, tolerance: float = 1e-5) -> None:
    """Both graphs compute the same outputs from random inputs."""
    inputs = feeds(before)
    for wanted, found in zip(run_graph(before, inputs), run_graph(after, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
