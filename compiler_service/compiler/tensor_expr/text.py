"""Text of tensor expressions, for prints and for telling equal kernels."""

from __future__ import annotations

from collections import Counter

from compiler_service.compiler.tensor_expr.tensor import Compute, Load, Tensor, topological
from shared_ir.expr import Expr, Var, to_text, walk
from shared_ir.expr.dim import dims_text


def print_tensors(output: Tensor) -> str:
    """One line a tensor, producers first; names of tensors are replaced by their numbers, so equal kernels print equal::

    %0 = argument float32[n, 64]
    %1[m, k] = sum(ic < 64) %0[m, ic] * ...
    """
    order = topological(output)
    names = {t: f"%{i}" for i, t in enumerate(order)}
    return "\n".join(_line(t, names) for t in order)


def _line(tensor: Tensor, names: dict[Tensor, str]) -> str:
    kind = f"{tensor.dtype}[{dims_text(tensor.shape)}]"
    if tensor.strides is not None:
        kind += f" by [{dims_text(tensor.strides)}]"
    if not isinstance(tensor.op, Compute):
        return f"{names[tensor]} = argument {kind}"
    axes = ", ".join(a.name for a in tensor.op.axes)
    reduction = tensor.op.reduction
    over = (
        "" if reduction is None else f"{reduction.op}({', '.join(f'{a.name} < {a.extent}' for a in reduction.axes)}) "
    )
    return f"{names[tensor]}[{axes}]: {kind} = {over}{body_text(tensor.op.body, names)}"


def body_text(body: Expr, names: dict[Tensor, str]) -> str:
    """A body with loads written ``%0[i, j]``; constants keep their element types apart by :func:`to_text`.

    In a long body what occurs more than once is named, ``t0 = ...; t1 = ...; body``: written out in full, shared parts would
    make the text exponentially long.
    """
    nodes = list(walk(body))
    uses = Counter(child for node in nodes for child in node.children())
    is_long = len(nodes) + sum(n - 1 for e, n in uses.items() if e.children()) > _MOST_CHARACTERS
    found: dict[Expr, Expr] = {}
    lines: list[str] = []

    def named(part: Expr) -> Expr:
        if part not in found:
            whole = _rewritten(part, tuple(named(child) for child in part.children()), names)
            if is_long and uses[part] > 1 and part.children():
                name = f"t{len(lines)}"
                lines.append(f"{name} = {to_text(whole)}; ")
                whole = Var(name, part.dtype)
            found[part] = whole
        return found[part]

    return ("".join(lines) + to_text(named(body))).replace("$", "")


_MOST_CHARACTERS = 100
"""Nodes of a body from which on shared parts are named."""


def _rewritten(expr: Expr, children: tuple[Expr, ...], names: dict[Tensor, str]) -> Expr:
    if isinstance(expr, Load):
        return Var(f"{names[expr.tensor]}[{', '.join(map(to_text, children))}]", expr.dtype)
    return expr.with_children(children) if children else expr
