"""What definitions do with their arguments."""

from __future__ import annotations

import pytest

from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, placeholder, reduce
from compiler_service.compiler.tune.measuring.roles import is_exact, positions
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast, lift, maximum, select

TABLE = placeholder("table", (10, 4), DType.FLOAT32)
WHERE = placeholder("where", (6,), DType.INT64)
COUNT = placeholder("count", (6,), DType.INT64)
INTS = placeholder("ints", (6, 6), DType.INT32)
FLOATS = placeholder("floats", (6, 6), DType.FLOAT32)


def test_what_is_read_at_a_position_of_data_tells_which() -> None:
    plain = compute((6, 4), lambda i, j: TABLE[WHERE[i], j] * cast(COUNT[i], DType.FLOAT32))
    assert positions([plain]) == {WHERE}


def test_so_does_a_position_that_is_computed() -> None:
    """In another tensor, of two arguments."""
    at = compute((6,), lambda i: maximum(WHERE[i] - COUNT[i], lift(0)))
    found = compute((6, 4), lambda i, j: TABLE[at[i], j])
    assert positions([found]) == {WHERE, COUNT}
    assert positions([at]) == set()
    assert positions([at, found]) == {WHERE, COUNT}


def product(one: Tensor, other: Tensor) -> Tensor:
    return reduce(ReduceOp.SUM, (6, 6), (6,), lambda i, j, k: one[i, k] * other[k, j])


def of(body: Expr) -> Tensor:
    return compute((), lambda: body)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (product(INTS, INTS), True),
        (product(FLOATS, FLOATS), False),  # of floats
        (of(INTS[0, 0] + 1), True),
        (of(FLOATS[0, 0] > FLOATS[0, 1]), True),
        (of(FLOATS[0, 0] * 2.0 > FLOATS[0, 1]), False),
        (of(cast(FLOATS[0, 0], DType.INT32)), True),
        (of(cast(product(FLOATS, FLOATS)[0, 0], DType.INT32)), False),
        (of(select(product(FLOATS, FLOATS)[0, 0] > 0.0, INTS[0, 0], INTS[1, 1])), False),
        (reduce(ReduceOp.MAX, (6,), (6,), lambda i, k: cast(FLOATS[i, k], DType.INT32)), True),
    ],
    ids=str,
)
def test_what_is_exact(result: Tensor, expected: bool) -> None:
    assert is_exact(result) is expected
