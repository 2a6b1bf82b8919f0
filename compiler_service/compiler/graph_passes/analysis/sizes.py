"""How many elements values have, where sizes are not known too."""

from __future__ import annotations

from shared_ir.expr.dim import Dim, evaluate_alike, product
from shared_ir.graph.ir import Value

EXTENT_IF_UNKNOWN = 64
"""The value that stands for every symbol where the sizes are compared to choose between legal layouts."""
_LARGEST = 2**63 - 1


def elements(value: Value) -> int:
    return estimate(product(value.shape))


def estimate(size: Dim) -> int:
    """``size`` where every symbol is :data:`EXTENT_IF_UNKNOWN`; the largest number that there is where it is beyond that."""
    found = evaluate_alike(size, EXTENT_IF_UNKNOWN)
    return _LARGEST if found is None else found
