"""How many elements values have, where sizes are not known too."""

from __future__ import annotations

from shared_ir.expr.dim import dim_symbols, evaluate, product
from shared_ir.graph.ir import Value

HINT = 64
"""The value that stands for every symbol where the costs of layouts are compared."""


def elements(value: Value) -> int:
    count = product(value.shape)
    return evaluate(count, dict.fromkeys(dim_symbols([count]), HINT))
