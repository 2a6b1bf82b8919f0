"""Strings, sequences and optionals as the numbers that stand for them in memory: the last step of an import.

A string becomes its position in the table of the module, in which the empty string is 0; objects become int64 scalars. From here on
every value of the graph is a tensor of numbers, so passes and kernels know nothing of this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from compiler_service.compiler.frontend.importing.objects import HandleType
from shared_ir.dtype import DType
from shared_ir.graph.ir import Attribute, Graph, Module, Node, Value, walk_graphs
from shared_ir.types import ObjectType, TensorType, ValueKind


def with_numbers(module: Module) -> Module:
    """``module`` with numbers in place of strings and objects; itself when it has none."""
    if not any(_is_numbered(v.type) for v in _values(module.graph)):
        return module
    numbering = _Numbering()
    graph = numbering.graph(module.graph)
    names = zip((*module.input_names, *module.output_names), (*module.graph.inputs, *module.graph.outputs), strict=True)
    objects = {name: found for name, value in names if (found := _object(value.type)) is not None}
    return replace(module, graph=graph, objects=objects, strings=tuple(numbering.strings))


def _values(graph: Graph) -> Iterator[Value]:
    for inner in walk_graphs(graph):
        yield from (*inner.inputs, *inner.constants)
        for node in inner.nodes:
            yield from node.results


def _is_numbered(type: TensorType) -> bool:
    return type.dtype is DType.STRING or isinstance(type, HandleType)


def _object(type: TensorType) -> ObjectType | None:
    if isinstance(type, HandleType):
        return ObjectType(type.kind, type.element)
    return ObjectType(ValueKind.TENSOR, DType.STRING) if type.dtype is DType.STRING else None


@dataclass
class _Numbering:
    strings: dict[str, int] = field(default_factory=lambda: {"": 0})

    def graph(self, graph: Graph) -> Graph:
        return Graph(
            graph.name,
            tuple(self.value(v) for v in graph.inputs),
            tuple(self.value(v) for v in graph.outputs),
            tuple(self.node(n) for n in graph.nodes),
            {self.value(v): self.array(v, a) for v, a in graph.constants.items()},
        )

    def node(self, node: Node) -> Node:
        return replace(
            node,
            inputs=tuple(None if v is None else self.value(v) for v in node.inputs),
            outputs=tuple(None if v is None else self.value(v) for v in node.outputs),
            attributes={k: self.attribute(a) for k, a in node.attributes.items()},
        )

    def attribute(self, attribute: Attribute) -> Attribute:
        return self.graph(attribute) if isinstance(attribute, Graph) else attribute

    def value(self, value: Value) -> Value:
        return Value(value.name, TensorType(DType.INT64, value.shape)) if _is_numbered(value.type) else value

    def array(self, value: Value, array: np.ndarray) -> np.ndarray:
        if value.dtype is not DType.STRING:
            return array
        numbers = [self.strings.setdefault(str(s), len(self.strings)) for s in array.reshape(-1).tolist()]
        return np.array(numbers, np.int64).reshape(array.shape)
