"""Where batch, channel and spatial axes stand in an image tensor."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TypeVar

from compiler_service.compiler.tensor_expr.refusal import mismatch, unsupported_attribute
from compiler_service.compiler.tensor_expr.tensor import Tensor

T = TypeVar("T")


class Layout(enum.StrEnum):
    """``NCHW``: channels before the spatial axes, as ONNX has them. ``NHWC``: channels last, as kernels like them."""

    NCHW = "NCHW"
    NHWC = "NHWC"

    @classmethod
    def of(cls, name: str, x: Tensor) -> Layout:
        """The layout called ``name`` of an image tensor.

        Raises:
            IngotError: no such layout, or ``x`` has no spatial axis.
        """
        if name not in cls.__members__:
            raise unsupported_attribute("layout", "NCHW or NHWC", name)
        if x.rank < 2:
            raise mismatch("an image tensor is needed", "batch, channels and spatial axes", f"rank {x.rank}")
        return cls(name)

    def arrange(self, n: T, c: T, spatial: Sequence[T]) -> tuple[T, ...]:
        """Axis properties (extents, indices, names) in the order of the tensor."""
        return (n, c, *spatial) if self is Layout.NCHW else (n, *spatial, c)

    def parts(self, items: Sequence[T]) -> tuple[T, T, tuple[T, ...]]:
        """Batch, channel and spatial items: the inverse of :meth:`arrange`."""
        if self is Layout.NCHW:
            return items[0], items[1], tuple(items[2:])
        return items[0], items[-1], tuple(items[1:-1])

    def channel_axis(self, rank: int) -> int:
        return 1 if self is Layout.NCHW else rank - 1
