"""Rules of products of two computed matrices: what surrounds them moves to where it costs nothing."""

from __future__ import annotations

import numpy as np

from compiler_service.compiler.graph_passes.rewriting.attributes import float_attribute, int_attribute, text_attribute
from compiler_service.compiler.graph_passes.rewriting.operands import is_float, permutation
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, RewriteRule, Site, rule
from shared_ir.graph.ir import Node, Value

_LETTERS = "abcdefghijlopqrstuvwxyz"
"""For batch axes; m, k and n are rows, depth and columns."""

_COLUMNS = 16
"""Columns are left out by so many: those that fill a vector."""


def _scaled_operand(node: Node, site: Site) -> Replacement:
    """(a * c) @ b -> (a @ b) * c for a number c, also behind a transpose of a: the factor joins what follows the product."""
    if any(site.array(v) is not None for v in node.operands) or not is_float(node.results[0]):
        return None
    for i, operand in enumerate(node.operands):
        found = _unscaled(operand, site)
        if found is not None:
            plain, factor = found
            operands = [plain if j == i else v for j, v in enumerate(node.operands)]
            return site.node("Mul", site.write(node.op, operands, node.attributes), factor)
    return None


def _unscaled(value: Value, site: Site) -> tuple[Value, Value] | None:
    moved = site.producer(value, "Transpose")
    inner = value if moved is None else moved.operands[0]
    product = site.producer(inner, "Mul")
    if product is None or not site.only_user(value) or not site.only_user(inner):
        return None
    a, b = product.operands
    for x, c in ((a, b), (b, a)):
        array = site.array(c)
        if array is not None and array.size == 1 and x.type == inner.type:
            plain = x if moved is None else site.transpose(x, permutation(moved))
            return plain, site.constant(array.reshape(()), c.name)
    return None


def _transposed_result(node: Node, site: Site) -> Replacement:
    """Transpose(a @ b) -> Einsum(a, b), when columns stay last."""
    product = site.producer(node.operands[0], "MatMul", "Einsum")
    perm = permutation(node)
    if product is None or not site.only_user(node.operands[0]) or perm[-1] != len(perm) - 1:
        return None
    if any(site.array(v) is not None for v in product.operands):
        return None
    equation = _equation(product)
    if equation is None:
        return None
    terms, _, output = equation.partition("->")
    moved = "".join(output[p] for p in perm)
    return site.node("Einsum", *product.operands, equation=f"{terms}->{moved}")


def _equation(node: Node) -> str | None:
    if node.op == "Einsum":
        equation = text_attribute(node, "equation", "")
        plain = len(node.operands) == 2 and "->" in equation and "." not in equation and " " not in equation
        return equation if plain else None
    rank = node.operands[0].type.rank
    if rank < 3 or node.operands[1].type.rank != rank or rank - 2 > len(_LETTERS):
        return None
    batch = _LETTERS[: rank - 2]
    return f"{batch}mk,{batch}kn->{batch}mn"


def _gathered_columns(node: Node, site: Site) -> Replacement:
    """GatherElements(a @ b, i) -> GatherElements(a @ b[.., low:high], i - low): columns that no index names are not computed.

    Relative positions of attention ask for twice as many columns as there are tokens, of a table for the longest text. ``i`` may be
    expanded. Half of the columns at least must go.
    """
    x, indices = node.operands
    product, columns = site.producer(x, "MatMul"), x.shape[-1] if x.shape else 0
    last = x.type.rank - 1
    if product is None or not site.only_user(x) or int_attribute(node, "axis") % x.type.rank != last:
        return None
    expansion = site.producer(indices, "Expand")
    numbers = site.array(indices if expansion is None else expansion.operands[0])
    weight = product.operands[1]
    if numbers is None or not numbers.size or not isinstance(columns, int) or weight.type.rank < 2:
        return None
    numbers = np.where(numbers < 0, numbers + columns, numbers)
    low, high = int(numbers.min()) // _COLUMNS * _COLUMNS, -(-(int(numbers.max()) + 1) // _COLUMNS) * _COLUMNS
    if numbers.min() < 0 or numbers.max() >= columns or 2 * (high - low) > columns:
        return None
    narrow = site.slice(weight, weight.type.rank - 1, low, min(high, columns))
    moved = site.constant((numbers - low).astype(np.int32), "columns")
    if expansion is not None:
        moved = site.node("Expand", moved, expansion.operands[1])
    found = site.write("MatMul", (product.operands[0], narrow), product.attributes)
    return site.node("GatherElements", found, moved, axis=last)


def _rows_reshaped(node: Node, site: Site) -> Replacement:
    """A matrix whose rows are the leading axes of a tensor before and after: the product takes the tensor.

    What follows is then calculated with the product, whichever shape it asks for. A bias that depends on the row stays.
    """
    product = site.producer(node.operands[0], "MatMul", "Gemm")
    before = None if product is None else site.producer(product.operands[0], "Reshape")
    if product is None or before is None or not site.only_user(node.operands[0]) or not _is_plain_product(product):
        return None
    rows, weight, *bias = product.operands
    shape = node.results[0].shape
    if len(shape) < 3 or shape[-1] != product.results[0].shape[-1]:
        return None
    x = site.reshape(before.operands[0], (*shape[:-1], rows.shape[-1]))
    if int_attribute(product, "transB", 0):
        weight = site.transpose(weight, (1, 0))
    found = site.node("MatMul", x, weight, title=product.name)
    return found if not bias else site.node("Add", found, *bias)


def _is_plain_product(product: Node) -> bool:
    """Whether it multiplies rows by one matrix and adds nothing, or the same to every row."""
    if product.operands[1].type.rank != 2 or int_attribute(product, "transA", 0):
        return False
    if float_attribute(product, "alpha", 1.0) != 1 or float_attribute(product, "beta", 1.0) != 1:
        return False
    return all(c.type.rank < 2 or c.shape[0] == 1 for c in product.operands[2:])


def product_rules(approximate: bool) -> tuple[RewriteRule, ...]:
    """The table; ``approximate`` admits rows that change the last bit of a float."""
    return (
        rule("Reshape", _rows_reshaped),  # Reshape(Reshape(x) @ b + c) -> Reshape(x) @ b + c where columns stay
        rule("Transpose", _transposed_result),  # Transpose(a @ b) -> Einsum(a, b)
        rule("GatherElements", _gathered_columns),  # (a @ b)[i] -> (a @ b[:, low:high])[i - low]
        *((rule("MatMul", _scaled_operand),) if approximate else ()),  # (a * c) @ b -> (a @ b) * c
    )
