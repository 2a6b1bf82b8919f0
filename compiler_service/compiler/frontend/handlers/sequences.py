"""Sequences and optionals: where the importer knows their length and presence they are lists of values while importing, and
nothing afterwards; else they are objects of the run (:mod:`objects`).

Exporters write ``split``, ``chunk`` and ``unbind`` as SplitToSequence and SequenceAt; all of that is resolved here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import onnx

from compiler_service.compiler.frontend.handlers.objects import ObjectNodes
from compiler_service.compiler.frontend.importing.handler import Handler, Importer
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.objects import HandleType, handle_type, is_object, join
from compiler_service.compiler.frontend.importing.scope import Binding, Frame, GraphDraft, SequenceBinding, Special
from compiler_service.compiler.frontend.reading.tensors import dtype_of
from compiler_service.compiler.frontend.requirements.defining import Nodes
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim
from shared_ir.graph.ir import Value
from shared_ir.types import TensorType, ValueKind

_Result: TypeAlias = "Binding | tuple[Binding, ...]"
_Resolver: TypeAlias = Callable[[Nodes, tuple[Binding, ...]], _Result]


def _resolved(resolver: _Resolver) -> Handler:
    """The handler that binds the outputs of a node to what ``resolver`` says."""

    def handle(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
        if importer.has_unknown_inputs(node, frame):
            importer.bind_unknown(node, frame)
            return
        result = resolver(Nodes(node, draft, importer.context), tuple(frame.lookup(n) for n in node.inputs))
        frame.bindings[node.outputs[0]] = result[0] if isinstance(result, tuple) else result

    return handle


# -- sequences


def _handle(nodes: Nodes, binding: Binding) -> tuple[Value, HandleType]:
    """The sequence as an object of the run."""
    found = ObjectNodes(nodes).value(binding)
    if isinstance(found, Value) and isinstance(found.type, HandleType) and found.type.kind.is_sequence:
        return found, found.type
    raise IngotError(
        ErrorCode.INVALID_MODEL,
        f"{nodes.source.op} takes a sequence",
        expected="a sequence",
        received="a tensor" if isinstance(binding, Value) else "nothing",
        remedy="Export the model again.",
    )


def _tensor(nodes: Nodes, binding: Binding) -> Value:
    if isinstance(binding, Value) and not is_object(binding):
        return binding
    raise IngotError(ErrorCode.INVALID_MODEL, f"{nodes.source.op} takes a tensor", remedy="Export the model again.")


def _element(nodes: Nodes, binding: Binding) -> tuple[Value, DType, frozenset[int] | None]:
    """A tensor, possibly one whose rank only the run knows: its element type and ranks."""
    if isinstance(binding, Value) and isinstance(binding.type, HandleType) and binding.type.kind is ValueKind.OPTIONAL:
        return binding, binding.type.element, binding.type.ranks
    found = _tensor(nodes, binding)
    return found, found.dtype, frozenset({found.type.rank})


def _position(nodes: Nodes, bindings: tuple[Binding, ...], index: int, count: int, default: int) -> int | None:
    """A position in a sequence, counted from the end when negative; None where only the run knows it."""
    if index >= len(bindings) or bindings[index] is Special.ABSENT:
        return default
    found = nodes.context.known.scalar(_tensor(nodes, bindings[index]))
    if not isinstance(found, int):
        return None
    if not -count <= found <= count:
        raise IngotError(
            ErrorCode.INVALID_MODEL,
            f"{nodes.source.op} asks for an element that the sequence does not have",
            field="position",
            expected=f"{-count} to {count}",
            received=str(found),
            remedy="Export the model again.",
        )
    return found + count if found < 0 else found


def _optional_operand(nodes: Nodes, bindings: tuple[Binding, ...], index: int) -> Value | None:
    if index >= len(bindings) or bindings[index] is Special.ABSENT:
        return None
    return _tensor(nodes, bindings[index])


def construct(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    element = nodes.source.attributes.get("dtype", DType.FLOAT32) if not bindings else None
    if any(is_object(b) for b in bindings):
        return _construct_of_objects(nodes, bindings)
    values = tuple(_tensor(nodes, b) for b in bindings)
    return SequenceBinding(values, values[0].dtype if values else element)


def _construct_of_objects(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    found = [_element(nodes, b) for b in bindings]
    ranks = None if any(r is None for _, _, r in found) else frozenset(i for _, _, r in found for i in r or ())
    type = handle_type(ValueKind.SEQUENCE, found[0][1], ranks)
    return ObjectNodes(nodes).one("sequence_construct", [v for v, _, _ in found], type)


def insert(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    sequence = bindings[0]
    if isinstance(sequence, SequenceBinding) and not is_object(bindings[1]):
        values, tensor = sequence.values, _tensor(nodes, bindings[1])
        at = _position(nodes, bindings, 2, len(values), len(values))
        if at is not None:
            return SequenceBinding((*values[:at], tensor, *values[at:]), tensor.dtype)
    handle, type = _handle(nodes, sequence)
    value, element, ranks = _element(nodes, bindings[1])
    joined = join(type, handle_type(ValueKind.SEQUENCE, element, ranks))
    if joined is None:
        raise IngotError(
            ErrorCode.TYPE_MISMATCH,
            "SequenceInsert puts a tensor of another element type into a sequence",
            expected=str(type.element),
            received=str(element),
            remedy="Export the model again.",
        )
    position = _optional_operand(nodes, bindings, 2)
    return ObjectNodes(nodes).one("sequence_insert", (handle, value, position), joined)


def erase(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    sequence = bindings[0]
    if isinstance(sequence, SequenceBinding):
        values = sequence.values
        at = _position(nodes, bindings, 1, len(values), len(values) - 1)
        if at is not None:
            return SequenceBinding((*values[:at], *values[at + 1 :]), sequence.element)
    handle, type = _handle(nodes, sequence)
    return ObjectNodes(nodes).one("sequence_erase", (handle, _optional_operand(nodes, bindings, 1)), type)


def element(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    sequence = bindings[0]
    if isinstance(sequence, SequenceBinding):
        at = _position(nodes, bindings, 1, len(sequence.values), 0)
        if at is not None and at < len(sequence.values):
            return sequence.values[at]
    handle, type = _handle(nodes, sequence)
    position = _optional_operand(nodes, bindings, 1)
    found = ObjectNodes(nodes).one("sequence_at", (handle, position), _one_of(type))
    return _as_tensor(nodes, found)


def _one_of(type: HandleType, more: int = 0) -> HandleType:
    """A tensor of a sequence, with ``more`` axes."""
    ranks = None if type.ranks is None else frozenset(r + more for r in type.ranks)
    return handle_type(ValueKind.OPTIONAL, type.element, ranks)


def _as_tensor(nodes: Nodes, handle: Value) -> Value:
    """The tensor that ``handle`` stands for; the handle itself where its rank is not known: sequences may still take it."""
    assert isinstance(handle.type, HandleType)
    known = handle.type.ranks is not None and len(handle.type.ranks) == 1
    return ObjectNodes(nodes).tensor(handle) if known else handle


def length(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    sequence = bindings[0]
    if isinstance(sequence, SequenceBinding):
        return nodes.scalar(len(sequence.values))
    handle, _ = _handle(nodes, sequence)
    return ObjectNodes(nodes).one("sequence_length", (handle,), TensorType(DType.INT64, ()))


def concat(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    axis, stacked = int(nodes.source.attributes.get("axis", 0)), int(nodes.source.attributes.get("new_axis", 0))
    sequence = bindings[0]
    if isinstance(sequence, SequenceBinding) and sequence.values:
        values = sequence.values
        if stacked:
            values = tuple(nodes.node("Unsqueeze", v, nodes.integers(axis)) for v in values)
        return nodes.node("Concat", *values, axis=axis, output=nodes.source.outputs[0])
    handle, type = _handle(nodes, sequence)
    found = ObjectNodes(nodes).one("sequence_concat", (handle,), _one_of(type, stacked), axis=axis, new_axis=stacked)
    return _as_tensor(nodes, found)


def split(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    """Parts of extent 1 without ``split``; of the extents it lists; of its one extent, the last part what is left."""
    x = _tensor(nodes, bindings[0])
    axis = int(nodes.source.attributes.get("axis", 0)) % x.type.rank
    given = _optional_operand(nodes, bindings, 1)
    keeps = given is not None or int(nodes.source.attributes.get("keepdims", 1)) == 1
    sizes = _split_sizes(nodes, x.shape[axis], given)
    if sizes is None:
        type = handle_type(ValueKind.SEQUENCE, x.dtype, frozenset({x.type.rank if keeps else x.type.rank - 1}))
        return ObjectNodes(nodes).one("split_to_sequence", (x, given), type, axis=axis, keepdims=int(keeps))
    parts, start = [], 0
    for size in sizes:
        bounds = (nodes.integers(start), nodes.integers(start + size), nodes.integers(axis))
        part = nodes.node("Slice", x, *bounds)
        parts.append(part if keeps else nodes.node("Squeeze", part, nodes.integers(axis)))
        start += size
    return SequenceBinding(tuple(parts), x.dtype)


MOST_PARTS = 1024
"""Parts of a tensor that become nodes of their own; more are a sequence of the run."""


def _split_sizes(nodes: Nodes, extent: Dim, given: Value | None) -> list[int] | None:
    """The extents of the parts; None where only the run knows them, or there are very many."""
    sizes = np.array(1) if given is None else nodes.context.known.get(given)
    if sizes is None or not all(isinstance(s, int) for s in sizes.reshape(-1).tolist()):
        return None
    if sizes.ndim == 1:
        return [int(s) for s in sizes.tolist()]
    if not isinstance(extent, int):
        return None
    each = max(1, int(sizes.item()))
    if extent > MOST_PARTS * each:
        return None
    return [min(each, extent - start) for start in range(0, extent, each)]


def sequence_map(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
    """The body once for every element, where their number is known, else the loop that the standard defines; inputs that are
    tensors are the same each time."""
    nodes = Nodes(node, draft, importer.context)
    body, inputs = node.attributes.get("body"), tuple(frame.lookup(n) for n in node.inputs)
    if importer.has_unknown_inputs(node, frame) or not isinstance(body, onnx.GraphProto):
        importer.bind_unknown(node, frame)
        return
    first = inputs[0]
    if not isinstance(first, SequenceBinding) or any(is_object(b) for b in inputs):
        importer.by_definition(node, frame, draft)
        return
    results = []
    for i in range(len(first.values)):
        own = tuple(b.values[i] if isinstance(b, SequenceBinding) else b for b in inputs)
        results.append(importer.inline(body, frame, draft, own))
    for position, name in enumerate(node.outputs):
        parts = tuple(_tensor(nodes, r[position]) for r in results)
        declared = dtype_of(body.output[position].type.tensor_type.elem_type, name) if not parts else parts[0].dtype
        frame.bindings[name] = SequenceBinding(parts, declared)


def identity(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
    given = frame.lookup(node.inputs[0])
    if isinstance(given, SequenceBinding) or is_object(given):
        frame.bindings[node.outputs[0]] = given
    else:
        importer.operator(node, frame, draft)


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
    given = bindings[0]
    if not isinstance(given, Value) or not isinstance(given.type, HandleType):
        return given
    if given.type.kind is ValueKind.OPTIONAL:
        return _as_tensor(nodes, given)
    if not given.type.kind.is_optional:
        return given
    type = handle_type(ValueKind.SEQUENCE, given.type.element, given.type.ranks)
    return ObjectNodes(nodes).one("required", (given,), type)


def optional_has_element(nodes: Nodes, bindings: tuple[Binding, ...]) -> _Result:
    given = bindings[0] if bindings else Special.ABSENT
    if isinstance(given, Value) and isinstance(given.type, HandleType) and given.type.kind.is_optional:
        return nodes.node("Not", nodes.node("Equal", given, nodes.scalar(0)))
    return nodes.constant(np.array(given is not Special.ABSENT), "has_element")


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
