"""ONNX to graph IR: the one way in."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from compiler_service.compiler.frontend.importer import GraphImporter
from compiler_service.compiler.frontend.importing.choices import Choices
from compiler_service.compiler.frontend.importing.context import Context
from compiler_service.compiler.frontend.importing.inference import Inference, KnownValues
from compiler_service.compiler.frontend.importing.node import domain_name
from compiler_service.compiler.frontend.importing.numbering import with_numbers
from compiler_service.compiler.frontend.importing.objects import declared_type, is_object
from compiler_service.compiler.frontend.importing.problems import Problems, StopAtFirst
from compiler_service.compiler.frontend.importing.scope import Binding, Frame, Special
from compiler_service.compiler.frontend.options import ImportOptions
from compiler_service.compiler.frontend.reading.defaults import overridable
from compiler_service.compiler.frontend.reading.external_data import ExternalData
from compiler_service.compiler.frontend.reading.limits import ImportBudget, exceeded
from compiler_service.compiler.frontend.reading.source import ModelSource, parse_model
from compiler_service.compiler.frontend.reading.tensors import dtype_of
from compiler_service.compiler.frontend.standard.functions import functions_of
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim, dim_symbols
from shared_ir.graph.ir import Graph, Module, Value
from shared_ir.graph.verify import verify_module
from shared_ir.types import TensorType, ValueKind

_METADATA_CHARACTERS = 4096


def import_model(
    source: ModelSource | bytes | str | Path,
    options: ImportOptions,
    inference: Inference,
    choices: Choices | None = None,
) -> Module:
    """The model as graph IR: operators in their newest form, functions inlined, shapes symbolic.

    Every value has a type; shape arithmetic and known branches are followed while importing. Arrays are views of the
    model's bytes where the file allows it.

    Args:
        source: path or bytes, or a :class:`ModelSource` with external data as named blobs.
        inference: how operators are typed.
        choices: which branches to take of Ifs whose condition is an equality of dims, where a graph can hold but one; says afterwards
            what was chosen.

    Raises:
        IngotError: of the first thing that is wrong, naming the node and the remedy.
    """
    source = ModelSource.of(source)
    data = source.read(options.limits)
    module = import_proto(parse_model(data, options.limits), data, source, options, inference, StopAtFirst(), choices)
    assert module is not None  # StopAtFirst has raised otherwise
    verify_module(module)
    return module


def import_proto(
    proto: onnx.ModelProto,
    data: memoryview,
    source: ModelSource,
    options: ImportOptions,
    inference: Inference,
    problems: Problems,
    choices: Choices | None = None,
) -> Module | None:
    """The module of ``proto``, parsed from ``data``; ``None`` when an output depends on a node that went to ``problems``."""
    *candidates, last = dict.fromkeys(overridable(proto, options.overridable))
    choices = choices or Choices()
    for optional in candidates:
        with contextlib.suppress(IngotError):
            return _imported(proto, data, source, options, inference, StopAtFirst(), choices, optional)
        choices.met.clear()
    return _imported(proto, data, source, options, inference, problems, choices, last)


def _imported(
    proto: onnx.ModelProto,
    data: memoryview,
    source: ModelSource,
    options: ImportOptions,
    inference: Inference,
    problems: Problems,
    choices: Choices,
    optional: frozenset[str],
) -> Module | None:
    """As :func:`import_proto`; the initializers ``optional`` are inputs."""
    limits = options.limits
    context = Context(
        inference,
        problems,
        ImportBudget(limits),
        ExternalData(source.blobs, source.folder, limits, data),
        functions_of(proto),
        KnownValues(),
        choices=choices,
    )
    graph = proto.graph
    _check_names(graph, limits.name_length)
    frame = Frame({domain_name(o.domain): o.version for o in proto.opset_import})
    draft = context.main
    constants = {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    constants -= optional
    interface = [i for i in graph.input if i.name not in constants]
    options.check_names([i.name for i in interface])
    inputs = [_input(info, options, frame, context) for info in interface]
    context.choices.symbols = dim_symbols(d for v in inputs for d in v.shape)
    importer = GraphImporter(context)
    defaults = {t.name: context.array(t, t.name) for t in graph.initializer if t.name in optional}
    _check_defaults(defaults, dict(zip((i.name for i in interface), inputs, strict=True)))
    importer.contents(graph, frame, draft, given=optional)
    declared = {info.name: info for info in graph.output}  # one that is listed again is the same
    outputs = _outputs([(info, importer.output(info, frame, draft)) for info in declared.values()])
    if len(outputs) < len(declared):
        return None
    module = Module(
        Graph("main", tuple(inputs), tuple(outputs), tuple(draft.nodes), draft.constants),
        opset=frame.opsets.get("", 0),
        metadata=_metadata(proto),
        input_names=tuple(i.name for i in interface),
        output_names=tuple(declared),
        defaults=defaults,
    )
    return with_numbers(module)


def _check_names(graph: onnx.GraphProto, most: int) -> None:
    if not graph.output:
        raise _invalid("the graph has no outputs", "", "at least one output", "none")
    for what, names in (("input", [i.name for i in graph.input]), ("output", [o.name for o in graph.output])):
        seen: set[str] = set()
        for name in names:
            if not name or (name in seen and what == "input"):
                raise _invalid(f"an {what} of the graph has no name of its own", name, "distinct names", repr(name))
            if len(name) > most:
                raise exceeded(f"the name of an {what} is too long", f"at most {most} characters", str(len(name)))
            seen.add(name)


def _check_defaults(defaults: Mapping[str, np.ndarray], inputs: Mapping[str, Value]) -> None:
    """Raises IngotError: INVALID_MODEL, a default is not of the type of its input."""
    for name, array in defaults.items():
        value = inputs[name]
        fits = len(value.shape) == array.ndim and all(
            d == n or not isinstance(d, int) for d, n in zip(value.shape, array.shape, strict=True)
        )
        if value.dtype is not DType.of(array) or not fits:
            raise _invalid(
                "the default of an input does not fit it", name, str(value.type), f"{array.dtype}{list(array.shape)}"
            )


def _input(info: onnx.ValueInfoProto, options: ImportOptions, frame: Frame, context: Context) -> Value:
    own = declared_type(info.type, info.name)
    if own is not None and own.kind is ValueKind.MAPS:
        raise IngotError(
            ErrorCode.UNSUPPORTED_DTYPE,
            "an input of the model is a list of maps",
            tensor=info.name,
            expected="a tensor, a sequence of tensors, or an optional of either",
            received="sequence of maps",
            remedy="Export the model so that it takes tensors.",
        )
    if own is not None:
        value = frame.bindings[info.name] = context.value(info.name, own)
        return value
    tensor = info.type.tensor_type
    dtype = dtype_of(tensor.elem_type, info.name)
    override = options.shapes.get(info.name)
    if not tensor.HasField("shape") and override is None:
        raise _invalid(
            "an input of the model has no shape",
            info.name,
            "a shape, with names for what is not known",
            "none",
            f"Give one: shapes={{{info.name!r}: (...)}}.",
        )
    declared = list(tensor.shape.dim)
    if override is not None and tensor.HasField("shape") and len(override) != len(declared):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the shape given for an input has the wrong number of axes",
            tensor=info.name,
            field="shapes",
            expected=f"{len(declared)} entries",
            received=str(len(override)),
            remedy="Give one number or name per axis, None for an axis to leave as it is.",
        )
    given = override if override is not None else [None] * len(declared)
    context.budget.check_rank(tuple(0 for _ in given), info.name)
    shape = tuple(
        _dim(declared[axis] if axis < len(declared) else None, entry, info.name, axis, context)
        for axis, entry in enumerate(given)
    )
    value = context.value(info.name, TensorType(dtype, shape))
    frame.bindings[info.name] = value
    return value


def _dim(
    declared: onnx.TensorShapeProto.Dimension | None, given: int | str | None, name: str, axis: int, context: Context
) -> Dim:
    """One dim of an input: what the user gives, else what the model says, else a symbol of its own.

    Some exporters write ``?`` for every dim that is not known: that is no name, and two of them are not equal.
    """
    if isinstance(given, str):
        return context.symbols.named(given)
    kind = None if declared is None else declared.WhichOneof("value")
    if given is not None:
        static = declared.dim_value if declared is not None and kind == "dim_value" else -1
        if given < 0 or (static >= 0 and static != given):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "the shape given for an input contradicts the model",
                tensor=name,
                field="shapes",
                expected=f"{static} at axis {axis}" if static >= 0 else "sizes >= 0",
                received=str(given),
                remedy="Pin only the dims that the model leaves open.",
            )
        return given
    if declared is not None and kind == "dim_value" and declared.dim_value >= 0:
        return int(declared.dim_value)
    if declared is not None and kind == "dim_param" and any(c.isalnum() for c in declared.dim_param):
        return context.symbols.named(declared.dim_param)
    return context.symbols.fresh(f"{name}_{axis}")


def _outputs(declared: Sequence[tuple[onnx.ValueInfoProto, Binding]]) -> list[Value]:
    """The outputs that are known.

    Raises:
        IngotError: TYPE_MISMATCH for one declared with another element type, INVALID_MODEL for an empty optional without type.
    """
    found = []
    for info, binding in declared:
        if binding is Special.ABSENT:
            raise _invalid("an output of the graph is an empty optional of no type", info.name, "a type", "none")
        if not isinstance(binding, Value):
            continue
        if is_object(binding):
            found.append(binding)
            continue
        number = info.type.tensor_type.elem_type
        if number and dtype_of(number, info.name) is not binding.dtype:
            raise IngotError(
                ErrorCode.TYPE_MISMATCH,
                "an output of the graph has another element type than the model declares",
                tensor=info.name,
                expected=str(dtype_of(number, info.name)),
                received=str(binding.dtype),
                remedy="Export the model again.",
            )
        found.append(binding)
    return found


def _metadata(proto: onnx.ModelProto) -> dict[str, str]:
    own = {
        "producer": f"{proto.producer_name} {proto.producer_version}".strip(),
        "ir_version": str(proto.ir_version),
        "graph": proto.graph.name,
    }
    theirs = {p.key: p.value for p in proto.metadata_props}
    return {k: v for k, v in (theirs | own).items() if v and len(k) + len(v) <= _METADATA_CHARACTERS}


def _invalid(
    message: str, tensor: str, expected: str, received: str, remedy: str = "Export the model again."
) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_MODEL, message, tensor=tensor, expected=expected, received=received, remedy=remedy
    )
