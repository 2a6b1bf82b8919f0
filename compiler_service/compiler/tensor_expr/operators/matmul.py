"""Products of matrices, and sums of products in general."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce as fold

from compiler_service.compiler.tensor_expr.broadcast import (
    Pairs,
    broadcast_load,
    broadcast_pairs,
    broadcast_shape,
    common_dim,
    converted,
    elementwise,
    must_equal,
    widen,
)
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.refusal import mismatch, too_large, unsupported_attribute
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, reduce
from shared_ir.expr import Expr
from shared_ir.expr.dim import Dim


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """``numpy.matmul``: batch axes broadcast; a vector is a row on the left, a column on the right."""
    if a.rank == 0 or b.rank == 0 or a.dtype is not b.dtype:
        raise mismatch("MatMul takes two matrices of one element type", "float32[m, k] and float32[k, n]", _types(a, b))
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2])
    rows, columns = a.shape[-2:-1], b.shape[-1:] if b.rank > 1 else ()
    inner = common_dim((a.shape[-1], b.shape[max(0, b.rank - 2)]))
    left, right = (*batch, *a.shape[-2:]), (*batch, *b.shape[-2:])

    def body(*index: Expr) -> Expr:
        *own, k = index
        at, m, n = own[: len(batch)], own[len(batch) : len(batch) + len(rows)], own[len(batch) + len(rows) :]
        return widen(broadcast_load(a, (*at, *m, k), left)) * widen(broadcast_load(b, (*at, k, *n), right))

    names = (*(f"b{axis}" for axis in range(len(batch))), *("m" for _ in rows), *("n" for _ in columns))
    depths = must_equal(*((t.shape[axis], inner) for t, axis in ((a, -1), (b, max(-2, -b.rank)))))
    pairs = [*broadcast_pairs(left, a.shape), *broadcast_pairs(right, b.shape), *depths]
    shape = (*batch, *rows, *columns)
    total = reduce(ReduceOp.SUM, shape, [inner], body, name="matmul", axes=names, reduced=["k"], assumes=pairs)
    return converted(total, a.dtype)


def _types(*tensors: Tensor) -> str:
    return " and ".join(f"{t.dtype}[{', '.join(map(str, t.shape))}]" for t in tensors)


def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """``alpha * a' @ b' + beta * c``; ``a'`` and ``b'`` are read transposed where asked."""
    (k, m) = a.shape if transA else a.shape[::-1]
    (n, inner) = b.shape if transB else b.shape[::-1]

    def body(i: Expr, j: Expr, r: Expr) -> Expr:
        return widen(a[(r, i) if transA else (i, r)]) * widen(b[(j, r) if transB else (r, j)])

    pairs = [] if k == inner else [(k, inner)]
    depth, names = [common_dim((k, inner))], ("m", "n")
    product = reduce(ReduceOp.SUM, (m, n), depth, body, name="matmul", axes=names, reduced=["k"], assumes=pairs)
    if alpha != 1:
        product = elementwise("scale", lambda v: v * alpha, product)
    if c is not None:
        product = elementwise("bias", lambda v, u: v + (u if beta == 1 else u * beta), product, c, shape=(m, n))
    return converted(product, a.dtype)


_MOST_OPERANDS = 1024
"""Of one Einsum: all are arguments of one kernel."""
_MOST_IN_A_ROW = 32
"""Factors that are multiplied one after the other."""


def einsum(*tensors: Tensor, equation: str) -> Tensor:
    """Einstein summation; letters that the output lacks are summed over."""
    if len(tensors) > _MOST_OPERANDS:
        raise too_large("Einsum has too many operands", f"at most {_MOST_OPERANDS}", str(len(tensors)))
    terms, output = _parsed(equation, tensors)
    extents = _letter_extents(terms, tensors)
    summed = [letter for letter in extents if letter not in output]
    for letter in output:
        if letter not in extents:
            raise unsupported_attribute("equation", "output letters that occur in an input", equation)

    def body(*index: Expr) -> Expr:
        at = dict(zip((*output, *summed), index, strict=True))
        factors = [
            widen(broadcast_load(t, [at[letter] for letter in term], [extents[letter] for letter in term]))
            for term, t in zip(terms, tensors, strict=True)
        ]
        while len(factors) > _MOST_IN_A_ROW:  # as a tree: a chain would be as deep as there are operands
            factors = [fold(lambda a, b: a * b, factors[i : i + 2]) for i in range(0, len(factors), 2)]
        return fold(lambda a, b: a * b, factors)

    shape, over = [extents[letter] for letter in output], [extents[letter] for letter in summed]
    pairs = [
        pair
        for term, t in zip(terms, tensors, strict=True)
        for pair in (*broadcast_pairs([extents[letter] for letter in term], t.shape), *_diagonals(term, t))
    ]
    if not summed:
        return converted(compute(shape, body, name="einsum", assumes=pairs), tensors[0].dtype)
    return converted(reduce(ReduceOp.SUM, shape, over, body, name="einsum", assumes=pairs), tensors[0].dtype)


def _parsed(equation: str, tensors: Sequence[Tensor]) -> tuple[list[str], str]:
    """Letters of the inputs and of the output; the axes of an ellipsis get letters of their own."""
    text = equation.replace(" ", "")
    left, arrow, output = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise unsupported_attribute("equation", f"{len(tensors)} inputs", equation)
    wide = max((t.rank - len(term.replace("...", "")) for term, t in zip(terms, tensors, strict=True)), default=0)
    dots = "".join(chr(0x100 + axis) for axis in range(wide))  # no letter that an equation can contain
    expanded = []
    for term, t in zip(terms, tensors, strict=True):
        own = t.rank - len(term.replace("...", ""))
        expanded.append(term.replace("...", dots[wide - own :] if own else ""))
        if len(expanded[-1]) != t.rank:
            raise unsupported_attribute("equation", f"{t.rank} letters for {t.name}", term)
    if not arrow:
        letters = left.replace(",", "").replace(".", "")
        output = ("..." if "..." in left else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return expanded, output.replace("...", dots)


def _diagonals(term: str, t: Tensor) -> Pairs:
    """Axes of one operand that share a letter are equally long: its diagonal is taken, nothing is repeated."""
    return must_equal(*((extent, t.shape[term.index(letter)]) for letter, extent in zip(term, t.shape, strict=True)))


def _letter_extents(terms: Sequence[str], tensors: Sequence[Tensor]) -> Mapping[str, Dim]:
    extents: dict[str, Dim] = {}
    for term, t in zip(terms, tensors, strict=True):
        for letter, extent in zip(term, t.shape, strict=True):
            extents[letter] = broadcast_shape((extents.get(letter, 1),), (extent,))[0]
    return extents


OPERATORS = (
    Operator("MatMul", matmul),
    Operator("Gemm", gemm),
    Operator("Einsum", einsum),
)
