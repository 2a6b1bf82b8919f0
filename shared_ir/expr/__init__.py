"""Scalar expressions: one closed family for symbolic dims, loop indices and the arithmetic of kernels.

Grammar (every node is frozen and hashable; ``dtype`` is the element type of the value)::

    Expr   = Const(value, dtype) | Var(name, dtype)
           | Unary(op, x) | Binary(op, lhs, rhs) | Cast(dtype, x) | Reinterpret(dtype, x) | Select(cond, then, otherwise)
           | <extensions: Load of tensor_expr and loop_ir, vector nodes of loop_ir>

Integer semantics are mathematical: ``//`` floors, ``%`` takes the sign of the divisor (ONNX ``Div`` and
``Mod(fmod=1)`` on tensors truncate and have their own operators, ``TRUNC_DIV`` and ``TRUNC_MOD``).
"""

from shared_ir.expr.nodes import (
    MOST_PRINTED_NODES,
    RECURSIVE_LEVELS,
    Binary,
    Cast,
    Const,
    Expr,
    Reinterpret,
    Scalar,
    Select,
    Unary,
    Var,
    binary,
    cast,
    ceil_div,
    equal,
    lift,
    logical_and,
    logical_or,
    maximum,
    minimum,
    not_equal,
    reinterpret,
    select,
    to_text,
)
from shared_ir.expr.operations import COMPARISONS, INFIX, BinaryOp, UnaryOp
from shared_ir.expr.traversal import landings, substitute, transform, variables, walk

__all__ = (
    "COMPARISONS",
    "INFIX",
    "MOST_PRINTED_NODES",
    "RECURSIVE_LEVELS",
    "Binary",
    "BinaryOp",
    "Cast",
    "Const",
    "Expr",
    "Reinterpret",
    "Scalar",
    "Select",
    "Unary",
    "UnaryOp",
    "Var",
    "binary",
    "cast",
    "ceil_div",
    "equal",
    "landings",
    "lift",
    "logical_and",
    "logical_or",
    "maximum",
    "minimum",
    "not_equal",
    "reinterpret",
    "select",
    "substitute",
    "to_text",
    "transform",
    "variables",
    "walk",
)  # fmt: skip
