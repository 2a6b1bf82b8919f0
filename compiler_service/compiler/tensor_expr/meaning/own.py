"""Definitions of operators of one's own: what they may be, and what they may give."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from functools import wraps

from compiler_service.compiler.tensor_expr.operator import Definition
from compiler_service.compiler.tensor_expr.tensor import Compute, Tensor
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr
from shared_ir.graph.ir import Attribute

_AXIS = "$"


def guarded(name: str, definition: Definition) -> Definition:
    """``definition``, whose mistakes are told as its own.

    Raises:
        IngotError: INVALID_ARGUMENT, it cannot be called with inputs and attributes.
    """
    received = "" if callable(definition) else repr(definition)[:80]
    if not received:
        kinds = inspect.signature(definition).parameters.values()
        received = ", ".join(f"**{p.name}" for p in kinds if p.kind is p.VAR_KEYWORD)
    if received:
        message = f"what is registered as the operator {name} is no definition"
        expected = "a function of inputs, and of attributes that are each named behind `*`"
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field="definition", expected=expected, received=received)

    @wraps(definition)
    def checked(*inputs: Tensor | None, **attributes: Attribute) -> Tensor | tuple[Tensor | None, ...]:
        try:
            made = definition(*inputs, **attributes)
        except IngotError:
            raise
        except Exception as error:
            message = f"the definition of the operator {name} failed"
            received = f"{type(error).__name__}: {error}"
            raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field="definition", received=received) from error
        outputs = made if isinstance(made, tuple) else (made,)
        given = [y for y in outputs if y is not None]
        if not given or not all(isinstance(y, Tensor) for y in given):
            raise _misuse(name, "gives no tensors", "a tensor, or a tuple of tensors", type(made).__name__)
        _check_reads(name, given, [x for x in inputs if x is not None])
        return made

    return checked


def _check_reads(name: str, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Refuse what a node cannot give: tensors that are none of its inputs, and symbols that none of these has.

    Raises:
        IngotError: INVALID_ARGUMENT.
    """
    known = {v.name for x in inputs for e in _expressions(x, body=False) for v in e.variables}
    waiting, seen = list(outputs), set(inputs)
    while waiting:
        tensor = waiting.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        if not isinstance(tensor.op, Compute):
            expected = ", ".join(x.name for x in inputs) or "no tensor"
            raise _misuse(name, "reads a tensor that is no input of it", expected, tensor.name)
        free = {v.name for e in _expressions(tensor) for v in e.variables if not v.name.startswith(_AXIS)} - known
        if free:
            expected = ", ".join(sorted(known)) or "numbers"
            raise _misuse(name, "has a symbol that no input of it has", expected, ", ".join(sorted(free)))
        waiting.extend(tensor.producers)


def _expressions(tensor: Tensor, *, body: bool = True) -> Iterator[Expr]:
    """What it consists of."""
    parts: list[object] = [*tensor.shape, *([] if tensor.value is None else tensor.value.flat)]
    if body and isinstance(tensor.op, Compute):
        parts += [tensor.op.body, *(axis.extent for axis in tensor.op.all_axes)]
    return (part for part in parts if isinstance(part, Expr))


def _misuse(name: str, what: str, expected: str, received: str) -> IngotError:
    message = f"the definition of the operator {name} {what}"
    return IngotError(ErrorCode.INVALID_ARGUMENT, message, field="definition", expected=expected, received=received)
