"""What the generator makes of well-known programs by default, and that each of its answers makes a schedule."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compiler_service.compiler.schedule.language.knobs import Knobs, Values
from compiler_service.compiler.schedule.language.steps import ComputeAt, Pack, Parallel, Split, Unroll, Vectorize
from compiler_service.compiler.schedule.staging.lowered import Lowerings
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.tensor_expr.scalar import exp
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, placeholder, reduce
from compiler_service.compiler.tune.sketches.sketch import sketch
from shared_ir.dtype import DType
from shared_ir.errors import IngotError
from shared_ir.expr import Expr, lift, logical_and, select
from shared_ir.expr.dim import Dim, symbol
from shared_ir.machine.target import parse_target

F32 = DType.FLOAT32
WIDE = parse_target("x86-64-v4 -cores=1")
SMALL = parse_target("raspberry-pi/4b")


def summed(name: str, shape: tuple[Dim, ...], over: tuple[Dim, ...], body: Callable[..., Expr]) -> Tensor:
    axes, reduced = "ijlm"[: len(shape)], "krs"[: len(over)]
    return reduce(ReduceOp.SUM, shape, over, body, name=name, axes=tuple(axes), reduced=tuple(reduced))


def product(m: Dim = 512, n: Dim = 512, k: Dim = 512) -> Tensor:
    a, b = placeholder("A", (m, k), F32), placeholder("B", (k, n), F32)
    return summed("C", (m, n), (k,), lambda i, j, q: a[i, q] * b[q, j])


def softmax(m: Dim = 64, n: Dim = 1000) -> Tensor:
    a = placeholder("A", (m, n), F32)
    largest = reduce(ReduceOp.MAX, (m,), (n,), lambda i, q: a[i, q], name="largest", axes=("i",), reduced=("q",))
    powers = compute((m, n), lambda i, j: exp(a[i, j] - largest[i]), name="powers", axes=("i", "j"))
    total = summed("total", (m,), (n,), lambda i, q: powers[i, q])
    return compute((m, n), lambda i, j: powers[i, j] / total[i], name="out", axes=("i", "j"))


def convolution() -> Tensor:
    """With padding ahead of it and an activation behind."""
    x, f = placeholder("X", (14, 14, 32), F32), placeholder("F", (3, 3, 32, 64), F32)

    def inside(i: Expr, j: Expr, c: Expr) -> Expr:
        within = logical_and(logical_and(i >= 1, i < 15), logical_and(j >= 1, j < 15))
        return select(within, x[i - 1, j - 1, c], lift(0.0, F32))

    padded = compute((16, 16, 32), inside, name="padded", axes=("i", "j", "l"))
    conv = summed("conv", (14, 14, 64), (3, 3, 32), lambda i, j, c, r, s, q: padded[i + r, j + s, q] * f[r, s, q, c])
    return compute((14, 14, 64), lambda i, j, c: conv[i, j, c] * 2.0 + 1.0, name="out", axes=("i", "j", "l"))


def transposed() -> Tensor:
    a = placeholder("A", (200, 120), F32)
    return compute((120, 200), lambda i, j: exp(a[j, i]), name="T", axes=("i", "j"))


def grand_total() -> Tensor:
    a = placeholder("A", (10_000,), F32)
    return summed("total", (), (10_000,), lambda q: a[q])


def made(output: Tensor, values: Values | None = None, target: str | None = None) -> StagedProgram:
    machine = WIDE if target is None else parse_target(target)
    return sketch(StagedProgram.of([output]), machine, Knobs(values or {}))


def kinds(program: StagedProgram, kernel: str) -> list[type]:
    return [type(s) for k in program.kernels() if k.stage.name == kernel for s in k.schedule]


def test_a_product_is_summed_in_a_register_tile_of_packed_operands() -> None:
    program = made(product())
    assert [k.stage.name for k in program.kernels()] == ["B.packed", "C"]
    steps = program.kernels()[-1].schedule
    tile = next(s for s in steps if isinstance(s, ComputeAt))
    height = int(tile.loop.rpartition(".")[2])
    width = max(s.factor for s in steps if isinstance(s, Split) and s.stage == "C.acc")
    assert height * width // 16 + width // 16 + 1 <= WIDE.vector_registers
    assert {Unroll("C.acc", "i"), Vectorize("C.acc", "j")} <= set(steps)
    assert not any(isinstance(s, Pack) for s in steps)  # that is of constants


def test_what_a_row_needs_is_one_nest() -> None:
    program = made(softmax())
    assert [k.stage.name for k in program.kernels()] == ["out"]
    assert kinds(program, "out").count(ComputeAt) == 3
    assert len(made(softmax(), {"total inside": False}).kernels()) > 1


def test_what_is_cheap_is_computed_where_it_is_read() -> None:
    a = placeholder("A", (100, 100), F32)
    doubled = compute((100, 100), lambda i, j: a[i, j] * 2.0, name="doubled", axes=("i", "j"))
    out = compute((100, 100), lambda i, j: doubled[i, j] + doubled[j, i], name="out", axes=("i", "j"))
    assert [k.stage.name for k in made(out).kernels()] == ["out"]
    kept = made(out, {"doubled in place": False, "doubled inside": False})
    assert [k.stage.name for k in kept.kernels()] == ["doubled", "out"]


def test_a_long_sum_is_cut_for_cores() -> None:
    parts = made(grand_total(), {}, "x86-64-v4 -cores=4")
    assert [k.stage.name for k in parts.kernels()] == ["total.rf", "total"]
    assert Parallel in kinds(parts, "total.rf")
    assert "total parts" not in asked(grand_total(), "x86-64-v4 -cores=1")


def test_a_sum_is_cut_in_chunks() -> None:
    """Its accumulators wait in memory, those of a chunk are registers."""
    program = made(product(), {"C.acc chunk": 128})
    places = {s.stage: s.consumer for s in program.kernels()[-1].schedule if isinstance(s, ComputeAt)}
    assert places == {"C.acc": "C", "C.acc.rf": "C.acc"}


def asked(output: Tensor, target: str) -> dict[str, object]:
    knobs = Knobs()
    sketch(StagedProgram.of([output]), parse_target(target), knobs)
    return dict(knobs.asked)


PROGRAMS = {
    "product": product,
    "of any size": lambda: product(symbol("m"), symbol("n"), symbol("k")),
    "softmax": softmax,
    "rows of any length": lambda: softmax(symbol("m"), symbol("n")),
    "convolution": convolution,
    "transposed": transposed,
    "total": grand_total,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("target", [WIDE, SMALL], ids=["wide", "small"])
def test_each_answer_alone_makes_a_schedule(name: str, target: object) -> None:
    output, machine = PROGRAMS[name](), WIDE if target is WIDE else SMALL
    plain, known, knobs = StagedProgram.of([output]), Lowerings(), Knobs()
    known.of(sketch(plain, machine, knobs), machine)
    for knob in knobs.asked.values():
        for option in {knob.options[0], knob.options[-1], *knob.neighbours} - {knob.value}:
            own = Knobs({knob.name: option})
            known.of(sketch(plain, machine, own), machine)
            assert own.values[knob.name] == option


def test_what_is_scheduled_already_is_refused() -> None:
    with pytest.raises(IngotError, match="scheduled already"):
        sketch(made(product()), WIDE, Knobs())
