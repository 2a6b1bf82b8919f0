"""Elements of tensors that are known while compiling, and tensors made of known elements."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler_service.compiler.tensor_expr.ratio import ratio_of
from compiler_service.compiler.tensor_expr.refusal import unknown_value
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute
from shared_ir.dtype import DType
from shared_ir.expr import Expr, Scalar, cast, equal, lift, select, walk
from shared_ir.expr.dim import Dim, as_dim, numbers_of

MOST_KNOWN_ELEMENTS = 1024
"""Of one value, that are followed through arithmetic on shapes: larger arrays are weights, which tell no shape of an output."""
MOST_KNOWN_FLOATS = 16
"""Scales of Resize and limits of Range are this short; longer floats are weights."""
MOST_KNOWN_OF_MATRIX = 64
"""Results of more than one axis: shapes are vectors, so of these only what is as small as they are is worth its evaluation."""
MOST_EXPRESSION_NODES = 256
"""Of an element that is followed."""

_FIRST_BEYOND_INT64 = 1 << 63


def expression_size(expr: Expr, most: int) -> int:
    """Number of distinct nodes of ``expr``; stops above ``most``."""
    return sum(1 for _ in itertools.islice(walk(expr), most + 1))


def may_be_known(dtype: DType, size: int) -> bool:
    """Whether the elements of a value of so many are followed."""
    return size <= (MOST_KNOWN_FLOATS if dtype.is_float else MOST_KNOWN_ELEMENTS)


def is_followed(dtype: DType, elements: np.ndarray) -> bool:
    """Whether computed ``elements`` are followed: what has grown beyond use, in number or length, is left to the run."""
    return may_be_known(dtype, elements.size) and all(map(_is_short, elements.flat))


def _is_short(element: object) -> bool:
    if isinstance(element, Expr):
        return expression_size(element, MOST_EXPRESSION_NODES) <= MOST_EXPRESSION_NODES
    return not isinstance(element, int) or -_FIRST_BEYOND_INT64 <= element < 2 * _FIRST_BEYOND_INT64


def as_objects(array: np.ndarray) -> np.ndarray:
    """The same elements as Python numbers in an object array."""
    objects = np.empty(array.shape, dtype=object)
    objects.reshape(-1)[:] = array.reshape(-1).tolist()
    return objects


def known_elements(x: Tensor, name: str) -> tuple[Any, ...]:
    """The elements of ``x``, flat: Python numbers, or expressions over dim symbols.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE when the run computes them; ``name`` is the input as ONNX names it.
    """
    if x.value is None:
        raise unknown_value(name, x.name)
    return tuple(x.value.reshape(-1).tolist())


def known_dims(x: Tensor, name: str) -> tuple[Dim, ...]:
    """The elements of the integer tensor ``x`` as dims.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE when the run computes them.
    """
    return tuple(as_dim(v) if isinstance(v, Expr) else int(v) for v in known_elements(x, name))


def known_counts(x: Tensor, name: str) -> tuple[Dim, ...]:
    """As :func:`known_dims`, of a tensor that may hold whole numbers as floats.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE when the run computes them.
    """
    if not x.dtype.is_float:
        return known_dims(x, name)
    ratios = [ratio_of(v) for v in known_elements(x, name)]
    if any(r is None for r in ratios):
        raise unknown_value(name, x.name)
    return tuple(r.floor for r in ratios if r is not None)


def known_ints(x: Tensor, name: str) -> tuple[int, ...]:
    """The elements of the integer tensor ``x`` where they must be plain numbers (axes, permutations).

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE when the run computes them, or when they depend on symbols.
    """
    numbers = numbers_of(known_dims(x, name))
    if numbers is None:
        raise unknown_value(name, x.name)
    return numbers


def known_scalar(x: Tensor) -> Any | None:
    """The one element of ``x``, or None when it has several or they are not known."""
    if x.value is None or x.value.size != 1:
        return None
    return x.value.reshape(-1).tolist()[0]


def vector(values: Sequence[Dim | Scalar], dtype: DType, name: str = "vector") -> Tensor:
    """The 1-D tensor of these elements."""
    elements = [cast(v, dtype) if isinstance(v, Expr) else lift(v, dtype) for v in values]

    def body(i: Expr) -> Expr:
        chosen = elements[-1] if elements else lift(0, dtype)
        for position, element in reversed(list(enumerate(elements[:-1]))):
            chosen = select(equal(i, position), element, chosen)
        return chosen

    return compute((len(elements),), body, name=name)
