"""One small function around a statement, its printed body and what it computes."""

from __future__ import annotations

import numpy as np

from compiler_service.compiler.loop_ir.interpret import run as interpret
from compiler_service.compiler.loop_ir.ir import Buffer, Function, Statement
from compiler_service.compiler.loop_ir.parse import parse_function
from compiler_service.compiler.loop_ir.text import print_function
from compiler_service.compiler.tensor_expr.strides import span
from shared_ir.expr import Const, Var
from shared_ir.expr.dim import evaluate
from tests.compiler_service.compiler.loop_ir.loop_programs import FLOAT

T, V, I2, K, N = Var("t"), Var("v"), Var("i2"), Var("k"), Var("n")
X, Y = Buffer("x", FLOAT, (4, 16)), Buffer("y", FLOAT, (4, 16))
ONE, ZERO = Const(1.0, FLOAT), Const(0.0, FLOAT)


def over_x_and_y(body: Statement) -> Function:
    return Function("kernel", (X, Y), (N,), T, 4, body)


def lines(function: Function) -> list[str]:
    """The printed body, without the two lines of the signature."""
    return [line.removeprefix("    ") for line in print_function(function).splitlines()[2:]]


def outputs(function: Function, symbols: dict[str, int]) -> list[np.ndarray]:
    """Every array after a run on fixed inputs."""
    random = np.random.default_rng(5)
    arrays = []
    for buffer in function.buffers:
        size = evaluate(span(buffer.shape, buffer.strides), symbols)
        arrays.append(random.integers(-4, 5, size).astype(buffer.dtype.numpy))
    interpret(function, arrays, symbols)
    return [array.reshape(-1) for array in arrays]


def assert_reads_back(function: Function) -> Function:
    """What is read of the text of ``function`` prints the same; the function that was read."""
    text = print_function(function)
    read = parse_function(text)
    assert print_function(read) == text
    return read
