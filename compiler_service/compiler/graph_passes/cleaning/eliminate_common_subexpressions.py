"""Compute equal things once: nodes with the same operator, operands and attributes, and equal constants."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from compiler_service.compiler.graph_passes.rewriting.dead_code import eliminate_dead_code
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.nested import Constants, map_graphs
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from compiler_service.compiler.graph_passes.rewriting.rewrite import absorb_output_identities
from shared_ir.expr import Expr
from shared_ir.graph.ir import Attribute, Graph, Node, Value, replace_values
from shared_ir.types import TensorType

RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
)
"""Two applications of these differ even on equal operands."""


@dataclass(frozen=True)
class EliminateCommonSubexpressions(Pass):
    name: ClassVar[str] = "eliminate-common-subexpressions"
    level: ClassVar[int] = 1
    forbids: ClassVar[Facts] = frozenset({GraphFact.GROUPED})

    def run(self, graph: Graph) -> Graph:
        return map_graphs(graph, _eliminate)


def _eliminate(graph: Graph, _outer: Constants) -> Graph:
    mapping = equal_constants(graph.constants)
    seen: dict[Hashable, Node] = {}
    nodes: list[Node] = []
    merged, outputs = False, frozenset(graph.outputs)
    for node in graph.nodes:
        current = replace_values(node, mapping)
        key = _key(current)
        first = current if key is None else seen.setdefault(key, current)
        if first is current:
            nodes.append(current)
            continue
        merged = True
        for old, new in zip(current.outputs, first.outputs, strict=True):
            if old is None or new is None:
                continue
            if old in outputs:  # an output keeps its name
                nodes.append(Node("Identity", (new,), (old,), name=current.name))
            else:
                mapping[old] = new
    if not mapping and not merged:
        return graph
    if not merged and all(a is b for a, b in zip(nodes, graph.nodes, strict=True)):
        return graph  # equal constants that only outputs read
    return eliminate_dead_code(absorb_output_identities(graph.with_(nodes=tuple(nodes))))


def _key(node: Node) -> Hashable | None:
    if node.subgraphs or node.op in RANDOM:
        return None
    present = tuple(v is not None for v in node.outputs)
    attributes = tuple((k, _attribute_key(node.attributes[k])) for k in sorted(node.attributes))
    return node.op, node.inputs, present, attributes


def _attribute_key(attribute: Attribute) -> Hashable:
    """Equal for equal attributes. The text tells 1 from 1.0 and from True, which compare equal; equal expressions are one object,
    and their text may be long."""
    if isinstance(attribute, tuple):
        return tuple([_attribute_key(a) for a in attribute])
    if isinstance(attribute, TensorType):
        return attribute.dtype, _attribute_key(attribute.shape)
    return attribute if isinstance(attribute, Expr) else repr(attribute)


def equal_constants(constants: Mapping[Value, np.ndarray]) -> dict[Value, Value]:
    """Later constants -> the first one with the same type and elements."""
    groups: dict[Hashable, list[Value]] = {}
    for value, array in constants.items():
        if array.dtype != object:
            groups.setdefault((array.dtype.str, array.shape), []).append(value)
    found: dict[Value, Value] = {}
    for values in groups.values():
        if len(values) < 2:
            continue
        first: dict[bytes, Value] = {}
        for value in values:
            keeper = first.setdefault(_digest(constants[value]), value)
            if keeper != value:
                found[value] = keeper
    return found


def _digest(array: np.ndarray) -> bytes:
    if array.size and all(stride == 0 for stride in array.strides):  # a broadcast view of one element
        return b"uniform" + bytes(array[(0,) * array.ndim].tobytes())
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).digest()
