"""Graphs of the protobuf to graphs of the IR, node by node."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx

from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.adapters.table import adapt, is_adapted, newest_name
from compiler_service.compiler.frontend.handlers import (
    control_flow,
    data_dependent,
    decided_extents,
    padding,
    random_numbers,
    reductions,
    sequences,
    strings,
)
from compiler_service.compiler.frontend.handlers.objects import ObjectNodes
from compiler_service.compiler.frontend.importing.attributes import read_attributes
from compiler_service.compiler.frontend.importing.constants import constant_array, graph_attributes
from compiler_service.compiler.frontend.importing.context import Context
from compiler_service.compiler.frontend.importing.handler import Handler
from compiler_service.compiler.frontend.importing.inference import tensor_type
from compiler_service.compiler.frontend.importing.node import INTERNAL_DOMAIN, SourceNode, domain_name
from compiler_service.compiler.frontend.importing.objects import declared_type, is_object
from compiler_service.compiler.frontend.importing.scope import Binding, Frame, GraphDraft, SequenceBinding, Special
from compiler_service.compiler.frontend.reading.limits import exceeded
from compiler_service.compiler.frontend.reading.order import describe, in_order
from compiler_service.compiler.frontend.reading.source import NEWEST_OPSET
from compiler_service.compiler.frontend.requirements.allowed_values import check_values, is_checked
from compiler_service.compiler.frontend.requirements.conditions import append_checked, conditions_of
from compiler_service.compiler.frontend.requirements.defining import Nodes, aligned, infer_defined
from compiler_service.compiler.frontend.requirements.few_elements import of_few_elements
from compiler_service.compiler.frontend.requirements.operand_checks import check_operands
from compiler_service.compiler.frontend.requirements.operand_shapes import check_shapes
from compiler_service.compiler.frontend.requirements.operand_types import check_types
from compiler_service.compiler.frontend.standard.functions import (
    FunctionCall,
    call_of_local,
    call_of_standard,
    has_definition,
)
from compiler_service.compiler.frontend.standard.refusals import (
    no_opset,
    no_tensor,
    unsupported,
    unsupported_output,
)
from compiler_service.compiler.frontend.standard.schemas import check_form, schema_of, with_defaults
from compiler_service.compiler.frontend.standard.uses import without_hints
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr, Var
from shared_ir.expr.dim import bind, dim_symbols
from shared_ir.graph.ir import Attribute, Graph, Node, Value
from shared_ir.types import TensorType

HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **control_flow.HANDLERS,
        **data_dependent.HANDLERS,
        **decided_extents.HANDLERS,
        **padding.HANDLERS,
        **random_numbers.HANDLERS,
        **reductions.HANDLERS,
        **sequences.HANDLERS,
        **strings.HANDLERS,
    }
)
"""Operators that are more than one node of the graph IR, or none."""


@dataclass
class GraphImporter:
    """Imports nodes into a :class:`GraphDraft`, binding names in a :class:`Frame`."""

    context: Context

    # -- graphs

    def contents(self, proto: onnx.GraphProto, frame: Frame, draft: GraphDraft, given: Container[str] = ()) -> None:
        """Initializers and nodes of a graph; those ``given`` are bound already."""
        declared = [i for i in (*proto.value_info, *proto.output) if i.type.tensor_type.HasField("shape")]
        frame.ranks |= {i.name: len(i.type.tensor_type.shape.dim) for i in declared}
        for tensor in proto.initializer:
            if tensor.name in given:
                continue
            self.context.constant(tensor.name, self.context.array(tensor, tensor.name), frame, draft)
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            self.context.constant(name, self.context.array(sparse, name), frame, draft)
        self.nodes(proto.node, frame, draft)

    def body(
        self,
        proto: onnx.GraphProto,
        frame: Frame,
        types: Sequence[TensorType | None] = (),
        number: Expr | None = None,
    ) -> tuple[Graph, tuple[Binding, ...]]:
        """A nested graph whose inputs have ``types`` (``None``: not known), and what its outputs are bound to.

        ``number`` is the element of the first input, where that is known. The graph is only meaningful when every output is
        a :class:`Value`.
        """
        inside = self._nested_frame(frame)
        if types:
            inside.counters = None if number is None or frame.counters is None else (*frame.counters, number)
        draft = GraphDraft()
        inputs = []
        for info, type in zip(proto.input, types, strict=True):
            binding: Binding = Special.UNKNOWN if type is None else self.context.value(info.name, type)
            inside.bindings[info.name] = binding
            inputs.append(binding)
        if number is not None and isinstance(inputs[0], Value):
            self.context.known.add(inputs[0], np.full((), number, dtype=object))
        self.contents(proto, inside, draft)
        outputs = tuple(self.output(info, inside, draft) for info in proto.output)
        graph = Graph(proto.name or "body", _values(inputs), _values(outputs), tuple(draft.nodes), draft.constants)
        return graph, outputs

    def output(self, info: onnx.ValueInfoProto, frame: Frame, draft: GraphDraft) -> Binding:
        """What an output of a graph is bound to; sequences and optionals become objects of the run."""
        nodes = Nodes(SourceNode("Identity", (info.name,), (info.name,), name=info.name), draft, self.context)
        return ObjectNodes(nodes).value(frame.lookup(info.name), declared_type(info.type, info.name))

    def inline(
        self, proto: onnx.GraphProto, frame: Frame, draft: GraphDraft, inputs: tuple[Binding, ...] = ()
    ) -> tuple[Binding, ...]:
        """The nodes of a nested graph put where it stands; what its outputs are bound to."""
        inside = self._nested_frame(frame)
        inside.bindings.update(zip((i.name for i in proto.input), inputs, strict=True))
        self.contents(proto, inside, draft)
        return tuple(inside.lookup(o.name) for o in proto.output)

    def _nested_frame(self, frame: Frame) -> Frame:
        inside = frame.nested()
        if inside.depth > self.context.budget.limits.nesting:
            raise exceeded("graphs are nested too deeply", f"at most {self.context.budget.limits.nesting}", "more")
        return inside

    # -- nodes

    def nodes(self, protos: Sequence[onnx.NodeProto], frame: Frame, draft: GraphDraft) -> None:
        for proto in in_order(protos, frame.is_defined):
            self.node(proto, frame, draft)

    def node(self, proto: onnx.NodeProto, frame: Frame, draft: GraphDraft) -> None:
        """One ONNX node; what it cannot become is reported, and its outputs are then unknown."""
        self.context.budget.spend_node(len(proto.input))
        domain = domain_name(proto.domain)
        own = proto.name or next(filter(None, proto.output), "")
        name = f"{frame.prefix}{own}" if frame.prefix else proto.name
        opset = frame.opsets.get(domain, 0)
        inputs, outputs = tuple(proto.input), tuple(proto.output)
        rank = frame.ranks.get(outputs[0]) if outputs else None
        source = SourceNode(proto.op_type, inputs, outputs, {}, domain, name, opset, proto.overload, rank)
        try:
            attributes = read_attributes(proto.attribute, frame.attributes, describe(proto))
            self.translate(source.with_(attributes=attributes), frame, draft)
        except IngotError as error:
            self.context.problems.report(error.located(node=str(source)), source)
            self.bind_unknown(source, frame)

    def bind_unknown(self, node: SourceNode, frame: Frame) -> None:
        for output in filter(None, node.outputs):
            frame.bindings[output] = Special.UNKNOWN

    def translate(self, node: SourceNode, frame: Frame, draft: GraphDraft) -> None:
        """A node as it stands in the model: a function call, a constant, or an operator in some older form."""
        function = call_of_local(node, self.context.functions)
        if function is not None:
            self.call(node, function, frame, draft)
            return
        if node.domain == INTERNAL_DOMAIN:  # whose operators take for granted what the compiler makes sure of
            raise unsupported(node)
        if not node.opset:
            raise no_opset(node)
        schema = schema_of(node)
        if schema is None and not is_adapted(node):
            self._handled(node, frame, draft, known=bool(node.domain))
            return
        if schema is not None:
            node = with_defaults(node, schema)
            check_form(node, schema)
            check_types(node, [b.dtype if isinstance(b, Value) else None for b in map(frame.lookup, node.inputs)])
            node = without_hints(node)
        if node.op == "Constant" and not node.domain:
            array = constant_array(node, self.context)
            self.context.constant(node.outputs[0], array, frame, draft)
            return
        if is_adapted(node) and self.has_unknown_inputs(node, frame):
            self._bind_unknown_if_supported(node.with_(op=newest_name(node), domain=""), frame)
            return
        node = of_few_elements(node, frame, draft, self.context)
        check_shapes(node, frame, draft)
        if is_checked(node.qualified) and not self.has_unknown_inputs(node, frame):
            check_values(Nodes(node, draft, self.context), self.operands(node, frame), node.attributes)
        operands = Operands(self.context, frame, draft, node)
        for adapted in adapt(node, operands):
            self.newest(adapted, frame, draft)

    def newest(self, node: SourceNode, frame: Frame, draft: GraphDraft) -> None:
        """A node of the standard domain in its newest form."""
        if not node.domain:
            node = node.with_(opset=NEWEST_OPSET)
            schema = schema_of(node)
            node = node if schema is None else with_defaults(node, schema)
            node = without_hints(node)
            check_shapes(node, frame, draft)
        self._handled(node, frame, draft)

    def _handled(self, node: SourceNode, frame: Frame, draft: GraphDraft, known: bool = True) -> None:
        """By the handler of the operator, where it is ``known`` to be what its name says; else a node of the IR."""
        handler = HANDLERS.get(node.qualified) if known else None
        if handler is not None:
            handler(node, frame, draft, self)
        else:
            self.operator(node, frame, draft)

    def operator(self, node: SourceNode, frame: Frame, draft: GraphDraft) -> None:
        """A node of the IR: its operator must be in the inventory, or have a definition by other operators."""
        context = self.context
        if node.qualified not in context.inference.operators:
            self.by_definition(node, frame, draft)
            return
        if self.has_unknown_inputs(node, frame):
            self.bind_unknown(node, frame)
            return
        inputs = self.operands(node, frame)
        attributes = graph_attributes(node, context)
        inputs, outputs = infer_defined(node, inputs, attributes, draft, context)
        conditions = conditions_of(inputs, outputs, context.known)  # of operands as they are, before they are stretched
        wide, outputs = aligned(node, inputs, outputs, attributes, draft, context)
        if wide is not inputs:
            inputs = wide
            conditions = tuple(dict.fromkeys((*conditions, *conditions_of(inputs, outputs, context.known))))
        check_operands(Nodes(node, draft, context), inputs, attributes)
        own = self._own_symbols(inputs, outputs)
        emitted = self.emit(node, inputs, attributes, _with_symbols(outputs, own), frame)
        append_checked(draft, emitted, conditions, node, own)

    def by_definition(self, node: SourceNode, frame: Frame, draft: GraphDraft) -> None:
        """Expand an operator that the standard defines by others.

        Raises:
            IngotError: UNSUPPORTED_OPERATOR or UNSUPPORTED_DOMAIN where there is no such definition.
        """
        types = [b.type if isinstance(b, Value) else None for b in map(frame.lookup, node.inputs)]
        definition = call_of_standard(node, types)
        if definition is not None:
            self.call(node, definition, frame, draft)
        else:
            self._bind_unknown_if_supported(node, frame)

    def _bind_unknown_if_supported(self, node: SourceNode, frame: Frame) -> None:
        """For a node whose inputs are unknown: the operator is all that can be checked."""
        defined = has_definition(node) and self.has_unknown_inputs(node, frame)
        if node.qualified not in self.context.inference.operators and not defined:
            raise unsupported(node)
        self.bind_unknown(node, frame)

    def call(self, node: SourceNode, call: FunctionCall, frame: Frame, draft: GraphDraft) -> None:
        """Inline a function."""
        if call.key in frame.calls:
            raise IngotError(
                ErrorCode.INVALID_MODEL,
                "a function of the model calls itself",
                expected="functions that do not recurse",
                received=" -> ".join(k[1] for k in (*frame.calls, call.key)),
                remedy="Export the model again; ONNX functions must not recurse.",
            )
        inside = Frame(call.opsets, None, call.attributes, (*frame.calls, call.key), f"{node.title}/", frame.depth + 1)
        inside.counters = frame.counters
        if inside.depth > self.context.budget.limits.nesting:
            raise exceeded("functions are nested too deeply", f"at most {self.context.budget.limits.nesting}", "more")
        for index, name in enumerate(call.inputs):
            inside.bindings[name] = frame.lookup(node.input(index))
        self.nodes(call.nodes, inside, draft)
        for name, inner in zip(node.outputs, call.outputs, strict=False):
            if name:
                frame.bindings[name] = inside.lookup(inner)

    # -- values

    def operands(self, node: SourceNode, frame: Frame) -> tuple[Value | None, ...]:
        bindings = [frame.lookup(n) for n in node.inputs]
        for name, binding in zip(node.inputs, bindings, strict=True):
            if isinstance(binding, SequenceBinding) or is_object(binding):
                raise no_tensor(node, name)
        while bindings and bindings[-1] is Special.ABSENT:
            bindings.pop()
        return tuple(b if isinstance(b, Value) else None for b in bindings)

    def has_unknown_inputs(self, node: SourceNode, frame: Frame) -> bool:
        return any(frame.lookup(n) is Special.UNKNOWN for n in node.inputs)

    def _own_symbols(self, inputs: Sequence[Value | None], outputs: Sequence[Tensor | None]) -> Mapping[str, Var]:
        """The symbols that the operator itself defines (the count of NonZero), and their names in the graph."""
        given = dim_symbols(d for v in inputs if v is not None for d in v.shape)
        given |= _value_symbols([self.context.known.get(v) for v in inputs])
        made = dim_symbols(d for t in outputs if t is not None for d in t.shape) - given
        return {s: self.context.symbols.fresh(s) for s in sorted(made)}

    def emit(
        self,
        node: SourceNode,
        inputs: tuple[Value | None, ...],
        attributes: dict[str, Attribute],
        outputs: Sequence[tuple[TensorType, np.ndarray | None] | None],
        frame: Frame,
    ) -> Node:
        """The node, with its outputs bound."""
        values: list[Value | None] = []
        for index, name in enumerate(node.outputs):
            inferred = outputs[index] if index < len(outputs) else None
            if not name:
                values.append(None)
                continue
            if inferred is None:
                raise unsupported_output(node, index)
            type, elements = inferred
            value = self.context.value(name, type)
            self.context.known.add(value, elements)
            frame.bindings[name] = value
            values.append(value)
        self.context.ranges.learn(node.qualified, attributes, inputs, values)
        while values and values[-1] is None:
            values.pop()
        return Node(node.qualified, inputs, tuple(values), attributes, node.title)


def _with_symbols(
    outputs: Sequence[Tensor | None], own: Mapping[str, Var]
) -> list[tuple[TensorType, np.ndarray | None] | None]:
    """Output types, with the symbols that the operator defines called as :meth:`GraphImporter._own_symbols` says."""
    renamed = {s: v for s, v in own.items() if v.name != s}
    found: list[tuple[TensorType, np.ndarray | None] | None] = []
    for tensor in outputs:
        if tensor is None:
            found.append(None)
            continue
        type = tensor_type(tensor)
        shape = tuple(bind(d, renamed) for d in type.shape) if renamed else type.shape
        found.append((TensorType(type.dtype, shape), None if renamed else tensor.value))
    return found


def _values(bindings: Sequence[Binding]) -> tuple[Value, ...]:
    return tuple(b for b in bindings if isinstance(b, Value))


def _value_symbols(values: Sequence[np.ndarray | None]) -> frozenset[str]:
    elements = (e for v in values if v is not None for e in v.reshape(-1).tolist())
    return dim_symbols(e for e in elements if isinstance(e, Expr))
