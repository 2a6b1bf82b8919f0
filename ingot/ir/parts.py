"""Parts of a model for code generators of others: passes that mark them, join them, and make functions of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler_service.compiler.external.table import external_of
from compiler_service.compiler.graph_passes.parts.patterns import NodePattern
from compiler_service.compiler.graph_passes.parts.regions import annotate, merge, region_of
from compiler_service.compiler.graph_passes.rewriting.nested import map_graphs
from ingot.ir.functions import GraphFunction
from ingot.ir.module import Module
from ingot.ir.passing import ANNOTATED, FunctionPass, ModulePass, function_pass, module_pass
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import INVOKE_OP, Graph, Node


def AnnotateTarget(codegen: str, patterns: Sequence[NodePattern] | None = None) -> FunctionPass:
    """Marks what the code generator ``codegen`` takes: ``Relu(MatMul(x, w))`` -> ``ingot.Group {MatMul; Relu}``, a region.

    Args:
        codegen: as it was registered (``ingot.codegen.register_external``).
        patterns: in place of its own.

    Raises:
        IngotError: NOT_FOUND, there is no such code generator; INVALID_ARGUMENT, what it takes is not said by patterns.
    """
    taken = tuple(external_of(codegen).patterns if patterns is None else patterns)
    for each in taken:
        if not isinstance(each, NodePattern):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"what the code generator {codegen!r} takes is said by patterns",
                field="patterns",
                expected="a list of ingot.codegen.NodePattern",
                received=repr(each)[:200],
            )

    @function_pass("annotate-target", gives=[ANNOTATED], forbids=["grouped"])
    def annotate_target(graph: Graph) -> Graph:
        return annotate(graph, codegen, taken)

    return annotate_target


def MergeRegions() -> FunctionPass:
    """Joins regions of one code generator: where one alone reads another's result, both become one."""

    @function_pass("merge-regions", needs=[ANNOTATED], forbids=["grouped"])
    def merge_regions(graph: Graph) -> Graph:
        return merge(graph)

    return merge_regions


def PartitionGraph() -> ModulePass:
    """Makes a function of each region, and a call in its place: ``ingot.Invoke(x) {function="dnnl_0", codegen="dnnl"}``."""

    @module_pass("partition-graph", needs=[ANNOTATED], forbids=["grouped"])
    def partition_graph(module: Module) -> Module:
        parts = _Parts(set(module.by_name))
        graphs = [f for f in module if isinstance(f, GraphFunction)]
        called = [GraphFunction(map_graphs(f.graph, lambda body, _: parts.called(body))) for f in graphs]
        return module.with_(*called, *parts.functions) if parts.functions else module

    return partition_graph


class _Parts:
    """The functions of regions, as they are found."""

    def __init__(self, names: set[str]) -> None:
        self.functions: list[GraphFunction] = []
        self._names = names

    def called(self, graph: Graph) -> Graph:
        nodes = tuple(self._call(n) if region_of(n) else n for n in graph.nodes)
        return graph if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)) else graph.with_(nodes=nodes)

    def _call(self, region: Node) -> Node:
        codegen, (body,) = region_of(region), region.subgraphs
        name = next(n for i in range(len(self._names) + 1) if (n := f"{codegen}_{i}") not in self._names)
        self._names.add(name)
        self.functions.append(GraphFunction(replace(body, name=name)))
        return Node(INVOKE_OP, region.inputs, region.outputs, {"function": name, "codegen": codegen}, region.name)
