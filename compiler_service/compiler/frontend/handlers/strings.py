"""Operators that look into strings: functions of the executor. What only moves or compares strings is compiled like numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from compiler_service.compiler.frontend.handlers.objects import ObjectNodes
from compiler_service.compiler.frontend.importing.handler import Handler, Importer
from compiler_service.compiler.frontend.importing.inference import infer_outputs, tensor_type
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.objects import handle_type
from compiler_service.compiler.frontend.importing.scope import Frame, GraphDraft
from compiler_service.compiler.frontend.requirements.defining import Nodes
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim
from shared_ir.graph.ir import Attribute, Value
from shared_ir.regular_expressions import patterns
from shared_ir.types import TensorType, ValueKind

_CASES = ("NONE", "LOWER", "UPPER")
_MOST_EXPRESSION_BYTES = 256 << 20
"""Of one node: a run compiles them, and takes a few seconds for as much."""
Results: TypeAlias = "Sequence[Value | None]"
Expansion: TypeAlias = Callable[[Nodes, tuple[Value, ...]], Results]


def _called(expansion: Expansion, count: int, element: DType = DType.STRING) -> Handler:
    """The handler that puts the nodes of ``expansion`` in place of a node with ``count`` inputs of type ``element``."""

    def handle(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
        if importer.has_unknown_inputs(node, frame):
            importer.bind_unknown(node, frame)
            return
        operands = tuple(v for v in importer.operands(node, frame) if v is not None)
        if len(operands) != count or any(v.dtype is not element for v in operands):
            raise IngotError(
                ErrorCode.TYPE_MISMATCH,
                f"{node.op} cannot be applied to its inputs",
                expected=f"{count} of {element}",
                received=", ".join(str(v.type) for v in operands) or "nothing",
                remedy="Export the model again; this node is not valid ONNX.",
            )
        for name, value in zip(node.outputs, expansion(Nodes(node, draft, importer.context), operands), strict=False):
            if name and value is not None:
                frame.bindings[name] = value

    return handle


def _strings(shape: Sequence[Dim]) -> TensorType:
    return TensorType(DType.STRING, tuple(shape))


def _of_rank(x: Value, more: int = 0) -> TensorType:
    return handle_type(ValueKind.OPTIONAL, DType.STRING, frozenset({x.type.rank + more}))


def _attributes(nodes: Nodes, *names: str) -> dict[str, Attribute]:
    return {name: nodes.source.attributes[name] for name in names if name in nodes.source.attributes}


def string_concat(nodes: Nodes, operands: tuple[Value, ...]) -> Results:
    """The operands are repeated to their common shape by kernels."""
    context = nodes.context
    (common,) = infer_outputs(context.inference, "Equal", operands, {}, context.known)
    assert common is not None
    shape = tensor_type(common).shape
    whole = [v if v.shape == shape else nodes.node("Expand", v, nodes.dims(shape)) for v in operands]
    return [ObjectNodes(nodes).one("string_concat", whole, _strings(shape))]


def string_split(nodes: Nodes, operands: tuple[Value, ...]) -> Results:
    """The parts along a new last axis, whose extent is the most parts that any string has; and how many each has."""
    (x,) = operands
    objects = ObjectNodes(nodes)
    given = _attributes(nodes, "delimiter", "maxsplit")
    parts, counts = objects.call("string_split", (x,), (_of_rank(x, 1), TensorType(DType.INT64, x.shape)), **given)
    return [objects.tensor(parts, x.shape), counts]


def string_normalizer(nodes: Nodes, operands: tuple[Value, ...]) -> Results:
    """Stop words leave the tensor, so that only the run knows its extent."""
    (x,) = operands
    if x.type.rank not in (1, 2):
        raise IngotError(
            ErrorCode.TYPE_MISMATCH,
            "StringNormalizer takes a vector, or a matrix of one row",
            expected="[n] or [1, n]",
            received=str(x.type),
            remedy="Export the model again.",
        )
    objects = ObjectNodes(nodes)
    given = _attributes(nodes, "case_change_action", "is_case_sensitive", "stopwords", "locale")
    if given.get("case_change_action", "NONE") not in _CASES:
        raise IngotError(
            ErrorCode.UNSUPPORTED_ATTRIBUTE,
            "StringNormalizer changes the case of letters in another way",
            field="case_change_action",
            expected=", ".join(_CASES),
            received=repr(given["case_change_action"])[:100],
        )
    found = objects.one("string_normalizer", (x,), _of_rank(x), **given)
    return [objects.tensor(found, (1,) if x.type.rank == 2 else ())]


def tokenizer(nodes: Nodes, operands: tuple[Value, ...]) -> Results:
    """com.microsoft: the tokens of every string along a new last axis, whose extent is the most that any has."""
    (x,) = operands
    objects = ObjectNodes(nodes)
    given = _attributes(nodes, "mark", "mincharnum", "pad_value", "separators", "tokenexp")
    if given.get("tokenexp"):
        _understood((given["tokenexp"],), "tokenexp")
    else:
        _understood(given.get("separators", ()), "separators")
    return [objects.tensor(objects.one("tokenizer", (x,), _of_rank(x, 1), **given), x.shape)]


def regex_full_match(nodes: Nodes, operands: tuple[Value, ...]) -> Results:
    (x,) = operands
    given = _attributes(nodes, "pattern")
    if "pattern" not in given:
        raise IngotError(
            ErrorCode.INVALID_MODEL,
            "RegexFullMatch has no expression",
            field="pattern",
            remedy="Export the model again.",
        )
    _understood((given["pattern"],), "pattern")
    return [ObjectNodes(nodes).one("regex_full_match", (x,), TensorType(DType.BOOL, x.shape), **given)]


def _understood(expressions: Any, field: str) -> None:
    """Compiles the expressions of an attribute, as each run will.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE for what is no regular expression; LIMIT_EXCEEDED, they are very large together.
    """
    taken = 0

    def take(size: int) -> None:
        nonlocal taken
        taken += size
        if taken > _MOST_EXPRESSION_BYTES:
            raise IngotError(
                ErrorCode.LIMIT_EXCEEDED,
                "the regular expressions of a node are too many, or too large",
                field=field,
                expected=f"at most {_MOST_EXPRESSION_BYTES} bytes when they are compiled",
                received=f"{len(expressions)} expressions",
                remedy="Split the text before it reaches the model.",
            )

    patterns(expressions, field, take)


def _cast(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
    """``Cast`` and ``CastLike`` where one side is strings."""
    unknown = importer.has_unknown_inputs(node, frame)
    operands = () if unknown else importer.operands(node, frame)
    x = operands[0] if operands else None
    to = (
        node.attributes.get("to")
        if node.op == "Cast"
        else operands[1].dtype
        if len(operands) > 1 and operands[1]
        else None
    )
    if x is None or not isinstance(to, DType) or (x.dtype is DType.STRING) is (to is DType.STRING):
        if x is not None and x.dtype is DType.STRING and to is DType.STRING:
            frame.bindings[node.outputs[0]] = x
            return
        importer.operator(node, frame, draft)
        return
    nodes = Nodes(node, draft, importer.context)
    function, given = ("string_of", {}) if to is DType.STRING else ("number_of", {"dtype": to})
    frame.bindings[node.outputs[0]] = ObjectNodes(nodes).one(function, (x,), TensorType(to, x.shape), **given)


def _zip_map(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
    """Rows of numbers as maps from class labels."""
    if importer.has_unknown_inputs(node, frame):
        importer.bind_unknown(node, frame)
        return
    x = importer.operands(node, frame)[0]
    labels = node.attributes.get("classlabels_strings") or node.attributes.get("classlabels_int64s") or ()
    if x is None or x.type.rank > 2 or x.shape[-1:] not in ((), (len(labels),)):
        raise IngotError(
            ErrorCode.TYPE_MISMATCH,
            "ZipMap takes as many columns as it has labels",
            expected=f"[n, {len(labels)}]",
            received="nothing" if x is None else str(x.type),
            remedy="Export the model again, or without ZipMap (options={'zipmap': False} of skl2onnx).",
        )
    found = ObjectNodes(Nodes(node, draft, importer.context))
    frame.bindings[node.outputs[0]] = found.one(
        "zip_map", (x,), handle_type(ValueKind.MAPS, x.dtype, None), labels=labels
    )


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "StringConcat": _called(string_concat, 2),
        "StringSplit": _called(string_split, 1),
        "StringNormalizer": _called(string_normalizer, 1),
        "RegexFullMatch": _called(regex_full_match, 1),
        "ai.onnx.ml.ZipMap": _zip_map,
        "com.microsoft.Tokenizer": _called(tokenizer, 1),
        "Cast": _cast,
        "CastLike": _cast,
    }
)
