"""The inventory assembled, and the types of a node's outputs from running its definition."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from compiler_service.compiler.tensor_expr.assumptions import assumptions, tensors_of
from compiler_service.compiler.tensor_expr.domains import check_domains
from compiler_service.compiler.tensor_expr.meaning.known import MOST_KNOWN_OF_MATRIX
from compiler_service.compiler.tensor_expr.meaning.own import guarded
from compiler_service.compiler.tensor_expr.meaning.symbolic import evaluate_symbolic
from compiler_service.compiler.tensor_expr.operator import Definition, Inputs, Operator
from compiler_service.compiler.tensor_expr.operators import (
    activation,
    arithmetic,
    classical,
    comparison,
    conversion,
    convolution,
    dynamic,
    elimination,
    folding,
    fractions,
    gathering,
    generation,
    interpolation,
    matmul,
    movement,
    ngrams,
    nibbles,
    normalization,
    pooling,
    quantized,
    random_numbers,
    ranking,
    recurrent,
    reduction,
    regions,
    reshaping,
    resize,
    scattering,
    sequential,
    signal,
    slicing,
    training,
)
from compiler_service.compiler.tensor_expr.operators.sequential import EXTERNAL_OP, LOOPS_OP
from compiler_service.compiler.tensor_expr.refusal import mismatch, unsupported_dtype
from compiler_service.compiler.tensor_expr.strings import check_strings
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import dims_text, product
from shared_ir.graph.ir import Attribute

_INVENTORY: dict[str, Operator] = {
    operator.name: operator
    for family in (
        arithmetic.OPERATORS,
        comparison.OPERATORS,
        conversion.OPERATORS,
        activation.OPERATORS,
        reduction.OPERATORS,
        matmul.OPERATORS,
        nibbles.OPERATORS,
        convolution.OPERATORS,
        pooling.OPERATORS,
        normalization.OPERATORS,
        reshaping.OPERATORS,
        movement.OPERATORS,
        gathering.OPERATORS,
        generation.OPERATORS,
        resize.OPERATORS,
        scattering.OPERATORS,
        interpolation.OPERATORS,
        regions.OPERATORS,
        folding.OPERATORS,
        quantized.OPERATORS,
        dynamic.OPERATORS,
        recurrent.OPERATORS,
        sequential.OPERATORS,
        random_numbers.OPERATORS,
        ranking.OPERATORS,
        elimination.OPERATORS,
        signal.OPERATORS,
        ngrams.OPERATORS,
        slicing.OPERATORS,
        classical.OPERATORS,
        fractions.OPERATORS,
        training.OPERATORS,
    )
    for operator in family
}
OPERATORS: Mapping[str, Operator] = MappingProxyType(_INVENTORY)
"""The operators that there are, by name; those of a domain that is not the standard's begin with it."""

_OWN_VERSIONS: dict[str, str] = {}
_TAKEN_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "com.microsoft", "ingot")
_DOMAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}\Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}\Z")

_COMPLEX = frozenset({DType.COMPLEX64, DType.COMPLEX128})


def register_operator(domain: str, name: str, definition: Definition, version: str = "") -> None:
    """From now on nodes ``name`` of ``domain`` mean what ``definition`` says, in this process; the last one registered counts.

    Args:
        definition: as that of an :class:`Operator`.
        version: part of what artifacts are known by; it changes wherever the definition does.

    Raises:
        IngotError: INVALID_ARGUMENT, the domain has its operators already, no model could have these names, the version is no text,
            or the definition cannot be called with inputs and attributes.
    """
    for text, form, field, expected in (
        (domain, _DOMAIN, "domain", "letters, digits and '.-_', such as com.example"),
        (name, _NAME, "name", "letters, digits and '_'"),
    ):
        if not isinstance(text, str) or not form.match(text) or text in _TAKEN_DOMAINS:
            message = f"no operator can be registered for the {field} {str(text)[:80]!r}"
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT, message, field=field, expected=expected, received=str(text)[:80]
            )
    if not isinstance(version, str):
        message = "the version of an operator is no text"
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field="version", expected="'1'", received=repr(version))
    qualified = f"{domain}.{name}"
    _INVENTORY[qualified] = Operator(qualified, guarded(qualified, definition))
    _OWN_VERSIONS[qualified] = version


def is_own(name: str) -> bool:
    """Whether the operator ``name`` is one that was registered."""
    return name in _OWN_VERSIONS


def own_versions() -> str:
    """Names and versions of the operators that were registered; empty where none was."""
    return " ".join(f"{name}:{version}" for name, version in sorted(_OWN_VERSIONS.items()))


def infer(op: str, inputs: Inputs, attributes: Mapping[str, Attribute]) -> Inputs:
    """The outputs of an operator: its definition on ``inputs``, as tensor expressions.

    All outputs that the operator can have are returned, in order; the caller takes those that it needs. Small outputs
    computed from inputs with a ``value`` have one too.

    Raises:
        IngotError: UNSUPPORTED_OPERATOR, TYPE_MISMATCH, UNSUPPORTED_ATTRIBUTE or UNSUPPORTED_DTYPE.
    """
    operator = OPERATORS.get(op)
    if operator is None:
        raise IngotError(
            ErrorCode.UNSUPPORTED_OPERATOR,
            f"there is no operator {op}",
            received=op,
            remedy="Express it with supported operators; `ingot check` lists every unsupported node of a model.",
        )
    for x in inputs:
        if x is not None and x.dtype in _COMPLEX:
            raise unsupported_dtype(op, x.dtype, "numbers or bool")
    check_strings(op, inputs, attributes)
    try:
        outputs = operator.define(inputs, attributes)
        _check(op, [y for y in outputs if y is not None], [x for x in inputs if x is not None])
    except (TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        received = ", ".join("nothing" if x is None else f"{x.dtype}{list(map(str, x.shape))}" for x in inputs)
        raise mismatch(f"{op} cannot be applied: {error}", "inputs that fit the operator", received) from error
    return tuple(None if y is None else _with_value(y) for y in outputs)


def infer_in_model(op: str, inputs: Inputs, attributes: Mapping[str, Attribute]) -> Inputs:
    """:func:`infer` for a node of a model, which may have element types on which its operator means nothing.

    Raises:
        IngotError: as :func:`infer`.
    """
    if op in (LOOPS_OP, EXTERNAL_OP):
        message = "a model cannot bring loops or code generators of its own"
        raise IngotError(
            ErrorCode.UNSUPPORTED_OPERATOR, message, received=op, remedy="Call them in a module (ingot.ir)."
        )
    outputs = infer(op, inputs, attributes)
    check_domains(op, tensors_of([y for y in outputs if y is not None]))
    return outputs


def _check(op: str, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Refuse what could only read out of bounds: a model is not trusted to have operands that fit. What computes the inputs was
    checked with them.

    Raises:
        IngotError: TYPE_MISMATCH.
    """
    for a in assumptions(outputs, given=inputs):
        if isinstance(a.actual, int) and isinstance(a.expected, int):
            raise mismatch(f"an operand of {op} has the wrong extent", str(a.expected), str(a.actual))
    for y in outputs:
        if any(isinstance(d, int) and d < 0 for d in y.shape):
            raise mismatch(f"the output of {op} has a negative extent", "at least 0", f"[{dims_text(y.shape)}]")


def _with_value(y: Tensor) -> Tensor:
    size = product(y.shape)
    if not isinstance(size, int) or (y.rank > 1 and size > MOST_KNOWN_OF_MATRIX):
        return y
    value = evaluate_symbolic(y)
    return y if value is None else replace(y, value=value)
