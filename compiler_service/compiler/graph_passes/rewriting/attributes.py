"""Reading attributes of nodes with their type."""

from __future__ import annotations

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import Node


def int_attribute(node: Node, name: str, default: int = 0) -> int:
    value = node.attributes.get(name, default)
    if not isinstance(value, int):
        raise _wrong(node, name, "an integer")
    return value


def float_attribute(node: Node, name: str, default: float) -> float:
    value = node.attributes.get(name, default)
    if not isinstance(value, (int, float)):
        raise _wrong(node, name, "a number")
    return float(value)


def text_attribute(node: Node, name: str, default: str) -> str:
    value = node.attributes.get(name, default)
    if not isinstance(value, str):
        raise _wrong(node, name, "a text")
    return value


def ints_attribute(node: Node, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    value = node.attributes.get(name, default)
    if not isinstance(value, tuple):
        raise _wrong(node, name, "integers")
    numbers = tuple(v for v in value if isinstance(v, int))
    if len(numbers) != len(value):
        raise _wrong(node, name, "integers")
    return numbers


def _wrong(node: Node, name: str, expected: str) -> IngotError:
    received = str(node.attributes.get(name))
    return IngotError(
        ErrorCode.COMPILER_FAULT,
        f"attribute {name} is malformed",
        str(node),
        field=name,
        expected=expected,
        received=received,
    )


def is_channels_first(node: Node) -> bool:
    """Whether an operator on ``[n, c, ..]`` is as ONNX has it: no layout has been chosen for it."""
    return not {"layout", "data_layout"} & set(node.attributes)
