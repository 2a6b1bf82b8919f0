"""Operands must be of a kind that their operator takes: no positions that are floats, no conditions that are numbers.

The standard lists types operator by operator and opset by opset. Ours take more of a kind than it lists for some opset (a narrower float, a
wider integer), and never another kind: what is asked here is whether any form of the operator takes an element of this
kind there, and whether operands that are of one type are.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import onnx.defs

from compiler_service.compiler.frontend.importing.node import SourceNode
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError


class OperandKind(enum.StrEnum):
    """What types have in common that an operator computes with alike."""

    FLOAT = "a float"
    INTEGER = "an integer"
    BOOL = "bool"
    STRING = "string"
    COMPLEX = "complex"


def kind_of(name: str) -> OperandKind:
    """Of an element type as ONNX calls it, or as we do."""
    if name in ("bool", "string"):
        return OperandKind(name)
    if name.startswith("complex"):
        return OperandKind.COMPLEX
    return OperandKind.INTEGER if name.startswith(("int", "uint")) else OperandKind.FLOAT


def check_types(node: SourceNode, dtypes: Sequence[DType | None]) -> None:
    """Of operands in the order of ``node``; None for those that are absent or no tensors.

    Raises:
        IngotError: TYPE_MISMATCH.
    """
    variables: dict[str, tuple[int, DType]] = {}
    for index, dtype in enumerate(dtypes):
        if dtype is None:
            continue
        kinds = _kinds(node.op, node.domain, index)
        if kinds and kind_of(dtype.value) not in kinds:
            raise _mismatch(node, index, " or ".join(sorted(kinds)), dtype)
        variable = _variable(node.op, node.domain, index)
        if variable:
            first, same = variables.setdefault(variable, (index, dtype))
            if same is not dtype:
                raise _mismatch(node, index, f"{same.value}, as {node.inputs[first]!r} is", dtype)


def _mismatch(node: SourceNode, index: int, expected: str, received: DType) -> IngotError:
    return IngotError(
        ErrorCode.TYPE_MISMATCH,
        f"an operand of {node.op} has a type that the operator does not take",
        node=str(node),
        tensor=node.inputs[index],
        expected=expected,
        received=received.value,
        remedy="Export the model again; this node is not valid ONNX.",
    )


@lru_cache(maxsize=4096)
def _kinds(op: str, domain: str, index: int) -> frozenset[OperandKind]:
    """Of tensors that some form of an operator takes as operand ``index``; none where it takes no tensors, or nothing is known."""
    found: set[OperandKind] = set()
    for schema in _forms().get((op, domain), ()):
        parameter = _parameter(schema, index)
        if parameter is not None:
            found |= {kind_of(t[7:-1]) for t in parameter.types if t.startswith("tensor(")}
    return frozenset(found)


@lru_cache(maxsize=4096)
def _variable(op: str, domain: str, index: int) -> str:
    """What the type of operand ``index`` is called in every form that has it; empty where it is its own matter."""
    found = set()
    for schema in _forms().get((op, domain), ()):
        parameter = _parameter(schema, index)
        if parameter is not None:
            is_variable = parameter.type_str in {c.type_param_str for c in schema.type_constraints}
            found.add(parameter.type_str if is_variable and parameter.is_homogeneous else "")
    return found.pop() if len(found) == 1 else ""


def _parameter(schema: Any, index: int) -> Any:
    if index < len(schema.inputs):
        return schema.inputs[index]
    last = schema.inputs[-1] if schema.inputs else None
    is_variadic = last is not None and last.option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    return last if is_variadic else None


@lru_cache(maxsize=1)
def _forms() -> Mapping[tuple[str, str], Sequence[Any]]:
    found: dict[tuple[str, str], list[Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.name, schema.domain), []).append(schema)
    return found
