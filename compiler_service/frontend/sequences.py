"""Sequences and optionals whose length and presence the importer knows: lists of values while importing, nothing afterwards.

Exporters write ``split``, ``chunk`` and ``unbind`` as SplitToSequence and SequenceAt; all of that is resolved here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol, TypeAlias

import numpy as np
import onnx

from compiler_service.frontend.context import Context
from compiler_service.frontend.defining import Nodes
from compiler_service.frontend.node import SourceNode
from compiler_service.frontend.scope import Binding, Builder, Frame, SequenceBinding, Special
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph import Value


class InliningImporter(Protocol):
    """The part of the importer that sequences need."""

    @property
    def context(self) -> Context: ...

    def inline(
        self, proto: onnx.GraphProto, frame: Frame, builder: Builder, inputs: tuple[Binding, ...] = ()
    ) -> tuple[Binding, ...]: ...

    def operator(self, node: SourceNode, frame: Frame, builder: Builder) -> None: ...

    def bind_unknown(self, node: SourceNode, frame: Frame) -> None: ...

    def has_unknown_inputs(self, node: SourceNode, frame: Frame) -> bool: ...


Handler: TypeAlias = Callable[[SourceNode, Frame, Builder, InliningImporter], None]
_Result: TypeAlias = "Binding | tuple[Binding, ...]"
_Resolver: TypeAlias = Callable[[Nodes, tuple[Binding, ...]], _Result]


def _resolved(resolver: _Resolver) -> Handler:
    """The handler that binds the outputs of a node to what ``resolver`` says."""

    def handle(node: SourceNode, frame: Frame, builder: Builder, importer: InliningImporter) -> None:
        if importer.has_unknown_inputs(node, frame):
            importer.bind_unknown(node, frame)
            return
        result = resolver(Nodes(node, builder, importer.context), tuple(frame.lookup(n) for n in node.inputs))
        frame.bindings[node.outputs[0]] = result[0] if isinstance(result, tuple) else result

    return handle


# -- sequences


def _sequence(nodes: Nodes, binding: Binding) -> SequenceBinding:
    if isinstance(binding, SequenceBinding):
        return binding
    raise IngotError(
        ErrorCode.UNSUPPORTED_OPERATOR,
        f"the length of a sequence must be known while compiling, for {nodes.source.op}",
        expected="a sequence that the graph itself puts together from a fixed number of tensors",
        received="a tensor" if isinstance(binding, Value) else "a sequence of the run",
        remedy="Export the model so that it takes and gives tensors.",
    )


def _tensor(nodes: Nodes, binding: Binding) -> Value:
    if isinstance(binding, Value):
        return binding
    raise IngotError(ErrorCode.INVALID_MODEL, f"{nodes.source.op} takes a tensor", remedy="Export the model again.")


def _position(nodes: Nodes, bindings: tuple[Binding, ...], index: int, count: int, default: int) -> int:
    """A position in a sequence, counted from the end when negative."""
    if index >= len(bindings) or bindings[index] is Special.ABSENT:
        return default
    found = nodes.context.known.scalar(_tensor(nodes, bindings[index]))
    if not isinstance(found, int) or not -count <= found <= count:
        raise IngotError(
            ErrorCode.UNSUPPORTED_ATTRIBUTE,
            f"the position in a sequence must be known while compiling, for {nodes.source.op}",
            field="position",
            expected=f"a constant from {-count} to {count}",
            received="values computed from data" if found is None else str(found),
            remedy="Export the model with tensors in place of sequences.",
        )
    return found + count if found < 0 else found


def construct(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    return SequenceBinding(tuple(_tensor(nodes, b) for b in bindings))


def insert(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    values = _sequence(nodes, bindings[0]).values
    at = _position(nodes, bindings, 2, len(values), len(values))
    return SequenceBinding((*values[:at], _tensor(nodes, bindings[1]), *values[at:]))


def erase(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    values = _sequence(nodes, bindings[0]).values
    at = _position(nodes, bindings, 1, len(values), len(values) - 1)
    return SequenceBinding((*values[:at], *values[at + 1 :]))


def element(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    values = _sequence(nodes, bindings[0]).values
    at = _position(nodes, bindings, 1, len(values), 0)
    if at >= len(values):
        raise IngotError(
            ErrorCode.INVALID_MODEL,
            "SequenceAt asks for an element that the sequence does not have",
            expected=f"less than {len(values)}",
            received=str(at),
            remedy="Export the model again.",
        )
    return values[at]


def length(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    return nodes.scalar(len(_sequence(nodes, bindings[0]).values))


def concat(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    values = _sequence(nodes, bindings[0]).values
    axis = int(nodes.source.attributes.get("axis", 0))
    if nodes.source.attributes.get("new_axis", 0):
        values = tuple(nodes.node("Unsqueeze", v, nodes.integers(axis)) for v in values)
    return nodes.node("Concat", *values, axis=axis, name=nodes.source.outputs[0])


def split(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    """Parts of extent 1 without ``split``; of the extents it lists; of its one extent, the last part what is left."""
    x = _tensor(nodes, bindings[0])
    axis = int(nodes.source.attributes.get("axis", 0)) % x.type.rank
    extent = x.shape[axis]
    sizes = None
    if len(bindings) > 1 and isinstance(bindings[1], Value):
        sizes = nodes.context.known.get(bindings[1])
    if len(bindings) == 1 or bindings[1] is Special.ABSENT:
        sizes = np.array(1)
    if sizes is not None and sizes.ndim == 0 and isinstance(extent, int) and isinstance(sizes.item(), int):
        each = max(1, sizes.item())
        sizes = np.array([min(each, extent - start) for start in range(0, extent, each)])
    if sizes is None or sizes.ndim != 1 or not all(isinstance(s, int) for s in sizes.tolist()):
        raise IngotError(
            ErrorCode.UNSUPPORTED_ATTRIBUTE,
            "the number of parts of SplitToSequence must be known while compiling",
            field="split",
            expected="constant sizes, or one size along an axis of constant extent",
            received=f"an axis of extent {extent}",
            remedy="Pin the extent of the axis (shapes={...}), or export the model with Split.",
        )
    parts, start = [], 0
    for size in sizes.tolist():
        bounds = (nodes.integers(start), nodes.integers(start + size), nodes.integers(axis))
        part = nodes.node("Slice", x, *bounds)
        if len(bindings) == 1 and not nodes.source.attributes.get("keepdims", 1):
            part = nodes.node("Squeeze", part, nodes.integers(axis))
        parts.append(part)
        start += size
    return SequenceBinding(tuple(parts))


def sequence_map(node: SourceNode, frame: Frame, builder: Builder, importer: InliningImporter) -> None:
    """The body once for every element; inputs that are tensors are the same each time."""
    nodes = Nodes(node, builder, importer.context)
    body, inputs = node.attributes.get("body"), tuple(frame.lookup(n) for n in node.inputs)
    if importer.has_unknown_inputs(node, frame) or not isinstance(body, onnx.GraphProto):
        importer.bind_unknown(node, frame)
        return
    count = len(_sequence(nodes, inputs[0]).values)
    results = []
    for i in range(count):
        own = tuple(b.values[i] if isinstance(b, SequenceBinding) else b for b in inputs)
        results.append(importer.inline(body, frame, builder, own))
    for position, name in enumerate(node.outputs):
        frame.bindings[name] = SequenceBinding(tuple(_tensor(nodes, r[position]) for r in results))


def identity(node: SourceNode, frame: Frame, builder: Builder, importer: InliningImporter) -> None:
    given = frame.lookup(node.inputs[0])
    if isinstance(given, SequenceBinding):
        frame.bindings[node.outputs[0]] = given
    else:
        importer.operator(node, frame, builder)


# -- optionals


def optional(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    return bindings[0] if bindings else Special.ABSENT


def optional_element(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    if not bindings or bindings[0] is Special.ABSENT:
        raise IngotError(
            ErrorCode.INVALID_MODEL,
            "OptionalGetElement asks for the element of an empty optional",
            remedy="Ask OptionalHasElement first.",
        )
    return bindings[0]


def optional_has_element(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    return nodes.constant(np.array(bool(bindings) and bindings[0] is not Special.ABSENT), "has_element")


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "SequenceConstruct": _resolved(construct),
        "SequenceEmpty": _resolved(construct),
        "SequenceInsert": _resolved(insert),
        "SequenceErase": _resolved(erase),
        "SequenceAt": _resolved(element),
        "SequenceLength": _resolved(length),
        "ConcatFromSequence": _resolved(concat),
        "SplitToSequence": _resolved(split),
        "SequenceMap": sequence_map,
        "Identity": identity,
        "Optional": _resolved(optional),
        "OptionalGetElement": _resolved(optional_element),
        "OptionalHasElement": _resolved(optional_has_element),
    }
)
