"""How a definition says no: the typed errors of operators, with what was expected and what came."""

from __future__ import annotations

from collections.abc import Sequence

from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim, dims_text


def mismatch(message: str, expected: str, received: str) -> IngotError:
    """The inputs do not fit the operator or each other."""
    return IngotError(
        ErrorCode.TYPE_MISMATCH,
        message,
        expected=expected,
        received=received,
        remedy="Run onnx.checker.check_model with full_check=True on the model and correct the node.",
    )


def unsupported_attribute(name: str, expected: str, received: str) -> IngotError:
    """An attribute has a value that this compiler does not implement."""
    return IngotError(
        ErrorCode.UNSUPPORTED_ATTRIBUTE,
        f"attribute {name} has an unsupported value",
        field=name,
        expected=expected,
        received=received,
        remedy="Export the model with a supported value of this attribute.",
    )


def too_large(message: str, expected: str, received: str) -> IngotError:
    """What a node asks for takes more time or memory than a compilation has."""
    return IngotError(
        ErrorCode.LIMIT_EXCEEDED,
        message,
        expected=expected,
        received=received,
        remedy="Make the model smaller; several nodes may do what one does.",
    )


class UnknownValueError(IngotError):
    """An input decides a shape, but its elements are computed by the run; ``tensor`` is its name."""


def unknown_value(name: str, tensor: str) -> UnknownValueError:
    """The error for an input called ``name`` by ONNX."""
    return UnknownValueError(
        ErrorCode.UNSUPPORTED_ATTRIBUTE,
        f"input {name} must be known at compile time",
        tensor=tensor,
        field=name,
        expected="a constant or arithmetic on dims",
        received="values computed from data",
        remedy="Make it a constant, or simplify the model so that it depends on shapes only.",
    )


def unknown_extent(name: str, tensor: str, shape: Sequence[Dim], why: str) -> IngotError:
    """The error for an input called ``name`` by ONNX whose ``shape`` leaves open what must be a number; ``why`` it must."""
    return IngotError(
        ErrorCode.UNSUPPORTED_ATTRIBUTE,
        f"an extent of the input {name} must be known at compile time: {why}",
        tensor=tensor,
        field=name,
        expected="a number",
        received=f"[{dims_text(shape)}]",
        remedy="Export the model with that extent, or pin it where it is an extent of an input of the model (shapes).",
    )


def unsupported_dtype(what: str, received: DType, expected: str) -> IngotError:
    """An element type that the operator, or this compiler, does not take."""
    return IngotError(
        ErrorCode.UNSUPPORTED_DTYPE,
        f"{what} does not take {received}",
        expected=expected,
        received=str(received),
        remedy="Cast the tensor to a supported element type.",
    )
