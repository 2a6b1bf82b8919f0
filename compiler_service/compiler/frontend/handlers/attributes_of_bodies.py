"""Attributes of Loop, Scan and If: bodies, and the axes that are scanned."""

from __future__ import annotations

import onnx

from compiler_service.compiler.frontend.importing.node import SourceNode
from shared_ir.errors import ErrorCode, IngotError


def axes_of(node: SourceNode, key: str, count: int) -> tuple[int, ...]:
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


def axis_of(node: SourceNode, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise IngotError(
            ErrorCode.INVALID_MODEL,
            f"{node.op} scans an axis that the tensor does not have",
            expected=f"{-rank} to {rank - 1}",
            received=str(axis),
            remedy="Export the model again.",
        )
    return axis % rank


def body_of(node: SourceNode, key: str) -> onnx.GraphProto:
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


def check_outputs(node: SourceNode, proto: onnx.GraphProto, least: int) -> None:
    if len(proto.output) < least:
        raise malformed(node, f"a graph with at least {least} outputs", proto)


def malformed(node: SourceNode, expected: str, proto: onnx.GraphProto) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_MODEL,
        f"the graph of {node.op} does not fit the node",
        expected=expected,
        received=f"{len(proto.input)} inputs, {len(proto.output)} outputs",
        remedy="Export the model again.",
    )
