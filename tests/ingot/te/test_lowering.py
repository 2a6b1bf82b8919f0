"""Several nests are one program of loops, which prints, parses and runs; what did not change is not lowered again."""

from __future__ import annotations

import numpy as np
import pytest

from ingot import ir, te
from shared_ir.errors import ErrorCode, IngotError

N = te.var("n")
X = te.placeholder((N + 1,), name="x")
DOUBLED = te.compute((N + 1,), lambda i: X[i] * 2.0, name="doubled")
PAIRS = te.compute((N,), lambda i: DOUBLED[i] + DOUBLED[i + 1], name="pairs")


def test_each_nest_is_a_function() -> None:
    program = te.lower(te.schedule(PAIRS), [X])
    assert list(program.functions) == ["doubled", "pairs"]
    head = ["program main(x) -> (pairs):", "    doubled(x, doubled)", "    pairs(doubled, pairs)"]
    assert str(program).splitlines()[:3] == head
    again = ir.LoopProgram.parse(str(program))
    assert str(again) == str(program)
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(again.interpret(x)[0], 2 * (x[:-1] + x[1:]))
    with pytest.raises(IngotError, match="no such function") as caught:
        program["nothing"]
    assert caught.value.code is ErrorCode.NOT_FOUND


BROKEN = {
    "no program, line 1": ("program main(x)", "main(x)"),
    "is read before anything": ("    doubled(x, doubled)\n", ""),
    "is filled already": ("(x, doubled)", "(x, x)"),
    "there is no such function": ("    pairs(", "    pears("),
    "has 2 buffers": ("(doubled, pairs)", "(doubled)"),
    "nothing is stored": ("-> (pairs)", "-> (peas)"),
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_what_is_no_program_is_refused(sentence: str) -> None:
    text = str(te.lower(te.schedule(PAIRS), [X]))
    assert text.count(BROKEN[sentence][0]) == 1
    with pytest.raises(IngotError, match=sentence) as caught:
        ir.LoopProgram.parse(text.replace(*BROKEN[sentence]))
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_only_what_changed_is_lowered_again() -> None:
    s = te.schedule(PAIRS)
    before = te.lower(s, [X])
    s[PAIRS].split("i", 8)
    after = te.lower(s, [X])
    assert after["doubled"].function.body is before["doubled"].function.body
    assert after["pairs"].function.body is not before["pairs"].function.body


def test_a_fused_loop_ends_where_a_masked_tile_ends() -> None:
    x = te.placeholder((4, 19), name="x")
    doubled = te.compute((4, 19), lambda i, j: x[i, j] * 2.0, name="doubled")
    pairs = te.compute((4, 17), lambda i, j: doubled[i, j] + doubled[i, j + 2], name="pairs")
    s = te.schedule(pairs)
    s[doubled].fuse("i", "j")
    s[pairs].vectorize("j", 4)
    s[doubled].compute_at(pairs, "j.4")
    given = np.random.default_rng(0).random((4, 19), np.float32)
    found = te.lower(s, [x], "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512").interpret(given)[0]
    np.testing.assert_array_equal(found, 2 * given[:, :17] + 2 * given[:, 2:])
