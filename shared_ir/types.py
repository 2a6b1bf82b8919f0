"""Tensor types: element type and symbolic shape."""

from __future__ import annotations

from dataclasses import dataclass

from shared_ir.dim import Dim, dims_text
from shared_ir.dtype import DType

__all__ = ["DType", "TensorType"]


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and symbolic shape, printed ``float32[batch, 3, (w + 1) // 2]``."""

    dtype: DType
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{dims_text(self.shape)}]"
