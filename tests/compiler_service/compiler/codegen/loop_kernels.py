"""Loop functions that the code generation tests are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Broadcast,
    Buffer,
    BufferLoad,
    BufferScope,
    For,
    ForKind,
    Function,
    Ramp,
    Store,
)
from shared_ir.dtype import DType
from shared_ir.expr import Const, Expr, Var

TASK = Var("task")
COUNT = Var("n")


def lane_index(lanes: int, start: Expr | None = None) -> Expr:
    base = TASK * lanes if start is None else start
    return Ramp(base, Const(1), lanes) if lanes > 1 else base


def elementwise(
    inputs: Mapping[str, DType], outputs: Mapping[str, Callable[..., Expr]], lanes: int, name: str = "elementwise"
) -> Function:
    """Output ``name`` is ``outputs[name](*input values)``; arrays have ``n`` elements, a multiple of ``lanes``."""
    index = lane_index(lanes)
    sources = {n: Buffer(n, dtype, (COUNT,)) for n, dtype in inputs.items()}
    values = [BufferLoad(b, (index,)) for b in sources.values()]
    targets: list[Buffer] = []
    stores: list[Store] = []
    for n, formula in outputs.items():
        value = formula(*values)
        targets.append(Buffer(n, value.dtype, (COUNT,)))
        stores.append(Store(targets[-1], (index,), value))
    return Function(name, (*sources.values(), *targets), (COUNT,), TASK, COUNT // lanes, Block(tuple(stores)))


def matmul(m: int, k: int, n: int, rows: int = 6, columns: int = 64, lanes: int = 16) -> Function:
    """C[m, n] = A[m, k] B, B packed as [n / columns][k][columns]; accumulators on the stack, one task per tile."""
    a = Buffer("a", DType.FLOAT32, (m * k,))
    b = Buffer("b", DType.FLOAT32, (k * n,))
    c = Buffer("c", DType.FLOAT32, (m * n,))
    tile = Buffer("tile", DType.FLOAT32, (rows * columns,), BufferScope.STACK)
    i, j, inner = TASK // (n // columns), TASK % (n // columns), Var("k")
    cells = [(row, v) for row in range(rows) for v in range(columns // lanes)]

    def cell(row: int, v: int) -> Ramp:
        return Ramp(Const(row * columns + v * lanes), Const(1), lanes)

    clear = [Store(tile, (cell(*at),), Broadcast(Const(0.0, DType.FLOAT32), lanes)) for at in cells]
    update = [
        Store(
            tile,
            (cell(row, v),),
            BufferLoad(tile, (cell(row, v),))
            + Broadcast(BufferLoad(a, ((i * rows + row) * k + inner,)), lanes)
            * BufferLoad(b, (Ramp((j * k + inner) * columns + v * lanes, Const(1), lanes),)),
        )
        for row, v in cells
    ]
    write = [
        Store(
            c,
            (Ramp((i * rows + row) * n + j * columns + v * lanes, Const(1), lanes),),
            BufferLoad(tile, (cell(row, v),)),
        )
        for row, v in cells
    ]
    loop = For(inner, Const(k), ForKind.SERIAL, Block(tuple(update)))
    body = Allocate(tile, Block((*clear, loop, *write)))
    return Function("matmul", (a, b, c), (), TASK, (m // rows) * (n // columns), body)
