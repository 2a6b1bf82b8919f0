"""Types and known elements of node outputs, by running operator definitions on placeholders."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from compiler_service.compiler.frontend.reading.limits import exceeded
from compiler_service.compiler.tensor_expr.meaning.known import (
    MOST_EXPRESSION_NODES,
    as_objects,
    expression_size,
    is_followed,
    may_be_known,
)
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr
from shared_ir.expr.dim import Dim, as_dim
from shared_ir.graph.ir import Attribute, Value
from shared_ir.types import TensorType

Infer: TypeAlias = Callable[[str, tuple[Tensor | None, ...], Mapping[str, Attribute]], tuple[Tensor | None, ...]]
"""``compiler_service.compiler.tensor_expr.registry.infer``: every output an operator can have, with ``value`` where it is known."""


@dataclass(frozen=True)
class Inference:
    """How the importer types operators.

    Attributes:
        infer: the typing function.
        operators: names of the operators that ``infer`` knows.
    """

    infer: Infer
    operators: Container[str]


@dataclass
class KnownValues:
    """Elements that the importer knows: constants, and arithmetic on dims."""

    _elements: MutableMapping[Value, np.ndarray] = field(default_factory=dict)

    def add_constant(self, value: Value, array: np.ndarray) -> None:
        if may_be_known(value.dtype, array.size) and value.dtype.value in _PLAIN:
            self._elements[value] = as_objects(array)

    def add(self, value: Value, elements: np.ndarray | None) -> None:
        """Keep ``elements`` unless they are too many or have grown too long to be worth following."""
        if elements is not None and is_followed(value.dtype, elements):
            self._elements[value] = elements

    def get(self, value: Value | None) -> np.ndarray | None:
        """Python numbers and integer :class:`Expr` in an object array, shaped like the value; ``None`` if not known."""
        return None if value is None else self._elements.get(value)

    def scalar(self, value: Value | None) -> int | float | bool | Expr | None:
        """The one element of a scalar or one-element value."""
        elements = self.get(value)
        if elements is None or elements.size != 1:
            return None
        found: int | float | bool | Expr = elements.reshape(-1).tolist()[0]
        return found


_PLAIN = frozenset(
    t.value for t in DType if (t.is_integer and t.bits >= 8) or (t.is_float and t.bits >= 16) or t is DType.BOOL
)


def infer_outputs(
    inference: Inference,
    op: str,
    inputs: Sequence[Value | None],
    attributes: Mapping[str, Attribute],
    known: KnownValues,
) -> tuple[Tensor | None, ...]:
    """What ``op`` gives on ``inputs``: tensors with a shape in normal form, and a value where it is known.

    Raises:
        IngotError: from the definition; LIMIT_EXCEEDED when a symbolic dim has grown beyond use.
    """
    operands = tuple(None if v is None else placeholder(v.name, v.shape, v.dtype, known.get(v)) for v in inputs)
    try:
        outputs = inference.infer(op, operands, attributes)
    except IngotError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise _inapplicable(op, str(error)) from error
    except (MemoryError, RecursionError) as error:
        raise exceeded(f"{op} is too large to type", "expressions of a bounded size", type(error).__name__) from error
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise IngotError(ErrorCode.COMPILER_FAULT, f"the definition of {op} failed", received=why) from error
    for output in outputs:
        for dim in () if output is None else output.shape:
            _check_dim(op, dim)
    return outputs


def _inapplicable(op: str, why: str) -> IngotError:
    return IngotError(
        ErrorCode.TYPE_MISMATCH,
        f"{op} cannot be applied to its inputs",
        expected="inputs and attributes that fit the operator",
        received=why,
        remedy="Export the model again; this node is not valid ONNX.",
    )


def _check_dim(op: str, dim: Dim) -> None:
    if isinstance(dim, int) and dim < 0:
        raise _inapplicable(op, f"an output with the dim {dim}")
    if isinstance(dim, Expr) and expression_size(dim, MOST_EXPRESSION_NODES) > MOST_EXPRESSION_NODES:
        raise exceeded(
            "a symbolic dim is too complicated", f"at most {MOST_EXPRESSION_NODES} terms and operations", "more"
        )


def tensor_type(tensor: Tensor) -> TensorType:
    """The type of an inferred output."""
    return TensorType(tensor.dtype, tuple(as_dim(d) for d in tensor.shape))
