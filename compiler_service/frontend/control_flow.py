"""``If``, ``Loop`` and ``Scan``: bodies become nested graphs, and the types of the outputs follow from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Protocol, Self, TypeAlias

import onnx

from compiler_service.frontend.arms import DynamicTypeError, import_arm, only_arm, take
from compiler_service.frontend.assume import assume, equality_of
from compiler_service.frontend.context import Context
from compiler_service.frontend.defining import Nodes
from compiler_service.frontend.node import SourceNode
from compiler_service.frontend.objects import HandleType, Objects, declared_type, join
from compiler_service.frontend.scope import Binding, Builder, Frame, SequenceBinding, Special
from shared_ir.dim import Dim, as_dim, dim_symbols
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr, maximum
from shared_ir.graph import Attribute, Graph, Node, Value, graph_free_values
from shared_ir.types import TensorType

Types: TypeAlias = "Sequence[TensorType | None]"
"""``None`` is a type that is not known, because a node before could not be imported."""


class BodyImporter(Protocol):
    """The part of the importer that control flow needs."""

    @property
    def context(self) -> Context: ...

    def body(
        self, proto: onnx.GraphProto, frame: Frame, types: Types = (), number: Expr | None = None
    ) -> tuple[Graph, tuple[Binding, ...]]: ...

    def inline(self, proto: onnx.GraphProto, frame: Frame, builder: Builder) -> tuple[Binding, ...]: ...

    def bind_unknown(self, node: SourceNode, frame: Frame) -> None: ...


Handler: TypeAlias = Callable[[SourceNode, Frame, Builder, BodyImporter], None]


# -- If


def import_if(node: SourceNode, frame: Frame, builder: Builder, importer: BodyImporter) -> None:
    """``If``; where the condition is known only the branch taken is imported, in place of the node.

    A branch that cannot run for these shapes is left out, and the run checks that the condition never asks for it. Where the
    branches differ in rank and the condition is an equality of dims (``squeeze`` of an axis whose extent is a symbol is exported
    so), the equality becomes an assumption that the run checks.
    """
    condition = frame.lookup(node.input(0))
    known = importer.context.known.scalar(condition) if isinstance(condition, Value) else None
    if isinstance(known, bool | int):
        taken = _graph(node, "then_branch" if known else "else_branch")
        _check_outputs(node, taken, len(node.outputs))
        _bind(node, importer.inline(taken, frame, builder), frame)
        return
    protos = {key: _graph(node, key) for key in ("then_branch", "else_branch")}
    for proto in protos.values():
        _check_outputs(node, proto, len(node.outputs))
    arms = [
        import_arm(partial(importer.body, proto, frame), key == "then_branch", importer.context)
        for key, proto in protos.items()
    ]
    only = only_arm(arms)
    if only is not None:
        why = next(arm.refusal for arm in arms if arm.refusal is not None)
        take(only, condition, why, node, builder, importer.context)
        _bind(node, only.outputs, frame)
        return
    branches: dict[str, Attribute] = {key: arm.graph for key, arm in zip(protos, arms, strict=True)}
    results = [arm.outputs for arm in arms]
    equality = equality_of(condition, builder, importer.context) if _disagree(*results) else None
    if equality is not None:
        taken = _graph(node, "then_branch" if equality.holds else "else_branch")
        _bind(node, assume(equality, importer.inline(taken, frame, builder), node, builder, importer.context), frame)
        return
    types = [_merged(node, i, a, b, importer.context) for i, (a, b) in enumerate(zip(*results, strict=True))]
    _finish(node, (condition,), branches, types, frame, builder, importer)


def _of_objects(a: TensorType, b: TensorType, where: str) -> TensorType | None:
    """The type of a sequence or optional that is one or the other; None for tensors."""
    if not isinstance(a, HandleType) and not isinstance(b, HandleType):
        return None
    joined = join(a, b) if isinstance(a, HandleType) and isinstance(b, HandleType) else None
    if joined is None:
        raise DynamicTypeError(
            ErrorCode.TYPE_MISMATCH,
            "a value of control flow is now one kind of sequence or optional, now another",
            tensor=where,
            expected="one kind and element type",
            received=f"{a} and {b}",
            remedy="Export the model again, with equal types of what the graphs of control flow take and give.",
        )
    return joined


def _disagree(then: Sequence[Binding], otherwise: Sequence[Binding]) -> bool:
    """Whether some output has another element type or number of axes in one branch than in the other."""
    pairs = [(a, b) for a, b in zip(then, otherwise, strict=False) if isinstance(a, Value) and isinstance(b, Value)]
    return any(a.dtype is not b.dtype or len(a.shape) != len(b.shape) for a, b in pairs)


def _merged(node: SourceNode, index: int, a: Binding, b: Binding, context: Context) -> TensorType | None:
    """The type of an output of ``If``: a dim on which the branches differ becomes a symbol that the run defines."""
    if _type(a) is None or not isinstance(a, Value) or _type(b) is None or not isinstance(b, Value):
        return None
    joined = _of_objects(a.type, b.type, node.outputs[index])
    if joined is not None:
        return joined
    if a.dtype is not b.dtype or len(a.shape) != len(b.shape):
        raise DynamicTypeError(
            ErrorCode.TYPE_MISMATCH,
            "the branches of If give different types, and the condition is not known while compiling",
            tensor=node.outputs[index],
            expected="equal element type and number of axes in both branches",
            received=f"{a.type} and {b.type}",
            remedy="Pin the shapes of the inputs (shapes={...}) so that the condition becomes known.",
        )
    names = (f"{node.outputs[index]}_{axis}" for axis in range(len(a.shape)))
    dims = zip(a.shape, b.shape, names, strict=True)
    return TensorType(a.dtype, tuple(p if p == q else context.symbols.fresh(n) for p, q, n in dims))


# -- Loop


def import_loop(node: SourceNode, frame: Frame, builder: Builder, importer: BodyImporter) -> None:
    """``Loop``: dims of the state that change from one iteration to the next become symbols, and so does the number of the
    iteration."""
    context = importer.context
    proto = _graph(node, "body")
    inputs = tuple(frame.lookup(n) for n in node.inputs)
    count = len(inputs) - 2
    if len(proto.input) != count + 2 or len(proto.output) < count + 1:
        raise _malformed(node, f"a body with {count + 2} inputs and at least {count + 1} outputs", proto)
    _check_outputs(node, proto, len(node.outputs) + 1)
    objects = Objects(Nodes(node, builder, context))
    declared = [declared_type(info.type, info.name) for info in proto.input[2:]]
    state_inputs = tuple(objects.value(b, t) for b, t in zip(inputs[2:], declared, strict=True))
    inputs = (*inputs[:2], *state_inputs)
    head = [TensorType(DType.INT64, ()), TensorType(DType.BOOL, ())]
    counter = context.symbols.fresh(f"{node.title}_i")
    state, graph, outputs = _settled(node, proto, head, inputs[2:], frame, importer, number=counter)
    trip = _trip_count(node, inputs, graph, outputs, context)
    outside = _Outside.of(node, inputs, graph, context)
    types = [outside.type(i, _type(outputs[1 + i]), before) for i, before in enumerate(state)]
    for index, output in enumerate(outputs[count + 1 :], start=count):
        element = _row(node, index, outside.type(index, _type(output)))
        types.append(None if element is None else TensorType(element.dtype, (trip, *element.shape)))
    _finish(node, inputs, {"body": graph, "counter": counter}, types, frame, builder, importer)


def _settled(
    node: SourceNode,
    proto: onnx.GraphProto,
    head: Sequence[TensorType],
    initial: Sequence[Binding],
    frame: Frame,
    importer: BodyImporter,
    tail: Types = (),
    number: Expr | None = None,
) -> tuple[list[TensorType | None], Graph, tuple[Binding, ...]]:
    """The body for state types that its own outputs keep: dims that change are made symbols until none does.

    Returns:
        types of the state inputs, the body, and what its outputs are bound to.
    """
    state = [_type(b) for b in initial]
    loose: set[Dim] = set()
    first = 1 if head else 0  # a Loop body gives its condition first
    while True:
        graph, outputs = importer.body(proto, frame, [*head, *state, *tail], number)
        after = [_type(b) for b in outputs[first : first + len(state)]]
        general = [
            _generalised(node, a, b, proto.input[len(head) + i].name, loose, importer.context)
            for i, (a, b) in enumerate(zip(state, after, strict=True))
        ]
        if general == state:
            return state, graph, outputs
        state = general


def _generalised(
    node: SourceNode,
    before: TensorType | None,
    after: TensorType | None,
    name: str,
    loose: set[Dim],
    context: Context,
) -> TensorType | None:
    """``before`` with a new symbol, added to ``loose``, for every dim that ``after`` changes; loose dims may change."""
    if before is None or after is None:
        return before
    joined = _of_objects(before, after, name)
    if joined is not None:
        return joined
    if before.dtype is not after.dtype or before.rank != after.rank:
        raise DynamicTypeError(
            ErrorCode.TYPE_MISMATCH,
            f"{node.op} changes the type of a carried value",
            tensor=name,
            expected=f"{before} after every iteration",
            received=str(after),
            remedy="Give the carried value the same element type and number of axes before and after the body.",
        )
    shape = list(before.shape)
    for axis, (old, new) in enumerate(zip(before.shape, after.shape, strict=True)):
        if old != new and old not in loose:
            shape[axis] = context.symbols.fresh(f"{name}_{axis}")
            loose.add(shape[axis])
    return TensorType(before.dtype, tuple(shape))


@dataclass(frozen=True)
class _Outside:
    """Types of the body as the enclosing graph sees them: dims that only the body knows become symbols of the run."""

    node: SourceNode
    inner: frozenset[str]
    context: Context

    @classmethod
    def of(cls, node: SourceNode, inputs: Sequence[Binding], graph: Graph, context: Context) -> Self:
        inside = (*graph.inputs, *(v for n in graph.nodes for v in n.results))
        outside = (*graph_free_values(graph), *(b for b in inputs if isinstance(b, Value)))
        return cls(node, _symbols(inside) - _symbols(outside), context)

    def type(self, index: int, after: TensorType | None, before: TensorType | None = None) -> TensorType | None:
        """The type of output ``index`` that is ``after`` in the last iteration and ``before`` in the first."""
        if after is None:
            return None
        if isinstance(after, HandleType):
            return after if before is None else _of_objects(before, after, self.node.title)
        name = self.node.outputs[index] if index < len(self.node.outputs) else ""

        def outer(axis: int, dim: Dim) -> Dim:
            changes = before is not None and before.shape[axis] != dim
            return self.context.symbols.fresh(f"{name}_{axis}") if changes or dim_symbols([dim]) & self.inner else dim

        return TensorType(after.dtype, tuple(outer(axis, dim) for axis, dim in enumerate(after.shape)))


def _row(node: SourceNode, index: int, type: TensorType | None) -> TensorType | None:
    """The type of what is stacked over the iterations."""
    if isinstance(type, HandleType):
        raise IngotError(
            ErrorCode.INVALID_MODEL,
            f"{node.op} stacks tensors alone",
            tensor=node.outputs[index] if index < len(node.outputs) else "",
            expected="a tensor",
            received=str(type),
            remedy="Carry the sequence from one iteration to the next.",
        )
    return type


def _symbols(values: Sequence[Value]) -> frozenset[str]:
    return dim_symbols(d for v in values for d in v.shape)


def _trip_count(
    node: SourceNode, inputs: Sequence[Binding], graph: Graph, outputs: Sequence[Binding], context: Context
) -> Dim:
    """How often the body runs, where the limit is known and the condition cannot end the loop sooner."""
    limit = inputs[0]
    most = context.known.scalar(limit) if isinstance(limit, Value) else None
    start = inputs[1]
    starts = start is Special.ABSENT or (isinstance(start, Value) and context.known.scalar(start) is True)
    goes_on = outputs[0]
    keeps = isinstance(goes_on, Value) and (
        context.known.scalar(goes_on) is True or _is_passed_on(goes_on, graph.inputs[1], graph)
    )
    if starts and keeps and isinstance(most, int | Expr) and not isinstance(most, bool):
        return as_dim(maximum(most, 0) if isinstance(most, Expr) else max(most, 0))
    return context.symbols.fresh(f"{node.title}_trips")


def _is_passed_on(value: Value, source: Value, graph: Graph) -> bool:
    """Whether ``value`` is ``source``, possibly through ``Identity`` nodes."""
    while value != source:
        producer = graph.producers.get(value)
        if producer is None or producer.op != "Identity":
            return False
        value = producer.operands[0]
    return True


# -- Scan


def import_scan(node: SourceNode, frame: Frame, builder: Builder, importer: BodyImporter) -> None:
    """``Scan``: the body sees its sequences without the axis it scans."""
    context = importer.context
    proto = _graph(node, "body")
    sequences = int(node.attributes.get("num_scan_inputs", 0))
    inputs = tuple(frame.lookup(n) for n in node.inputs)
    count = len(inputs) - sequences
    if not 1 <= sequences <= len(inputs) or len(proto.input) != len(inputs) or len(proto.output) < count:
        raise _malformed(node, f"a body with {len(inputs)} inputs and at least {count} outputs", proto)
    _check_outputs(node, proto, len(node.outputs))
    in_axes = _axes(node, "scan_input_axes", sequences)
    out_axes = _axes(node, "scan_output_axes", len(proto.output) - count)
    whole = [_type(b) for b in inputs[count:]]
    axes = [None if t is None else _axis(node, a, t.rank) for t, a in zip(whole, in_axes, strict=True)]
    slices = [_without(t, axis) for t, axis in zip(whole, axes, strict=True)]
    state, graph, outputs = _settled(node, proto, (), inputs[:count], frame, importer, slices)
    length = next((t.shape[a] for t, a in zip(whole, axes, strict=True) if t is not None and a is not None), 0)
    outside = _Outside.of(node, inputs, graph, context)
    types = [outside.type(i, _type(outputs[i]), before) for i, before in enumerate(state)]
    for index, (output, axis) in enumerate(zip(outputs[count:], out_axes, strict=True), start=count):
        element = _row(node, index, outside.type(index, _type(output)))
        types.append(None if element is None else _with(element, _axis(node, axis, element.rank + 1), length))
    attributes: dict[str, Attribute] = {
        "num_scan_inputs": sequences,
        "scan_input_axes": in_axes,
        "scan_input_directions": _axes(node, "scan_input_directions", sequences),
        "scan_output_axes": out_axes,
        "scan_output_directions": _axes(node, "scan_output_directions", len(proto.output) - count),
        "body": graph,
    }
    _finish(node, inputs, attributes, types, frame, builder, importer)


def _axes(node: SourceNode, key: str, count: int) -> tuple[int, ...]:
    given = node.attributes.get(key)
    axes = tuple(given) if given else (0,) * count
    if len(axes) != count:
        raise IngotError(
            ErrorCode.INVALID_MODEL,
            "Scan has an attribute of the wrong length",
            field=key,
            expected=f"{count} entries",
            received=str(len(axes)),
            remedy="Export the model again.",
        )
    return axes


def _axis(node: SourceNode, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise IngotError(
            ErrorCode.INVALID_MODEL,
            f"{node.op} scans an axis that the tensor does not have",
            expected=f"{-rank} to {rank - 1}",
            received=str(axis),
            remedy="Export the model again.",
        )
    return axis % rank


def _without(type: TensorType | None, axis: int | None) -> TensorType | None:
    if type is None or axis is None:
        return None
    return TensorType(type.dtype, (*type.shape[:axis], *type.shape[axis + 1 :]))


def _with(type: TensorType, axis: int, dim: Dim) -> TensorType:
    return TensorType(type.dtype, (*type.shape[:axis], dim, *type.shape[axis:]))


# -- common


def _graph(node: SourceNode, key: str) -> onnx.GraphProto:
    proto = node.attributes.get(key)
    if not isinstance(proto, onnx.GraphProto):
        raise IngotError(
            ErrorCode.INVALID_MODEL,
            f"{node.op} lacks its graph",
            field=key,
            expected="a graph",
            received=type(proto).__name__,
            remedy="Export the model again.",
        )
    return proto


def _check_outputs(node: SourceNode, proto: onnx.GraphProto, least: int) -> None:
    if len(proto.output) < least:
        raise _malformed(node, f"a graph with at least {least} outputs", proto)


def _malformed(node: SourceNode, expected: str, proto: onnx.GraphProto) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_MODEL,
        f"the graph of {node.op} does not fit the node",
        expected=expected,
        received=f"{len(proto.input)} inputs, {len(proto.output)} outputs",
        remedy="Export the model again.",
    )


def _type(binding: Binding) -> TensorType | None:
    if isinstance(binding, SequenceBinding) or binding is Special.ABSENT:
        raise IngotError(
            ErrorCode.INVALID_MODEL,
            "control flow takes and gives values",
            expected="a tensor, a sequence, or an optional of a declared type",
            received="a sequence" if isinstance(binding, SequenceBinding) else "an empty optional of no type",
            remedy="Export the model again, with the types of what the graphs of control flow take and give.",
        )
    return binding.type if isinstance(binding, Value) else None


def _bind(node: SourceNode, results: Sequence[Binding], frame: Frame) -> None:
    for name, result in zip(node.outputs, results, strict=False):
        if name:
            frame.bindings[name] = result


def _finish(
    node: SourceNode,
    inputs: Sequence[Binding],
    attributes: Mapping[str, Attribute],
    types: Types,
    frame: Frame,
    builder: Builder,
    importer: BodyImporter,
) -> None:
    """Append the node and bind its outputs; all are unknown when anything of it is."""
    if Special.UNKNOWN in inputs or any(t is None for t in types):
        importer.bind_unknown(node, frame)
        return
    outputs: list[Value | None] = []
    for name, type in zip(node.outputs, types, strict=False):
        value = importer.context.value(name, type) if name and type is not None else None
        outputs.append(value)
        if value is not None:
            frame.bindings[name] = value
    operands = tuple(b if isinstance(b, Value) else None for b in inputs)
    builder.nodes.append(Node(node.op, operands, tuple(outputs), attributes, node.title))


HANDLERS: Mapping[str, Handler] = MappingProxyType({"If": import_if, "Loop": import_loop, "Scan": import_scan})
