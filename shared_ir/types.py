"""Tensor types: element type and symbolic shape."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, dims_text

__all__ = ["DType", "ObjectType", "TensorType", "ValueKind"]


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and symbolic shape, printed ``float32[batch, 3, (w + 1) // 2]``."""

    dtype: DType
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every extent is a number."""
        return all(isinstance(d, int) for d in self.shape)

    def may_be(self, other: TensorType) -> bool:
        """Whether a tensor can have both types: equal element types and as many axes, none of two numbers that differ."""
        return (
            self.dtype == other.dtype
            and self.rank == other.rank
            and all(
                m == n or not (isinstance(m, int) and isinstance(n, int))
                for m, n in zip(self.shape, other.shape, strict=True)
            )
        )

    def __str__(self) -> str:
        return f"{self.dtype}[{dims_text(self.shape)}]"


class ValueKind(enum.StrEnum):
    """What an input or output of a model is."""

    TENSOR = "tensor"
    SEQUENCE = "sequence"  # a list of tensors
    OPTIONAL = "optional"  # a tensor or nothing
    OPTIONAL_SEQUENCE = "optional_sequence"  # a list of tensors or nothing
    MAPS = "maps"  # a list of maps from labels to numbers; outputs alone

    @property
    def is_sequence(self) -> bool:
        """Whether it is a list of tensors, or may be one."""
        return self in (ValueKind.SEQUENCE, ValueKind.OPTIONAL_SEQUENCE)

    @property
    def is_optional(self) -> bool:
        """Whether it may be nothing."""
        return self in (ValueKind.OPTIONAL, ValueKind.OPTIONAL_SEQUENCE)


@dataclass(frozen=True, slots=True)
class ObjectType:
    """A value of the interface that is no plain array of numbers: strings, sequences and optionals.

    In the graph strings are int64 numbers of a table, sequences and optionals int64 scalars that name an object of the run.

    Attributes:
        kind: which of them it is.
        dtype: the element type of its tensors.
    """

    kind: ValueKind
    dtype: DType
