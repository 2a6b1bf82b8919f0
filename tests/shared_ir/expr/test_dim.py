"""Dims: text round trip, binding, evaluation."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import assume, given

from shared_ir.errors import IngotError
from shared_ir.expr import Const, Expr, Var
from shared_ir.expr.dim import (
    as_dim,
    bind,
    dim_symbols,
    dim_text,
    dims_text,
    divisor,
    evaluate,
    evaluate_alike,
    numbers_of,
    parse_dim,
    product,
    static,
    symbol,
)
from tests.shared_ir.expr.expressions import assignments, dim_expressions, expressions, value_of


@given(dim_expressions())
def test_parse_inverts_text(expr: Expr) -> None:
    dim = as_dim(expr)
    assert parse_dim(dim_text(dim)) == dim


@given(expressions())
def test_parse_inverts_text_of_conditional_dims(expr: Expr) -> None:
    dim = as_dim(expr)
    assert parse_dim(dim_text(dim)) == dim


@given(dim_expressions(), assignments)
def test_evaluate_is_the_arithmetic_value(expr: Expr, values: Mapping[str, int]) -> None:
    assert evaluate(as_dim(expr), values) == value_of(expr, values)


@given(dim_expressions(), assignments)
def test_partial_binding_keeps_the_value(expr: Expr, values: Mapping[str, int]) -> None:
    some = {k: v for k, v in values.items() if k in "ab"}
    assert evaluate(bind(as_dim(expr), some), values) == value_of(expr, values)


@given(dim_expressions(), dim_expressions())
def test_binding_a_symbol_to_a_dim_substitutes_it(expr: Expr, other: Expr) -> None:
    values = {"a": 3, "b": 5, "c": 7, "d": 11}
    inner = as_dim(other)
    assume(value_of(other, values) >= 0)
    bound = bind(as_dim(expr), {"a": inner})
    assert evaluate(bound, values) == value_of(expr, {**values, "a": int(value_of(other, values))})


@given(dim_expressions(), assignments)
def test_a_divisor_divides_every_value(expr: Expr, values: Mapping[str, int]) -> None:
    dim = as_dim(expr)
    assume(dim != 0)
    assert evaluate(dim, values) % divisor(dim) == 0


def test_divisors_are_the_largest_known() -> None:
    n, h = symbol("n"), symbol("h")
    found = [divisor(as_dim(d)) for d in (n * 128, n * 128 + 48, n * h, (n * 6) // 4 * 10, Const(12), n * 4 - h * 6)]
    assert found == [128, 16, 1, 10, 12, 2]


def test_constants_become_ints() -> None:
    assert as_dim(Const(3) + 4) == 7
    assert isinstance(as_dim(Const(3) + 4), int)
    assert product([2, 3, symbol("n")]) == as_dim(symbol("n") * 6)
    assert product([]) == 1


def test_symbols_and_text() -> None:
    n = symbol("n")
    assert dim_symbols([n, 3, as_dim((n + symbol("m")) // 2)]) == {"n", "m"}
    assert dims_text([n, 3, as_dim((n + 1) // 2)]) == "n, 3, (n + 1) // 2"


def test_evaluate_names_what_is_missing() -> None:
    with pytest.raises(KeyError, match="no value for w in"):
        evaluate(as_dim(symbol("h") + symbol("w")), {"h": 1})


def test_evaluate_says_that_a_size_is_too_large() -> None:
    with pytest.raises(IngotError, match="more memory than there is"):
        evaluate(as_dim(symbol("h") * symbol("h")), {"h": 1 << 40})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a +",
        "a ** 2",
        "a / 2",
        "f(a)",
        "'a'",
        "1.5",
        "a.b",
        "a[0]",
        "max(a)",
        "max(a, b, c)",
        "max(a, key=b)",
        "True",
        "(" * 500 + "a" + ")" * 500,
        "a;b",
        "lambda: 1",
        "a if b else c",
        "\0",
        "-" * 5000 + "a",
        "a < b",
        "a < b < c",
        "select(a, b, c)",
        "max(a < b, c)",
    ],
)
def test_parse_refuses_what_is_no_dim(text: str) -> None:
    with pytest.raises(ValueError, match="not a dim"):
        parse_dim(text)


@pytest.mark.parametrize("name", ["", "a b", "1a", "a-b"])
def test_symbols_are_identifiers(name: str) -> None:
    with pytest.raises(ValueError, match="not an identifier"):
        symbol(name)


def test_negation_of_a_parsed_dim() -> None:
    assert parse_dim("-3") == -3
    assert parse_dim("-n + 3") == as_dim(3 - Var("n"))


def test_a_divisor_of_0_counts_as_1() -> None:
    n = symbol("n")
    half = as_dim(as_dim(n * 8) // as_dim(n // 2 * 16))
    assert evaluate(half, {"n": 1}) == 8
    assert evaluate(half, {"n": 4}) == 1
    assert evaluate(as_dim(n % as_dim(n - 3)), {"n": 3}) == 0


def test_numbers_of_dims() -> None:
    assert numbers_of([]) == ()
    assert numbers_of([2, 0, 3]) == (2, 0, 3)
    assert numbers_of([2, symbol("n")]) is None
    assert static(4) == 4
    with pytest.raises(IngotError, match="should be known"):
        static(symbol("n"))


def test_sizes_beyond_int64_have_no_estimate() -> None:
    sizes = [symbol(f"n{k}") for k in range(12)]
    assert evaluate_alike(product(sizes[:10]), 64) == 64**10
    assert evaluate_alike(product(sizes), 64) is None
    assert evaluate_alike(7, 64) == 7
