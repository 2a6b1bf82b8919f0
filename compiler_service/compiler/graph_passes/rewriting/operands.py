"""Small questions that rewrite rules ask about operands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from compiler_service.compiler.graph_passes.rewriting.attributes import ints_attribute
from compiler_service.compiler.graph_passes.rewriting.rewrite import Site
from shared_ir.dtype import HALVES, DType
from shared_ir.expr.dim import Dim
from shared_ir.graph.ir import Node, Value


def with_constant(node: Node, site: Site, *, exact: bool = False) -> tuple[Value, np.ndarray] | None:
    """``(x, c)`` for a commutative binary node over one computed operand and one constant; ``exact``: in float64."""
    a, b = node.operands
    for x, c in ((a, b), (b, a)):
        array = site.exact(c) if exact else site.array(c)
        if array is not None and site.array(x) is None:
            return x, array
    return None


def with_scalar(node: Node | None, site: Site) -> tuple[Value, float] | None:
    """``(x, number)`` for a commutative binary node with a constant whose elements are equal and that keeps the type of x."""
    found = None if node is None else with_constant(node, site)
    if node is None or found is None or found[0].type != node.results[0].type:
        return None
    number = site.scalar(next(v for v in node.operands if site.array(v) is found[1]))
    return None if number is None else (found[0], float(number))


def close(number: float | None, expected: float) -> bool:
    """Equal up to what float16 constants of exported models lose."""
    return number is not None and math.isclose(number, expected, rel_tol=1e-3, abs_tol=1e-6)


def factors(value: Value, site: Site, root: bool = True) -> Iterator[Value]:
    """The operands of a product, through nested ``Mul`` nodes that nothing else reads."""
    node = site.producer(value, "Mul")
    if node is None or not (root or site.only_user(value)):
        yield value
        return
    for operand in node.operands:
        yield from factors(operand, site, False)


def product_of(node: Node, site: Site) -> tuple[tuple[Value, ...], float]:
    """A ``Mul`` node as (computed factors, the product of its scalar factors)."""
    number = 1.0
    computed = []
    for operand in node.operands:
        for factor in factors(operand, site, False):
            scalar = site.scalar(factor)
            if scalar is None:
                computed.append(factor)
            else:
                number *= scalar
    return tuple(computed), number


def integer_operand(node: Node, position: int, site: Site) -> tuple[int, ...] | None:
    """The elements of an integer operand that is a constant."""
    if position >= len(node.inputs):
        return None
    array = site.array(node.inputs[position])
    return None if array is None or array.dtype.kind not in "iu" else tuple(int(i) for i in array.reshape(-1))


def reduced_axes(node: Node, site: Site, *, kept: bool = True) -> tuple[int, ...] | None:
    """The axes of a ``Reduce*`` node as numbers >= 0 in order, when they are constant and, if asked, ``kept`` as extent 1."""
    axes = integer_operand(node, 1, site)
    if axes is None or (kept and node.attributes.get("keepdims", 1) != 1):
        return None
    rank = node.operands[0].type.rank
    return tuple(sorted(a % rank for a in axes)) if axes else None


def is_single(value: Value | None) -> bool:
    """Whether ``value`` is one number, or left out."""
    return value is None or value.shape in ((), (1,))


def as_number(site: Site, value: Value) -> Value:
    """The scalar that a value of one element is."""
    return value if value.shape == () else site.reshape(value, ())


def is_float(value: Value) -> bool:
    return value.dtype in (DType.FLOAT32, DType.FLOAT64, *HALVES)


FEW_ROWS = 8
"""Largest number of rows of a product that waits for its weights rather than for its sums."""


def has_few_rows(product: Node, most: int) -> bool:
    """Whether a matrix product has at most ``most`` rows; those that only the run knows are taken to be few."""
    return math.prod(d for d in product.results[0].shape[:-1] if isinstance(d, int)) <= most


def moves_nothing(shape: Sequence[Dim], perm: Sequence[int]) -> bool:
    """Whether a transpose leaves the elements in place in memory: only axes of extent 1 change their order."""
    wide = [axis for axis in perm if shape[axis] != 1]
    return wide == sorted(wide)


def permutation(node: Node) -> tuple[int, ...]:
    """The ``perm`` of a ``Transpose``; reversed axes by default."""
    return ints_attribute(node, "perm", tuple(reversed(range(node.operands[0].type.rank))))
