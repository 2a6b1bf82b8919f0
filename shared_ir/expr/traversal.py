"""Walking and rewriting scalar expressions. Parts that an expression shares are visited once."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping

from shared_ir.expr.nodes import RECURSIVE_LEVELS, Expr, Var


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
    if found is not None:
        return found
    for part in landings(root, memo):
        _transformed(part, rule, memo)
    return _transformed(root, rule, memo)


def _transformed(root: Expr, rule: Callable[[Expr], Expr | None], memo: dict[Expr, Expr]) -> Expr:
    """:func:`transform` of a node that ``memo`` need not know."""
    if root in memo:
        return memo[root]
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
    if root.variables.isdisjoint(values):
        return root
    memo: dict[Expr, Expr] = {}
    for part in landings(root):
        if not part.variables.isdisjoint(values):
            _substituted(part, values, memo)
    return _substituted(root, values, memo)


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


def landings(root: Expr, known: Container[Expr] = ()) -> list[Expr]:
    """Expressions in ``root`` such that no recursion that remembers what it has seen goes deep, when it visits them in turn
    and ``root`` last. What ``known`` has is not entered. Empty where ``root`` is not deep."""
    if root.depth <= RECURSIVE_LEVELS:
        return []
    found: list[Expr] = []
    stack, seen = [root], {root}
    while stack:
        node = stack.pop()
        if node.depth % RECURSIVE_LEVELS == 0:
            found.append(node)
        for kid in node.children():
            if kid not in seen and kid.depth >= RECURSIVE_LEVELS and kid not in known:
                seen.add(kid)
                stack.append(kid)
    found.sort(key=lambda node: node.depth)
    return found
