"""Each primitive: what it makes of the loops, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ingot import ir, te
from shared_ir.errors import ErrorCode, IngotError

X = te.placeholder((8, 32), name="x")
DOUBLED = te.compute((8, 32), lambda i, j: X[i, j] * 2.0, name="doubled")
OUT = te.compute((8, 32), lambda i, j: DOUBLED[i, j] + 1.0, name="out")
SUMMED = te.sum((8,), 32, lambda i, k: X[i, k], name="summed")


def loops(schedule: te.Schedule) -> str:
    return str(te.lower(schedule, [X], target="llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v4"))


def heads(schedule: te.Schedule) -> list[str]:
    """The lines of the loops that open something, without their indents."""
    return [
        line.strip() for line in loops(schedule).splitlines() if line.strip().startswith(("for", "stack", "scratch"))
    ]


def test_a_stage_begins_with_one_loop_for_each_axis() -> None:
    assert heads(te.schedule(DOUBLED)) == ["for task task_0 in 0..1:", "for i_1 in 0..8:", "for j_2 in 0..32:"]


def test_split_and_reorder() -> None:
    s = te.schedule(DOUBLED)
    outer, inner = s[DOUBLED].split("j", 8)
    assert (str(outer), str(inner)) == ("j.8", "j")
    s[DOUBLED].reorder(outer, "i")
    assert heads(s) == ["for task task_0 in 0..1:", "for j_1 in 0..4:", "for i_2 in 0..8:", "for j_3 in 0..8:"]


def test_parts_and_tiles_of_tiles() -> None:
    s = te.schedule(DOUBLED)
    outer, _ = s[DOUBLED].split("j", nparts=2)
    further, nearer = s[DOUBLED].split(outer, 2)
    assert [str(loop) for loop in s[DOUBLED].loops] == ["i", "j.32", "j.16", "j"]
    assert (str(further), str(nearer)) == ("j.32", "j.16")


def test_nicknames() -> None:
    s = te.schedule(DOUBLED)
    s[DOUBLED].split("j", 8)
    assert str(s[DOUBLED]["j.outer"]) == "j.8"
    assert str(s[DOUBLED]["j.inner"]) == "j"


def test_vector_and_tasks() -> None:
    s = te.schedule(DOUBLED)
    s[DOUBLED].vectorize("j", 16).parallel("i")
    assert heads(s) == ["for task task_0 in 0..8:", "for j_2 in 0..2:", "for j_3 in 0..16 vectorized:"]


def test_fuse() -> None:
    s = te.schedule(DOUBLED)
    fused = s[DOUBLED].fuse("i", "j")
    s[DOUBLED].parallel(fused)
    assert "for task task_0 in 0..256:" in loops(s)


def test_a_stage_inside_of_another_keeps_what_is_read() -> None:
    s = te.schedule(OUT)
    s[DOUBLED].compute_at(OUT, "i")
    assert "stack doubled: float32[1, 32]" in loops(s)
    s[DOUBLED].compute_at(OUT, "i", scope="scratch")
    assert "scratch doubled: float32[1, 32]" in loops(s)
    s[DOUBLED].compute_inline()
    assert list(te.lower(s, [X]).functions) == ["out"]
    s[DOUBLED].compute_root()
    assert [kernel.stage.name for kernel in s._program.kernels()] == ["doubled", "out"]


def test_copies_of_what_is_read_and_written() -> None:
    s = te.schedule(SUMMED)
    total = s.cache_write(SUMMED)
    local = s.cache_read(X, total)
    assert (total.name, local.name) == ("summed.acc", "x.local")
    total.compute_at(SUMMED, "i")
    local.compute_at(total, "i")
    assert heads(s)[1:4] == ["for i_1 in 0..8:", "stack summed_acc: float32[1]", "stack x_local: float32[1, 32]"]


def test_a_copy_in_another_order() -> None:
    s = te.schedule(SUMMED)
    local = s.cache_read(X, SUMMED, order=(1, 0))
    assert [str(loop) for loop in local.loops] == ["x_1", "x_0"]
    local.compute_at(SUMMED, "i")
    assert heads(s)[1:3] == ["for i_1 in 0..8:", "stack x_local: float32[32, 1]"]


def test_a_sum_in_two_steps() -> None:
    s = te.schedule(SUMMED)
    partial = s.rfactor(SUMMED, "k", 8)
    assert [str(loop) for loop in partial.loops] == ["i", "k_inner", "k_outer"]
    assert [str(loop) for loop in s[SUMMED].loops] == ["i", "k_inner"]
    outer = te.schedule(SUMMED)
    assert [str(loop) for loop in outer.rfactor(SUMMED, "k", 8, outer=True).loops] == ["i", "k_outer", "k_inner"]


def test_memory_is_asked_for_ahead() -> None:
    s = te.schedule(DOUBLED)
    s[DOUBLED].prefetch(X, "i", 2)
    assert "prefetch.l1 x_0[i_1 + 2, 0]" in loops(s)


def test_rows_apart() -> None:
    s = te.schedule(OUT)
    s[DOUBLED].compute_at(OUT, "i").storage_align(16, 3)
    assert "stack doubled: float32[1, 35]" in loops(s)
    with pytest.raises(IngotError, match="rows cannot be aligned so"):
        s[DOUBLED].storage_align(4, 4)
    s[DOUBLED].compute_at(OUT, "i")
    assert "stack doubled: float32[1, 32]" in loops(s)


def test_a_copy_in_tiles() -> None:
    s = te.schedule(SUMMED)
    packed = s.pack(X, SUMMED, 1, 12)
    assert [str(loop) for loop in packed.loops] == ["x_tile", "x_0", "x_place"]
    program = te.lower(s, [X])
    assert "x_packed_0: float32[3, 8, 12]" in str(program["summed"])
    x = np.random.default_rng(0).random((8, 32), dtype=np.float32)
    np.testing.assert_allclose(program.interpret(x)[0], x.sum(1), rtol=1e-6)


BYTES, SIGNED = te.placeholder((4, 10), "uint8", name="b"), te.placeholder((10, 16), "int8", name="w")
PRODUCT = te.sum((4, 16), 10, lambda i, j, k: te.cast(BYTES[i, k], "int32") * te.cast(SIGNED[k, j], "int32"), name="p")
WITH_DOTS = "llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server"


def test_a_sum_by_an_instruction() -> None:
    s = te.schedule(PRODUCT)
    data, weight = s.tensorize(PRODUCT, "k", "vpdpbusd")
    assert (data.name, weight.name) == ("b.words", "w.words")
    s[PRODUCT].reorder("i", "k", "j").vectorize("j")
    program = te.lower(s, [BYTES, SIGNED], WITH_DOTS)
    assert "dot4(b_words_0[i_1, k_3], w_words_1[k_3, j_4])" in str(program)
    b = np.arange(40, dtype=np.uint8).reshape(4, 10) * 6
    w = (np.arange(160).reshape(10, 16) - 80).astype(np.int8)
    np.testing.assert_array_equal(program.interpret(b, w)[0], b.astype(np.int32) @ w.astype(np.int32))
    assert "vpdpbusd" in te.build(s, [BYTES, SIGNED], WITH_DOTS).inspect("asm")
    with pytest.raises(IngotError, match="summed by vpdpbusd, which skylake-avx512 does not have"):
        te.lower(s, [BYTES, SIGNED], "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")


def test_what_no_row_computes_is_not_done_by_one() -> None:
    for factor in (
        lambda i, j, k: te.cast(BYTES[i, 9 - k], "int32"),
        lambda i, j, k: te.cast(BYTES[i, k], "int32") + 1,
    ):
        other = te.sum((4, 16), 10, lambda i, j, k, f=factor: f(i, j, k) * te.cast(SIGNED[k, j], "int32"), name="q")
        s = te.schedule(other)
        before = str(s)
        with pytest.raises(IngotError, match="is not proven to be what vpdpbusd computes along k"):
            s.tensorize(other, "k", "vpdpbusd")
        assert str(s) == before
    with pytest.raises(IngotError, match="is not proven to be what sdot computes"):
        te.schedule(PRODUCT).tensorize(PRODUCT, "k", "sdot")
    with pytest.raises(IngotError, match="no such instruction"):
        te.schedule(PRODUCT).tensorize(PRODUCT, "k", "amx")


REFUSED: dict[str, Callable[[te.Schedule], object]] = {
    "no loop z": lambda s: s[OUT].split("z", 4),
    "cannot split out.j by 1": lambda s: s[OUT].split("j", 1),
    "one of factor and nparts": lambda s: s[OUT].split("j"),
    "names a loop twice": lambda s: s[OUT].reorder("i", "i"),
    "has loops inside": lambda s: s[OUT].vectorize("i"),
    "must be the outermost ones": lambda s: s[OUT].parallel("j"),
    "does not stand just inside": lambda s: s[OUT].fuse("j", "i"),
    "is a result": lambda s: s[OUT].compute_inline(),
    "is not computed before": lambda s: s[DOUBLED].compute_at(DOUBLED, "i"),
    "no such memory": lambda s: s[DOUBLED].compute_at(OUT, "i", scope="registers"),
    "do not read it": lambda s: s.cache_read(X, OUT),
    "cannot be copied so": lambda s: s.cache_read(DOUBLED, OUT, (0, 0)),
    "is not reduced over j": lambda s: s.rfactor(OUT, "j", 4),
    "no memory inside of a nest": lambda s: s[OUT].storage_align(16),
    "at least one turn ahead": lambda s: s[OUT].prefetch(DOUBLED, "i", 0),
    "no such argument": lambda s: s[OUT].prefetch(X, "i"),
    "cannot be packed so": lambda s: s.pack(DOUBLED, OUT, 2, 8),
    "pack of x for stages": lambda s: s.pack(X, OUT, 0, 8),
    "no such stage": lambda s: s["nothing"],
    "is not computed here": lambda s: s[SUMMED],
    "a CPU has no axes of threads": lambda s: s[OUT].bind("i", "blockIdx.x"),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_does_not_fit_is_said_and_changes_nothing(sentence: str) -> None:
    s = te.schedule(OUT)
    before = str(s)
    with pytest.raises(IngotError, match=sentence) as caught:
        REFUSED[sentence](s)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert str(s) == before


def test_a_loop_of_a_length_that_only_the_call_knows_is_no_vector() -> None:
    n = te.var("n")
    x = te.placeholder((n,), name="x")
    y = te.compute((n,), lambda i: x[i] * 2.0, name="y")
    s = te.schedule(y)
    with pytest.raises(IngotError, match="only the call knows its length"):
        s[y].vectorize("i")
    with pytest.raises(IngotError, match="only the call knows its length"):
        s[y].unroll("i")


def test_who_is_read_by_two_cannot_be_inside_of_one() -> None:
    twice = te.compute((8, 32), lambda i, j: DOUBLED[i, j] * OUT[i, j], name="twice")
    s = te.schedule(twice)
    with pytest.raises(IngotError, match="computed inside of out, and read outside of it"):
        s[DOUBLED].compute_at(OUT, "i")
    s[OUT].compute_at(twice, "i")
    s[DOUBLED].compute_at(twice, "i")


def test_loops_are_read_back_and_run() -> None:
    s = te.schedule(SUMMED)
    s[SUMMED].split("k", 8)
    made = te.lower(s, [X])
    again = ir.LoopProgram.parse(str(made))
    assert str(again) == str(made)
    again.verify()
    x = np.random.default_rng(0).random((8, 32), dtype=np.float32)
    np.testing.assert_allclose(again.interpret(x)[0], x.sum(1), rtol=1e-6)
    with pytest.raises(IngotError, match="takes 1 arguments"):
        again.interpret()
