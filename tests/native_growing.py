"""A hand-written model with a branch, a loop and an output that the run sizes: kernels in C, no compiler passes.

``rows[i] = start + 0 + 1 + ... + i`` for ``i < m`` and ``last`` the last of them, where ``start`` is ``2 * x`` or ``x``.
"""

from __future__ import annotations

from shared_ir.dtype import DType
from shared_ir.expr import Var
from shared_ir.expr.dim import parse_dim, symbol
from shared_ir.plan.program import (
    Branch,
    BufferSpec,
    Check,
    Constraint,
    Copy,
    Define,
    KernelSpec,
    Launch,
    Plan,
    Read,
    Repeat,
    Reserve,
    Storage,
    Swap,
    SymbolSource,
    TensorSpec,
)

MOST_ELEMENTS = 100_000
GROWING_SYMBOLS = ("k_double", "k_increase")
GROWING_KERNELS = """
#include <stdint.h>
typedef void *const *buffers_t;
void k_double(buffers_t b, const int64_t *s, int64_t begin, int64_t end, void *scratch, const volatile int *stop) {
  (void)stop;
  const float *x = b[0]; float *y = b[1]; (void)scratch; /* task: 16 of s[0] elements */
  for (int64_t i = begin * 16; i < end * 16 && i < s[0]; i++) y[i] = 2 * x[i];
}
void k_increase(buffers_t b, const int64_t *s, int64_t begin, int64_t end, void *scratch, const volatile int *stop) {
  (void)stop;
  const float *x = b[0]; float *y = b[1]; (void)scratch; /* the same; adds s[1] */
  for (int64_t i = begin * 16; i < end * 16 && i < s[0]; i++) y[i] = x[i] + (float)s[1];
}
"""


def growing_plan() -> Plan:
    n, f32 = symbol("n"), DType.FLOAT32
    size, tasks = n * 4, parse_dim("(n + 15) // 16")
    x, m, p, start, current, following, row, last = range(8)

    def slot(index: int, name: str, offset: str = "0") -> BufferSpec:
        return BufferSpec(Storage.SLOT, f32, (n,), size, offset=parse_dim(offset), index=index, name=name)

    body = (
        Reserve(row, keep=True),
        Launch(1, (current, following), (n, Var("i")), tasks, flops=n, label="increase"),
        Copy(following, row),
        Swap(0, 1),
        Define(("total",), (parse_dim("total + n"),)),
    )
    return Plan(
        name="growing",
        inputs=(
            TensorSpec("x", f32, (n,)),
            TensorSpec("m", DType.INT64, ()),
            TensorSpec("p", DType.BOOL, ()),
        ),
        outputs=(TensorSpec("rows", f32, (Var("count"), n)), TensorSpec("last", f32, (n,))),
        symbols=(SymbolSource("n", 0, 0),),
        constraints=(),
        buffers=(
            BufferSpec(Storage.INPUT, f32, (n,), size, index=0, name="x"),
            BufferSpec(Storage.INPUT, DType.INT64, (), 8, index=1, name="m"),
            BufferSpec(Storage.INPUT, DType.BOOL, (), 1, index=2, name="p"),
            BufferSpec(Storage.ARENA, f32, (n,), size, name="start"),
            slot(0, "current"),
            slot(1, "following"),
            slot(2, "row", "i * n * 4"),
            BufferSpec(Storage.OUTPUT, f32, (n,), size, index=1, name="last"),
        ),
        kernels=(KernelSpec("double", ("n",)), KernelSpec("increase", ("n", "by"))),
        steps=(
            Read("limit", m),
            Read("doubled", p),
            Branch(Var("doubled"), (Launch(0, (x, start), (n,), tasks),), (Copy(x, start),)),
            Reserve(current),
            Copy(start, current),
            Reserve(following),
            Define(("total",), (0,)),
            Repeat("i", Var("limit"), "", body),
            Copy(current, last),
            Check(Constraint(parse_dim(f"{MOST_ELEMENTS} - total"), 0, "elements left of the most there may be", True)),
            Define(("count",), (Var("i"),)),
        ),
        arena_size=parse_dim("(n * 4 + 63) // 64 * 64"),
        weights_size=0,
        run_symbols=("limit", "doubled", "total", "i", "count"),
        output_slots=(2, -1),
        slots=3,
    )
