"""The builder writes what it is told, with the types that follow."""

from __future__ import annotations

import numpy as np
import pytest

from ingot import ir
from shared_ir.errors import ErrorCode, IngotError
from tests.ingot.ir.programs import INCREMENT, double


def test_a_layer() -> None:
    n = ir.symbol("n")
    b = ir.GraphBuilder("layer")
    x = b.input("x", (n, 4))
    y = b.relu(b.mat_mul(x, np.ones((4, 8), np.float32)), name="y")
    assert str(y) == "%y: float32[n, 8]"
    assert str(b.function(y)) == (
        "graph layer(%x: float32[n, 4]) -> (%y) {\n"
        f"  const %constant: float32[4, 8] = {next(iter(b.function(y).constants))}\n"
        "  %matmul: float32[n, 8] = MatMul(%x, %constant)\n"
        '  %y: float32[n, 8] = Relu(%matmul) "y"\n'
        "}\n"
    )


def test_several_results_branches_and_calls() -> None:
    b = ir.GraphBuilder()
    x = b.input("x", (6,))
    first, second = b.split(x, np.array([2, 4]), outputs=2)
    assert (str(first.type), str(second.type)) == ("float32[2]", "float32[4]")
    flag = b.greater(b.reduce_max(x, keepdims=0), 0.0)
    y = b.branch(flag, lambda: b.call(INCREMENT, b.neg(x)), lambda: b.call(double(), x))
    module = ir.Module((b.function(first, second, y), INCREMENT, double()))
    module.verify()
    found = module.interpret(np.arange(6, dtype=np.float32))
    np.testing.assert_array_equal(found[0], [0, 1])
    np.testing.assert_array_equal(found[1], [2, 3, 4, 5])
    np.testing.assert_array_equal(found[2], 1 - np.arange(6))


def test_attributes_are_checked_and_named() -> None:
    b = ir.GraphBuilder()
    x = b.input("x", (2, 3))
    assert "transpose" in dir(b)
    assert b.transpose(x, perm=[1, 0]).shape == (3, 2)
    with pytest.raises(IngotError) as caught:
        b.transpose(x, axes=(1, 0))
    assert caught.value.code is ErrorCode.UNSUPPORTED_ATTRIBUTE
    with pytest.raises(IngotError) as caught:
        b.add(x, np.ones(3, np.int64))
    assert caught.value.code is ErrorCode.TYPE_MISMATCH
    with pytest.raises(AttributeError, match="transposed"):
        b.transposed(x)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda b: b.input("x", (1,)),
        lambda b: b.input("z", (1,), "float33"),
        lambda b: b.op("Relu", b.input("y", (1,)), outputs=2),
        lambda b: ir.symbol("2n"),
        lambda b: b.branch(b.constant(True), lambda: 1.0, lambda: None),
        lambda b: b.branch(b.constant(True), lambda: 1.0, lambda: 2),
        lambda b: b.call(double(), 1.0),
    ],
)
def test_what_is_refused(wrong: object) -> None:
    b = ir.GraphBuilder()
    b.input("x", (1,))
    with pytest.raises(IngotError) as caught:
        wrong(b)  # type: ignore[operator]
    assert caught.value.code in (ErrorCode.INVALID_ARGUMENT, ErrorCode.TYPE_MISMATCH)
