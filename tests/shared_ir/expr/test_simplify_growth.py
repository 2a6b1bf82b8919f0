"""Expressions far deeper than Python's stack, and as many terms as a model has tensors: the work grows with them and no faster."""

from __future__ import annotations

import numpy as np
import pytest

from shared_ir.expr import Binary, BinaryOp, Const, Expr, Var, lift, substitute, transform, walk
from shared_ir.expr.dim import Dim, as_dim, bind, dim_symbols, dim_text, sum_of, symbol
from shared_ir.expr.nodes import MOST_PRINTED_NODES
from shared_ir.expr.simplify import Simplifier, simplify

N = symbol("n")
DEEP = 2000


def halves(count: int) -> Dim:
    """A size after so many layers, each of which rounds: no form of it is another's."""
    size: Dim = N
    for _ in range(count):
        size = as_dim((size * 3 + 1) // 2)
    return size


def chain(count: int) -> Expr:
    total: Expr = N
    for i in range(count):
        total = Binary(BinaryOp.FLOOR_DIV, Binary(BinaryOp.ADD, total, Const(i % 7)), Const(2))
    return total


def test_facts_of_deep_expressions() -> None:
    expr = chain(DEEP)
    assert expr.depth == 2 * DEEP
    assert expr.variables == {N}
    assert expr.length == MOST_PRINTED_NODES
    assert expr.text != chain(DEEP - 1).text


def test_text_of_what_shares_its_parts_ends() -> None:
    """The tree of it has two to the power of the layers."""
    assert dim_text(halves(300)).endswith(" ...")


def test_deep_expressions_are_rewritten() -> None:
    expr = chain(DEEP)
    assert transform(expr, lambda e: Var("m") if e is N else None) is substitute(expr, {N: Var("m")})
    assert dim_symbols([as_dim(bind(as_dim(expr), {"n": symbol("m")}))]) == {"m"}


def test_bounds_of_deep_expressions() -> None:
    simplifier = Simplifier({"n": (2, 5)})
    low, high = simplifier.interval(chain(DEEP))
    bound = [bind(chain(DEEP), {"n": n}) for n in (2, 5)]
    values = [n for n in bound if isinstance(n, int)]
    assert values == bound
    assert (low, high) == (min(values), max(values))
    assert simplifier(chain(DEEP)) is simplifier(simplifier(chain(DEEP)))


@pytest.mark.parametrize("n", [0, 1, 7])
def test_values_of_deep_sizes(n: int) -> None:
    wanted = n
    for _ in range(20):
        wanted = (wanted * 3 + 1) // 2
    assert bind(halves(20), {"n": n}) == wanted


def test_sizes_made_of_sizes_are_simplified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, count = Simplifier._rewrite, 0

    def rewrite(self: Simplifier, expr: Expr) -> Expr:
        nonlocal count
        count += 1
        return plain(self, expr)

    monkeypatch.setattr(Simplifier, "_rewrite", rewrite)
    counts = []
    for length in (100, 200, 400):
        count = 0
        size: Dim = symbol(f"m{length}")
        for _ in range(length):
            size = as_dim((size * 3 + 1) // 2)
        counts.append(count)
    assert counts[2] - counts[1] <= 2.2 * (counts[1] - counts[0])


def test_sums_of_many_sizes_are_shallow() -> None:
    symbols = [symbol(f"s{i}") for i in range(3000)]
    total = lift(sum_of([*symbols, *symbols, 7]))
    assert total.depth < 100
    assert len(list(walk(total))) < 4 * len(symbols)
    assert simplify(total) is total
    values = np.random.default_rng(0).integers(0, 100, len(symbols))
    assert bind(total, {s.name: int(v) for s, v in zip(symbols, values, strict=True)}) == 2 * values.sum() + 7


def test_the_sum_of_few_is_written_as_ever() -> None:
    assert dim_text(sum_of([N, 3, symbol("a") * 2, N])) == "a * 2 + n * 2 + 3"
