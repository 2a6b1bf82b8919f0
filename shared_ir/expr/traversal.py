"""Walking and rewriting scalar expressions. Parts that an expression shares are visited once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from shared_ir.expr.nodes import Expr, Var


def walk(root: Expr) -> Iterator[Expr]:
    """Every distinct node once, the root first. Shared parts make expressions much smaller than the trees they print as."""
    stack, seen = [root], set()
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack.extend(reversed(node.children()))


def transform(root: Expr, rule: Callable[[Expr], Expr | None], memo: dict[Expr, Expr] | None = None) -> Expr:
    """Rewrite bottom-up: ``rule`` sees each node with rewritten children; ``None`` keeps the node."""
    memo = {} if memo is None else memo
    found = memo.get(root)
    return _transformed(root, rule, memo) if found is None else found


def _transformed(root: Expr, rule: Callable[[Expr], Expr | None], memo: dict[Expr, Expr]) -> Expr:
    """:func:`transform` of a node that ``memo`` does not know."""
    node = root
    kids = root.children()
    if kids:
        new = tuple([_transformed(k, rule, memo) if (f := memo.get(k)) is None else f for k in kids])
        if new != kids:
            node = root.with_children(new)
            if node in new:  # folded to a child, which the rule has seen
                memo[root] = node
                return node
    replaced = rule(node)
    memo[root] = found = node if replaced is None else replaced
    return found


def substitute(root: Expr, values: Mapping[Var, Expr]) -> Expr:
    """``root`` with variables replaced."""
    return root if root.variables.isdisjoint(values) else _substituted(root, values, {})


def _substituted(root: Expr, values: Mapping[Var, Expr], memo: dict[Expr, Expr]) -> Expr:
    """:func:`substitute` of a node in which one of the variables occurs."""
    if isinstance(root, Var):
        return values[root]
    found = memo.get(root)
    if found is None:
        new = tuple([k if k.variables.isdisjoint(values) else _substituted(k, values, memo) for k in root.children()])
        found = memo[root] = root.with_children(new)
    return found


def variables(root: Expr) -> frozenset[Var]:
    """The variables that occur in ``root``."""
    return root.variables
