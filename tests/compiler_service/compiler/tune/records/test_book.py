"""What records say: the best that was confirmed, what was tried, where to begin, and what is worth to be kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from compiler_service.compiler.schedule.language.steps import Split
from compiler_service.compiler.tune.measuring.trial import OutcomeKind
from compiler_service.compiler.tune.records.book import RecordBook, answers, best_of, merge, merged, prune, schedule_of
from compiler_service.compiler.tune.records.lines import read_lines, write_lines
from compiler_service.compiler.tune.records.record import TrialRecord, Workload
from tests.compiler_service.compiler.tune.records.trials import OTHER, SCHEDULE, TARGET, trial, trials, workload

W = workload().digest


def by(factor: int, seconds: float = 1e-3, **changes: Any) -> TrialRecord:
    """A confirmed schedule of its own."""
    own: dict[str, Any] = {"schedules": ((Split("y", "m", factor),),), "seconds": seconds, "confirmed": True}
    return trial(**{**own, **changes})


def test_the_best_is_the_fastest_beside_its_default() -> None:
    slow_day = by(4, seconds=3e-3, default_seconds=9e-3)
    book = RecordBook([by(8), slow_day, by(16, seconds=1.5e-3)], TARGET)
    assert book.best(W, ()) == slow_day
    assert schedule_of(book.best(W, ())) == (Split("y", "m", 4),)
    assert book.best("another", ()) is None


def test_only_what_was_confirmed_here_and_now_is_an_answer() -> None:
    for record in (
        by(8, confirmed=False),
        by(8, compiler="old"),
        by(8, target=str(OTHER)),
        by(8, methods=("winograd",)),
    ):
        assert RecordBook([record], TARGET).best(W, ()) is None


def test_methods_are_those_that_the_default_might_use() -> None:
    """Beside a default without them a schedule may be faster that is slower than one with them."""
    plain, either = by(8), by(4, methods=("strassen", "winograd"))
    book = RecordBook([plain, either], TARGET)
    assert book.best(W, ()) == plain
    assert book.best(W, ["winograd", "strassen"]) == either
    assert book.best(W, ["winograd"]) is None


def test_what_was_settled_otherwise_is_given_up() -> None:
    old, default = by(8, time=2.0), trial(schedules=(), settled=True, time=3.0, seconds=2e-3)
    assert RecordBook([old, default], TARGET).best(W, ()) is None
    later = by(4, time=4.0)
    assert RecordBook([old, default, later], TARGET).best(W, ()) == later
    assert RecordBook([old, default], TARGET).is_settled(W, ())
    assert not RecordBook([old, default], TARGET).is_settled(W, ("winograd",))
    data = write_lines([old, default])
    assert answers(data, TARGET) == b""
    assert best_of([old, default]) == ()
    assert best_of([old, default, later]) == (later,)
    kept = prune([old, default, *(by(n, confirmed=False) for n in range(10, 20))], keep=1)
    assert RecordBook(kept, TARGET).best(W, ()) is None, "what says that it was given up is not dropped"


def test_what_was_tried_is_known_whatever_came_of_it() -> None:
    found = [by(8), by(4, outcome=OutcomeKind.CRASHED, confirmed=False), by(2, compiler="old")]
    book = RecordBook(found, TARGET)
    assert book.tried(W) == {found[0].candidate, found[1].candidate}
    assert book.tried("another") == frozenset()
    assert len(book.of(W)) == 3


def test_the_nearest_shape_is_where_a_search_begins() -> None:
    near, far = by(4, of=workload(160)), by(8, of=workload(1024))
    book = RecordBook([far, near, by(2, of=workload(130), seconds=5e-3, confirmed=False)], TARGET)
    assert book.nearest(workload(128)) == near
    assert book.nearest(workload(900)) == far
    assert book.nearest(Workload.of("something else", "x")) is None


def test_another_compiler_s_record_of_the_very_shape_is_a_seed() -> None:
    own, old = by(4), by(8, compiler="old")
    assert RecordBook([own], TARGET).nearest(workload()) is None
    assert RecordBook([own, old], TARGET).nearest(workload()) == old


def test_a_book_grows_and_takes_nothing_twice() -> None:
    book = RecordBook([by(8)], TARGET)
    book.add([by(8), by(4, seconds=5e-4), by(2, target=str(OTHER))])
    assert len(book.records()) == 2
    assert book.best(W, ()) == by(4, seconds=5e-4)


_sets = st.lists(trials, max_size=4)


@given(_sets, _sets, _sets)
def test_merging_is_a_union(a: list[TrialRecord], b: list[TrialRecord], c: list[TrialRecord]) -> None:
    assert merge(a, b) == merge(b, a) == merge(merge(a, b), a)
    assert merge(merge(a, b), c) == merge(a, merge(b, c))
    assert write_lines(merge(a, b)) == merged(write_lines(a), write_lines(b) + b"rubbish\n")


def test_what_is_too_much_is_dropped_where_it_is_worth_least() -> None:
    many = [by(n, seconds=1e-3 * n, confirmed=n == 9, default_seconds=1e-1) for n in range(1, 40)]
    data = merged(write_lines(many[:20]), write_lines(many[20:]), most=len(write_lines(many)) // 2)
    left = read_lines(data)[0]
    assert 1 < len(left) <= 20
    assert {r.seconds for r in left} >= {many[8].seconds, many[0].seconds}
    assert merged(write_lines(many), b"", most=0) == write_lines([many[8]]), "what was confirmed is not dropped"


def test_pruning_keeps_the_best_of_each_workload_and_methods() -> None:
    best = {m: by(2, seconds=1e-4, methods=m) for m in ((), ("winograd",))}
    others = [by(n, confirmed=False) for n in range(3, 9)]
    old = by(8, compiler="old")
    found = prune([*others, *best.values(), old], keep=3)
    assert set(map(write_one, best.values())) <= set(map(write_one, found))
    assert len([r for r in found if r.compiler != "old"]) == 3
    assert old in found
    assert old not in prune([*others, old], compiler=others[0].compiler)
    assert set(map(write_one, prune(others))) == set(map(write_one, others))


def write_one(record: TrialRecord) -> bytes:
    return write_lines([record])


def test_the_key_depends_on_what_a_compilation_may_use_alone() -> None:
    used = by(8, seconds=5e-4)
    without = [by(4), by(8, target=str(OTHER)), by(8, compiler="old"), trial()]
    data = write_lines([used, *without])
    assert answers(data, TARGET) == write_lines([used])
    assert answers(answers(data, TARGET), TARGET) == answers(data, TARGET)
    assert answers(write_lines(without[1:]), TARGET) == b""
    assert answers(b'"confirmed":true\n' + data[::-1], TARGET) == b""


@given(_sets, st.booleans())
def test_answers_do_not_depend_on_the_order(records: list[TrialRecord], confirm: bool) -> None:
    own = [replace(r, confirmed=confirm, default_seconds=r.seconds * 2, outcome=OutcomeKind.MEASURED) for r in records]
    data = write_lines(own)
    backwards = b"".join(reversed(data.splitlines(keepends=True)))
    assert answers(data, TARGET) == answers(backwards, TARGET)
    for record in read_lines(answers(data, TARGET))[0]:
        assert record.target == str(TARGET)


def test_a_schedule_of_one_kernel_is_handed_out() -> None:
    assert schedule_of(None) is None
    assert schedule_of(trial()) == SCHEDULE
    assert schedule_of(trial(schedules=(SCHEDULE, SCHEDULE))) is None
