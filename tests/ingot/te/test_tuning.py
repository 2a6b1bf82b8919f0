"""Templates and the generator, tuned: what is searched, what may not be taken, and what comes of it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_service.compiler.tune import bounded
from compiler_service.compiler.tune.measuring.local import LocalMeasurer
from compiler_service.compiler.tune.measuring.trial import Outcome, OutcomeKind, Trial, TrialTiming
from compiler_service.compiler.tune.records.lines import read_lines
from ingot import te
from ingot.te import problems
from shared_ir.errors import ErrorCode, IngotError

SECONDS = 6.0
ENOUGH = 60.0
"""Seconds for a small space: tuning is over when all of its points were tried."""


class BySize:
    """Runs trials, and says that they took as many seconds as they have bytes of code: what is fastest does not hang on the machine."""

    machine = "of sizes"
    size = 1

    def __init__(self) -> None:
        self._runs = LocalMeasurer()
        self.sizes: list[int] = []

    def run(self, trials: Sequence[Trial], seconds: float) -> tuple[Outcome, ...]:
        outcomes = self._runs.run(trials, 0.001)
        return tuple(self._sized(o, sum(map(len, t.code))) for o, t in zip(outcomes, trials, strict=True))

    def _sized(self, outcome: Outcome, size: int) -> Outcome:
        if outcome.timing is None:
            return outcome
        self.sizes.append(size)
        return replace(outcome, timing=TrialTiming((float(size),) * 5))

    def close(self) -> None:
        self._runs.close()


A, W = te.placeholder((24, 40), name="A"), te.placeholder((40, 32), name="W")


def plain() -> te.Tensor:
    return te.sum((24, 32), 40, lambda i, j, k: A[i, k] * W[k, j], name="C")


@te.template
def tiled(cfg: te.Config, a: te.Tensor, w: te.Tensor) -> te.Schedule:
    """By default with more code than it needs."""
    c = te.sum((24, 32), 40, lambda i, j, k: a[i, k] * w[k, j], name="C")
    s = te.schedule(c)
    rows = cfg.choice("rows", (2, 4, 8), default=8)
    _, _, row, column = s[c].tile("i", "j", rows, cfg.choice("columns", (8, 16), default=16))
    s[c].reorder("k", row, column)
    s[c].vectorize(column)
    if cfg.flag("unrolled", default=True):
        s[c].unroll(row)
    return s


@pytest.fixture
def measurer() -> BySize:
    return BySize()


def numbers(*tensors: te.Tensor) -> list[np.ndarray]:
    drawn = np.random.default_rng(3)
    return [drawn.random([int(str(d)) for d in t.shape], dtype=np.float32) for t in tensors]


def test_the_best_of_a_template_is_taken(measurer: BySize) -> None:
    tuned = te.tune(tiled, [A, W], seconds=ENOUGH, measurer=measurer)
    assert tuned.seconds == min(measurer.sizes) < tuned.default_seconds
    assert tuned.values
    assert 1 < tuned.trials <= 11
    a, w = numbers(A, W)
    np.testing.assert_allclose(tuned.build()(a, w), a @ w, rtol=1e-4)
    assert str(tuned.schedule) == str(tiled.schedule(A, W, values=tuned.values))
    assert f"{tuned.trials} trials" in str(tuned)


def test_so_is_that_of_the_generator(measurer: BySize) -> None:
    seen: list[tuple[int, float]] = []
    told = lambda trials, best: seen.append((trials, best))
    tuned = te.tune(plain(), [A, W], seconds=SECONDS, measurer=measurer, progress=told)
    assert tuned.seconds <= tuned.default_seconds
    assert [trials for trials, _ in seen] == sorted(trials for trials, _ in seen)
    assert seen[-1][0] == tuned.trials
    assert [best for _, best in tuned.history] == sorted({best for _, best in tuned.history}, reverse=True)
    a, w = numbers(A, W)
    np.testing.assert_allclose(tuned.build()(a, w), a @ w, rtol=1e-4)


def test_a_candidate_that_computes_something_else_is_none(measurer: BySize) -> None:
    @te.template
    def wrong(cfg: te.Config, a: te.Tensor) -> te.Schedule:
        """The smaller one forgets a term."""
        if cfg.flag("short", default=False):
            return te.schedule(te.compute((24, 40), lambda i, j: a[i, j], name="B"))
        return te.schedule(te.compute((24, 40), lambda i, j: te.exp(a[i, j]) + 1.0, name="B"))

    tuned = te.tune(wrong, [A], seconds=ENOUGH, measurer=measurer)
    assert (dict(tuned.values), tuned.trials, tuned.failed) == ({}, 1, 1)
    assert tuned.seconds == tuned.default_seconds


def test_a_candidate_that_crashes_is_none(measurer: BySize) -> None:
    @te.template
    def far(cfg: te.Config, a: te.Tensor) -> te.Schedule:
        at = cfg.choice("at", (0, 1 << 40), default=0)
        return te.schedule(te.compute((24, 40), lambda i, j: a[i + at, j], name="B"))

    tuned = te.tune(far, [A], seconds=ENOUGH, measurer=measurer)
    assert (dict(tuned.values), tuned.failed) == ({}, 1)


def test_answers_that_do_not_fit_are_passed_over(measurer: BySize) -> None:
    @te.template
    def choosy(cfg: te.Config, a: te.Tensor) -> te.Schedule:
        b = te.compute((24, 40), lambda i, j: te.exp(a[i, j]), name="B")
        s = te.schedule(b)
        s[b].split("j", cfg.choice("tile", (0, 1, 4, 8), default=8))
        return s

    tuned = te.tune(choosy, [A], seconds=ENOUGH, measurer=measurer)
    assert (tuned.trials, tuned.failed) == (1, 0)  # the other one that fits
    assert tuned.values.get("tile", 8) in (4, 8)


def test_sizes_that_only_a_call_knows_are_given(measurer: BySize) -> None:
    n = te.var("n")
    x = te.placeholder((n, 8), name="X")
    y = te.sum((n,), 8, lambda i, k: x[i, k], name="Y")
    tuned = te.tune(y, [x], seconds=1.0, measurer=measurer, symbols={"n": 50}, arrays=[np.ones((50, 8), np.float32)])
    np.testing.assert_allclose(tuned.build()(np.ones((7, 8), np.float32)), np.full(7, 8.0))


def test_it_measures_on_this_machine() -> None:
    """Without a measurer of ours."""
    tuned = te.tune(plain(), [A, W], seconds=1.0)
    assert 0 < tuned.seconds <= tuned.default_seconds


@pytest.mark.parametrize(
    ("what", "args", "more", "said"),
    [
        (plain(), [A], {}, "lack a tensor"),
        (plain(), [A, W], {"arrays": [np.zeros((24, 40), np.float32)]}, "arrays do not fit"),
        (plain(), [A, W], {"arrays": [np.zeros((24, 40), np.float32), np.zeros((1, 1), np.float32)]}, "array of W"),
        (plain(), [A, W], {"arrays": [1, 2]}, "array of A"),
        (plain(), [A, W], {"arrays": 5}, "arrays do not fit"),
        (te.template(lambda cfg: None), [], {}, "gives no schedule"),  # type: ignore[arg-type, return-value]
        (te.template(lambda cfg: sys.exit(3)), [], {}, "ends the process"),
        (A, [A], {}, "tensors that are given"),
    ],
)
def test_misuse_is_said(what: te.Tensor, args: list[te.Tensor], more: dict[str, Any], said: str) -> None:
    with pytest.raises(IngotError, match=said) as error:
        te.tune(what, args, seconds=1.0, **more)
    assert error.value.code is ErrorCode.INVALID_ARGUMENT


def test_code_of_another_machine_cannot_be_measured() -> None:
    with pytest.raises(IngotError, match="cannot run code for the target") as error:
        te.tune(plain(), [A, W], "raspberry-pi/4b", seconds=1.0)
    assert error.value.code is ErrorCode.INVALID_ARGUMENT


def test_a_default_that_crashes_is_said(measurer: BySize) -> None:
    far = te.compute((24, 40), lambda i, j: A[i + (1 << 40), j], name="B")
    with pytest.raises(IngotError, match="cannot be measured") as error:
        te.tune(far, [A], seconds=SECONDS, measurer=measurer)
    assert error.value.code is ErrorCode.COMPILER_FAULT


def test_what_was_tuned_to_its_end_is_not_measured_again(measurer: BySize, tmp_path: Path) -> None:
    records = tmp_path / "trials.jsonl"
    first = te.tune(tiled, [A, W], seconds=ENOUGH, measurer=measurer, records=records)
    count = len(measurer.sizes)
    again = te.tune(tiled, [A, W], seconds=ENOUGH, measurer=measurer, records=records)
    assert (again.trials, len(measurer.sizes)) == (0, count)
    assert (again.values, again.seconds) == (first.values, first.seconds)
    assert str(again.schedule) == str(first.schedule)


def test_it_goes_on_where_it_is_asked_to(measurer: BySize, tmp_path: Path) -> None:
    records = tmp_path / "trials.jsonl"
    first = te.tune(tiled, [A, W], seconds=0.0, measurer=measurer, records=records)
    assert first.trials == 0
    again = te.tune(tiled, [A, W], seconds=ENOUGH, measurer=measurer, records=records, again=True)
    assert again.trials > 0
    assert again.seconds < first.seconds


@te.template
def awkward(cfg: te.Config, a: te.Tensor) -> te.Schedule:
    """Raises what is no IngotError where its answers do not fit."""
    found = te.compute((24, 40), lambda i, j: a[i, j] * 2.0, name="C")
    s = te.schedule(found)
    size = cfg.choice("size", (0, 3, 4, 8), default=8)
    s[found].split("j", 40 // size)
    return s


def test_a_point_at_which_a_template_raises_is_passed_over(measurer: BySize) -> None:
    tuned = te.tune(awkward, [A], seconds=ENOUGH, measurer=measurer)
    assert tuned.trials >= 2
    assert tuned.values.get("size") != 0


def test_a_point_at_which_a_template_takes_too_long_is_left_and_known(
    measurer: BySize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "SECONDS_OF_TEMPLATE", 0.5)
    asked, over, path = list[int](), threading.Event(), tmp_path / "trials.jsonl"

    @te.template
    def stuck(cfg: te.Config, a: te.Tensor) -> te.Schedule:
        width = cfg.choice("width", (2, 4, 8, 40), default=8)
        asked.append(width)
        if width == 4:
            over.wait(100)
        c = te.compute((24, 40), lambda i, j: te.exp(a[i, j]), name="C")
        s = te.schedule(c)
        s[c].unroll(s[c].split("j", width)[1])
        return s

    tuned = te.tune(stuck, [A], seconds=ENOUGH, measurer=measurer, records=path)
    again = te.tune(stuck, [A], seconds=ENOUGH, measurer=measurer, records=path, again=True)
    over.set()
    assert asked.count(4) == 1
    assert tuned.failed == 1
    assert again.trials == 0
    (late,) = [r for r in read_lines(path.read_bytes())[0] if r.outcome is OutcomeKind.LATE]
    assert dict(late.values) == {"width": 4}


def test_a_template_whose_default_takes_too_long_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "SECONDS_OF_TEMPLATE", 0.2)
    over = threading.Event()
    with pytest.raises(IngotError, match="takes too long") as caught:
        te.tune(te.template(lambda cfg, a: over.wait(100)), [A])  # type: ignore[arg-type, return-value]
    over.set()
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED


def row_sums(extra: int = 0) -> tuple[te.Tensor, te.Tensor]:
    n = te.var("n")
    x = te.placeholder((n - extra, 8), name="X")
    return x, te.sum((n - extra,), 8, lambda i, k: x[i, k], name="Y")


@pytest.mark.parametrize("extent", [-1, 0, 2**28, 2**40, 10**30])
def test_sizes_that_cannot_be_measured_are_refused(extent: int) -> None:
    x, y = row_sums()
    with pytest.raises(IngotError) as caught:
        te.tune(y, [x], symbols={"n": extent})
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.field.startswith("symbols")


def test_so_are_those_that_leave_less_than_nothing() -> None:
    x, y = row_sums(extra=5)
    with pytest.raises(IngotError, match="less than no elements") as caught:
        te.tune(y, [x], symbols={"n": 3})
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_a_tensor_that_is_too_large_is_refused() -> None:
    x = te.placeholder((1 << 40,), name="X")
    with pytest.raises(IngotError, match="too large to be measured") as caught:
        te.tune(te.compute((1 << 40,), lambda i: x[i] + 1.0, name="Y"), [x])
    assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, "args")


def test_what_a_template_was_before_it_was_changed_is_no_answer(measurer: BySize, tmp_path: Path) -> None:
    def version(widths: tuple[int, ...]) -> te.Template:
        @te.template
        def scaled(cfg: te.Config, a: te.Tensor) -> te.Schedule:
            found = te.compute((24, 48), lambda i, j: te.exp(a[i % 24, j % 40]) * 2.0, name="C")
            s = te.schedule(found)
            inner = s[found].split("j", cfg.choice("width", widths, default=4))[1]
            s[found].vectorize(inner)
            return s

        return scaled

    path = tmp_path / "trials.jsonl"
    first = te.tune(version((4, 16)), [A], seconds=ENOUGH, measurer=measurer, records=path)
    again = te.tune(version((2, 4)), [A], seconds=ENOUGH, measurer=measurer, records=path)
    if first.values:
        assert again.trials, "what was best is no longer there"
    assert again.values.get("width", 4) in (2, 4)


def shaped(cfg: te.Config, a: te.Tensor, w: te.Tensor, kinds: tuple[int, ...], default: int) -> te.Schedule:
    """The larger the kind, the less code."""
    c = te.sum((24, 32), 40, lambda i, j, k: a[i, k] * w[k, j], name="C")
    s = te.schedule(c)
    _, _, row, column = s[c].tile("i", "j", 16 >> cfg.choice("kind", kinds, default), 16)
    s[c].reorder("k", row, column)
    s[c].vectorize(column)
    s[c].unroll(row)
    return s


@pytest.mark.parametrize("by_arguments", [False, True])
def test_an_answer_is_one_beside_the_default_that_there_is(
    measurer: BySize, tmp_path: Path, by_arguments: bool
) -> None:
    """A default that became faster, since the template was edited or has other arguments, is no slower than what won before."""
    path = tmp_path / "trials.jsonl"

    def run(*given: Any) -> te.Tuned:
        own = te.template(shaped) if by_arguments else te.template(lambda cfg, a, w: shaped(cfg, a, w, *given))
        args = [A, W, *given] if by_arguments else [A, W]
        return te.tune(own, args, seconds=ENOUGH, measurer=measurer, records=path)

    first = run((1, 2), 1)
    assert dict(first.values) == {"kind": 2}
    again = run((1, 2, 3), 3)
    assert dict(again.values) == {}
    assert again.seconds == again.default_seconds < first.seconds
    third = run((1, 2, 3), 3)
    assert (third.trials, third.seconds) == (0, again.seconds)


def test_what_was_tuned_for_other_sizes_is_where_a_search_begins(measurer: BySize, tmp_path: Path) -> None:
    n, path = te.var("n"), tmp_path / "trials.jsonl"
    a = te.placeholder((n, 40), name="A")

    @te.template
    def rows(cfg: te.Config, a: te.Tensor, w: te.Tensor) -> te.Schedule:
        c = te.sum((n, 32), 40, lambda i, j, k: a[i, k] * w[k, j], name="C")
        s = te.schedule(c)
        _, inner = s[c].split("j", cfg.choice("width", (4, 8, 16, 32), default=32))
        s[c].reorder("k", inner)
        s[c].unroll(inner)
        return s

    def run(extent: int) -> te.Tuned:
        return te.tune(rows, [a, W], seconds=ENOUGH, measurer=measurer, records=path, symbols={"n": extent})

    first = run(3)
    other = run(50)
    assert other.trials
    assert (run(3).trials, run(50).trials) == (0, 0)
    trials = [r for r in read_lines(path.read_bytes())[0] if not r.settled and not r.confirmed]
    assert {r.sizes[-1] for r in trials} == {3, 50}
    assert next(r for r in trials if r.sizes[-1] == 50).values == first.values


def test_a_product_of_integers_that_leaves_out_terms_is_none(measurer: BySize) -> None:
    x, y = (te.placeholder((8, 16), "int32", name="X"), te.placeholder((16, 8), "int32", name="Y"))

    @te.template
    def short(cfg: te.Config, x: te.Tensor, y: te.Tensor) -> te.Schedule:
        terms = 8 if cfg.flag("short", default=False) else 16
        return te.schedule(te.sum((8, 8), terms, lambda i, j, k: x[i, k] * y[k, j], name="Z"))

    tuned = te.tune(short, [x, y], seconds=ENOUGH, measurer=measurer)
    assert (dict(tuned.values), tuned.failed) == ({}, 1)


def test_positions_are_inside(measurer: BySize) -> None:
    table, at = te.placeholder((3, 8), name="T"), te.placeholder((24,), "int64", name="P")
    found = te.compute((24, 8), lambda i, j: table[at[i], j], name="G")
    assert te.tune(found, [table, at], seconds=2.0, measurer=measurer).seconds > 0


@pytest.mark.parametrize("what", [float("inf"), float("nan")])
def test_a_default_without_a_number_is_nothing_to_compare_with(measurer: BySize, what: float) -> None:
    found = te.compute((24, 40), lambda i, j: A[i, j] * 0.0 - what, name="B")
    with pytest.raises(IngotError, match="no finite number") as caught:
        te.tune(found, [A], seconds=SECONDS, measurer=measurer)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), True, "quick"])
def test_seconds_that_are_none_are_refused(seconds: float) -> None:
    with pytest.raises(IngotError) as caught:
        te.tune(plain(), [A, W], seconds=seconds)
    assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, "seconds")


@pytest.mark.parametrize("what", [None, lambda cfg, a: None, [1]])
def test_what_is_nothing_to_tune_is_refused(what: te.Tensor) -> None:
    with pytest.raises(IngotError) as caught:
        te.tune(what, [A, W])
    assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, "what")
