"""How many elements values have, where sizes are not known too."""

from __future__ import annotations

from shared_ir.expr.dim import dim_symbols, evaluate, product
from shared_ir.graph.ir import Value

EXTENT_IF_UNKNOWN = 64
"""The value that stands for every symbol where the sizes are compared to choose between legal layouts."""


def elements(value: Value) -> int:
    count = product(value.shape)
    return evaluate(count, dict.fromkeys(dim_symbols([count]), EXTENT_IF_UNKNOWN))
