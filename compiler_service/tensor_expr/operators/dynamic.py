"""Operators around symbols that the run defines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler_service.tensor_expr.operator import Operator
from compiler_service.tensor_expr.refusal import mismatch
from compiler_service.tensor_expr.tensor import Tensor, compute, placeholder
from shared_ir.dim import Dim
from shared_ir.dtype import DType
from shared_ir.expr import Var


def define(x: Tensor, *, symbols: tuple[Var, ...]) -> Tensor:
    """``x``, whose elements are from here on called by these symbols (see :data:`shared_ir.graph.DEFINE_OP`)."""
    if x.dtype is not DType.INT64 or x.shape != (len(symbols),):
        raise mismatch("Define takes an int64 vector", f"int64[{len(symbols)}]", f"{x.dtype}{list(map(str, x.shape))}")
    elements = np.empty(len(symbols), dtype=object)
    elements[:] = symbols
    return replace(placeholder("symbols", x.shape, x.dtype), value=elements)


def assume(x: Tensor, *, actual: Dim, expected: Dim) -> Tensor:
    """``x``, for runs in which the dims are equal."""
    assumed = [] if actual == expected else [(actual, expected)]
    return compute(x.shape, lambda *i: x[i], name="assume", assumes=assumed)


OPERATORS = (Operator("ingot.Define", define), Operator("ingot.Assume", assume))
