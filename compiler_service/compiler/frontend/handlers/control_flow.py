"""``If``, ``Loop`` and ``Scan``: bodies become nested graphs, and the types of the outputs follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

import onnx

from compiler_service.compiler.frontend.handlers.arms import DynamicTypeError, import_arm, only_arm, take
from compiler_service.compiler.frontend.handlers.attributes_of_bodies import (
    axes_of,
    axis_of,
    body_of,
    check_outputs,
    malformed,
)
from compiler_service.compiler.frontend.handlers.body_types import (
    Outside,
    generalised,
    merged,
    stacked,
    type_of,
    with_axis,
    without_axis,
)
from compiler_service.compiler.frontend.handlers.equality import choose, equality_of
from compiler_service.compiler.frontend.handlers.objects import ObjectNodes
from compiler_service.compiler.frontend.handlers.ranks import conformed, started, unread, widened
from compiler_service.compiler.frontend.handlers.unrolling import never_runs, unrolled
from compiler_service.compiler.frontend.importing.context import Context
from compiler_service.compiler.frontend.importing.handler import Handler, Importer, Types
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.objects import declared_type
from compiler_service.compiler.frontend.importing.scope import Binding, Frame, GraphDraft, Special
from compiler_service.compiler.frontend.requirements.conditions import check_equal
from compiler_service.compiler.frontend.requirements.defining import Nodes
from shared_ir.dtype import DType
from shared_ir.expr import Expr, maximum
from shared_ir.expr.dim import Dim, as_dim, dim_symbols
from shared_ir.graph.ir import Attribute, Graph, Node, Value
from shared_ir.types import TensorType

# -- If


def import_if(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
    """``If``; where the condition is known only the branch taken is imported, in place of the node.

    A branch that cannot run for these shapes is left out, and the run checks that the condition never asks for it. Where the
    branches differ in rank and the condition is an equality of dims (``squeeze`` of an axis whose extent is a symbol is exported
    so), one of them is chosen, and the run checks that it may be (:mod:`compiler_service.compiler.frontend.importing.choices`).
    """
    condition = frame.lookup(node.input(0))
    known = importer.context.known.scalar(condition) if isinstance(condition, Value) else None
    if isinstance(known, bool | int):
        taken = body_of(node, "then_branch" if known else "else_branch")
        check_outputs(node, taken, len(node.outputs))
        _bind(node, importer.inline(taken, frame, draft), frame)
        return
    protos = {key: body_of(node, key) for key in ("then_branch", "else_branch")}
    for proto in protos.values():
        check_outputs(node, proto, len(node.outputs))
    arms = [
        import_arm(partial(importer.body, proto, frame), key == "then_branch", importer.context)
        for key, proto in protos.items()
    ]
    only = only_arm(arms)
    if only is not None:
        why = next(arm.refusal for arm in arms if arm.refusal is not None)
        take(only, condition, why, node, draft, importer.context)
        _bind(node, only.outputs, frame)
        return
    results = [arm.outputs for arm in arms]
    equality = equality_of(condition, draft, importer.context) if _disagree(*results) else None
    if equality is not None:
        chosen = choose(equality, node, draft, importer.context)
        taken = body_of(node, "then_branch" if chosen else "else_branch")
        _bind(node, importer.inline(taken, frame, draft), frame)
        return
    types = [merged(node, i, a, b, importer.context) for i, (a, b) in enumerate(zip(*results, strict=True))]
    branches: dict[str, Attribute] = {
        key: conformed(arm.graph, arm.outputs, types, node, importer.context)[0]
        for key, arm in zip(protos, arms, strict=True)
    }
    _finish(node, (condition,), branches, types, frame, draft, importer)


def _disagree(then: Sequence[Binding], otherwise: Sequence[Binding]) -> bool:
    """Whether some output has another element type or number of axes in one branch than in the other."""
    pairs = [(a, b) for a, b in zip(then, otherwise, strict=False) if isinstance(a, Value) and isinstance(b, Value)]
    return any(a.dtype is not b.dtype or len(a.shape) != len(b.shape) for a, b in pairs)


# -- Loop


def import_loop(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
    """``Loop``: dims of the state that change from one iteration to the next become symbols, and so does the number of the
    iteration."""
    context = importer.context
    proto = body_of(node, "body")
    inputs = tuple(frame.lookup(n) for n in node.inputs)
    count = len(inputs) - 2
    if len(proto.input) != count + 2 or len(proto.output) < count + 1:
        raise malformed(node, f"a body with {count + 2} inputs and at least {count + 1} outputs", proto)
    check_outputs(node, proto, len(node.outputs) + 1)
    nodes = Nodes(node, draft, context)
    objects = ObjectNodes(nodes)
    declared = [declared_type(info.type, info.name) for info in proto.input[2:]]
    state_inputs = tuple(objects.value(b, t) for b, t in zip(inputs[2:], declared, strict=True))
    inputs = (*inputs[:2], *state_inputs)
    if never_runs(inputs, context) and len(node.outputs) <= count:
        _bind(node, state_inputs, frame)
        return
    head = [TensorType(DType.INT64, ()), TensorType(DType.BOOL, ())]
    counter = context.symbols.fresh(f"{node.title}_i")
    most = _most_trips(inputs[0], context)
    if most is not None:
        context.ranges.counters[counter] = most
    runs = _starts(inputs[1], context) and _at_least_once(inputs[0], context)
    try:
        state, graph, outputs = _settled(node, proto, head, state_inputs, frame, importer, number=counter, runs=runs)
    except DynamicTypeError:
        if not _unroll(node, proto, inputs, frame, draft, importer):
            raise
        return
    inputs = (*inputs[:2], *(started(b, t, nodes) for b, t in zip(state_inputs, state, strict=True)))
    trip = _trip_count(node, inputs, graph, outputs, context)
    outside = Outside.of(node, inputs, graph, context)
    types = [outside.type(i, type_of(outputs[1 + i]), before) for i, before in enumerate(state)]
    for index, output in enumerate(outputs[count + 1 :], start=count):
        element = stacked(node, index, outside.type(index, type_of(output)))
        types.append(None if element is None else TensorType(element.dtype, (trip, *element.shape)))
    _finish(node, inputs, {"body": graph, "counter": counter}, types, frame, draft, importer)


def _unroll(
    node: SourceNode,
    proto: onnx.GraphProto,
    inputs: Sequence[Binding],
    frame: Frame,
    draft: GraphDraft,
    importer: Importer,
) -> bool:
    """The iterations of a loop in place of the node, where that can be."""
    own = GraphDraft()
    results = unrolled(
        inputs,
        len(node.outputs),
        lambda given: importer.inline(proto, frame, own, given),
        Nodes(node, own, importer.context),
    )
    if results is None:
        return False
    draft.nodes.extend(own.nodes)
    draft.constants.update(own.constants)
    _bind(node, results, frame)
    return True


def _settled(
    node: SourceNode,
    proto: onnx.GraphProto,
    head: Sequence[TensorType],
    initial: Sequence[Binding],
    frame: Frame,
    importer: Importer,
    tail: Types = (),
    number: Expr | None = None,
    *,
    runs: bool = False,
) -> tuple[list[TensorType | None], Graph, tuple[Binding, ...]]:
    """The body for state types that its own outputs keep: dims that change are made symbols until none does.

    Args:
        runs: the body is known to run at least once.

    Returns:
        types of the state inputs, the body, and what its outputs are bound to.
    """
    context = importer.context
    state = [type_of(b) for b in initial]
    loose: set[Dim] = set()
    first = 1 if head else 0  # a Loop body gives its condition first
    while True:
        graph, outputs = importer.body(proto, frame, [*head, *state, *tail], number)
        after = [type_of(b) for b in outputs[first : first + len(state)]]
        given = state
        if runs and None not in state:
            inner = Outside.of(node, initial, graph, context).inner
            carried = graph.inputs[len(head) : len(head) + len(state)]
            given = [_unseen(a, b, graph, v, inner) for a, b, v in zip(state, after, carried, strict=True)]
        general = [
            generalised(node, a, b, proto.input[len(head) + i].name, loose, context)
            for i, (a, b) in enumerate(zip(given, after, strict=True))
        ]
        if general == state:
            return state, *conformed(graph, outputs, [*[None] * first, *state], node, context)
        state = general


def _unseen(
    before: TensorType | None, after: TensorType | None, graph: Graph, value: Value, inner: frozenset[str]
) -> TensorType | None:
    """``after`` for a carried ``value`` that comes in as another type where the body does not look at it."""
    if before is None or after is None or (before.dtype is after.dtype and before.rank == after.rank):
        return before
    known = not dim_symbols(after.shape) & inner
    return after if known and widened(before, after) is None and unread(graph, value) else before


def _trip_count(
    node: SourceNode, inputs: Sequence[Binding], graph: Graph, outputs: Sequence[Binding], context: Context
) -> Dim:
    """How often the body runs, where the limit is known and the condition cannot end the loop sooner."""
    most = _most_trips(inputs[0], context)
    goes_on = outputs[0]
    keeps = isinstance(goes_on, Value) and (
        context.known.scalar(goes_on) is True or _is_passed_on(goes_on, graph.inputs[1], graph)
    )
    if _starts(inputs[1], context) and keeps and most is not None:
        return as_dim(maximum(most, 0) if isinstance(most, Expr) else max(most, 0))
    return context.symbols.fresh(f"{node.title}_trips")


def _starts(condition: Binding, context: Context) -> bool:
    """Whether a loop is known to go into its first iteration, as far as its condition goes."""
    return condition is Special.ABSENT or (isinstance(condition, Value) and context.known.scalar(condition) is True)


def _most_trips(limit: Binding, context: Context) -> int | Expr | None:
    """The limit of a loop, where it is known."""
    most = context.known.scalar(limit) if isinstance(limit, Value) else None
    return most if isinstance(most, int | Expr) and not isinstance(most, bool) else None


def _at_least_once(limit: Binding, context: Context) -> bool:
    most = _most_trips(limit, context)
    return limit is Special.ABSENT or (isinstance(most, int) and most >= 1)


def _is_passed_on(value: Value, source: Value, graph: Graph) -> bool:
    """Whether ``value`` is ``source``, possibly through ``Identity`` nodes."""
    while value != source:
        producer = graph.producers.get(value)
        if producer is None or producer.op != "Identity":
            return False
        value = producer.operands[0]
    return True


# -- Scan


def import_scan(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
    """``Scan``: the body sees its sequences without the axis it scans."""
    context = importer.context
    proto = body_of(node, "body")
    sequences = int(node.attributes.get("num_scan_inputs", 0))
    inputs = tuple(frame.lookup(n) for n in node.inputs)
    count = len(inputs) - sequences
    if not 1 <= sequences <= len(inputs) or len(proto.input) != len(inputs) or len(proto.output) < count:
        raise malformed(node, f"a body with {len(inputs)} inputs and at least {count} outputs", proto)
    check_outputs(node, proto, len(node.outputs))
    in_axes = axes_of(node, "scan_input_axes", sequences)
    out_axes = axes_of(node, "scan_output_axes", len(proto.output) - count)
    whole = [type_of(b) for b in inputs[count:]]
    axes = [None if t is None else axis_of(node, a, t.rank) for t, a in zip(whole, in_axes, strict=True)]
    slices = [without_axis(t, axis) for t, axis in zip(whole, axes, strict=True)]
    state, graph, outputs = _settled(node, proto, (), inputs[:count], frame, importer, slices)
    nodes = Nodes(node, draft, context)
    inputs = (*(started(b, t, nodes) for b, t in zip(inputs, state, strict=False)), *inputs[count:])
    lengths = [t.shape[a] for t, a in zip(whole, axes, strict=True) if t is not None and a is not None]
    length = next(iter(lengths), 0)
    if lengths:
        check_equal(draft, lengths, "the scanned axes must be equally long", node)
    outside = Outside.of(node, inputs, graph, context)
    types = [outside.type(i, type_of(outputs[i]), before) for i, before in enumerate(state)]
    for index, (output, axis) in enumerate(zip(outputs[count:], out_axes, strict=True), start=count):
        element = stacked(node, index, outside.type(index, type_of(output)))
        types.append(None if element is None else with_axis(element, axis_of(node, axis, element.rank + 1), length))
    attributes: dict[str, Attribute] = {
        "num_scan_inputs": sequences,
        "scan_input_axes": in_axes,
        "scan_input_directions": axes_of(node, "scan_input_directions", sequences),
        "scan_output_axes": out_axes,
        "scan_output_directions": axes_of(node, "scan_output_directions", len(proto.output) - count),
        "body": graph,
    }
    _finish(node, inputs, attributes, types, frame, draft, importer)


# -- common


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
    draft: GraphDraft,
    importer: Importer,
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
    draft.nodes.append(Node(node.op, operands, tuple(outputs), attributes, node.title))


HANDLERS: Mapping[str, Handler] = MappingProxyType({"If": import_if, "Loop": import_loop, "Scan": import_scan})
