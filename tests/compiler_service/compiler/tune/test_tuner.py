"""What the tuner tries, keeps and leaves, with trials that a law answers."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.progress import silent
from compiler_service.compiler.schedule.language.steps import Split
from compiler_service.compiler.tune.measuring.trial import OutcomeKind
from compiler_service.compiler.tune.records.book import RecordBook
from compiler_service.compiler.tune.records.journal import Journal
from compiler_service.compiler.tune.records.lines import read_lines
from compiler_service.compiler.tune.records.record import MOST_TIME, TrialRecord
from compiler_service.compiler.tune.remembering import Remembering
from compiler_service.compiler.tune.tasks import TuningTask
from compiler_service.compiler.tune.tuner import Tuner, TuningEffort
from compiler_service.compiler.tune.watching import TaskProgress
from compiler_service.compiler.version import compiler_version
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.compiler.tune.records.trials import trial
from tests.compiler_service.compiler.tune.toy_problems import ToyProblem, ToyTrials, bowl

TARGET = host_target()


def tuned(
    path: Path, trials: ToyTrials, *problems: ToyProblem, seconds: float = 60.0, again: bool = False
) -> tuple[TrialRecord, ...]:
    """The records after a run."""
    journal = Journal(path)
    book = RecordBook(journal.read_new(), TARGET)
    remembering = Remembering(str(TARGET), "a machine", compiler_version())
    tuner = Tuner(trials.as_trials(), book, journal, remembering, TuningEffort(seconds, again), silent)
    tuner.run([TuningTask(problem, seed=n) for n, problem in enumerate(problems)])
    return read_lines(path.read_bytes())[0] if path.exists() else ()


def best(records: tuple[TrialRecord, ...], problem: ToyProblem) -> TrialRecord | None:
    return RecordBook(records, TARGET).best(TuningTask(problem).workload.digest, ())


def test_the_best_point_is_found_and_confirmed(tmp_path: Path) -> None:
    problem, trials = ToyProblem(), ToyTrials()
    record = best(tuned(tmp_path / "r.jsonl", trials, problem), problem)
    assert record is not None
    assert dict(record.values) == {"rows": 8, "columns": 2}
    assert record.share == pytest.approx(0.25)
    assert len(trials.tried_points) == len({str(p) for p in trials.tried_points})


def test_what_does_not_hold_is_not_taken(tmp_path: Path) -> None:
    problem = ToyProblem()
    records = tuned(tmp_path / "r.jsonl", ToyTrials(holds=False), problem)
    assert best(records, problem) is None
    (settled,) = [r for r in records if r.settled]
    assert not settled.confirmed
    assert not settled.values


def test_where_the_luckiest_does_not_hold_the_next_best_is_taken(tmp_path: Path) -> None:
    problem = ToyProblem()
    trials = ToyTrials(seeming=lambda values: 1e-9 if dict(values) == {"rows": 4} else bowl(values))
    records = tuned(tmp_path / "r.jsonl", trials, ToyProblem(law=lambda v: 1.0 if dict(v) == {"rows": 4} else bowl(v)))
    record = best(records, problem)
    assert record is not None
    assert dict(record.values) == {"rows": 8, "columns": 2}


def forged(records: tuple[TrialRecord, ...], **changed: Any) -> TrialRecord:
    """A slow candidate of which somebody says that nothing is faster, by a clock that is far ahead."""
    slow = max((r for r in records if r.outcome is OutcomeKind.MEASURED), key=lambda r: r.seconds)
    said = {"seconds": 1e-12, "default_seconds": 1.0, "confirmed": True, "settled": True, "time": MOST_TIME, **changed}
    return replace(slow, **said)


@pytest.mark.parametrize("moment", [1e12 / 4, MOST_TIME])
@pytest.mark.parametrize("changed", [{}, {"settled": False}, {"confirmed": False, "settled": False}])
def test_what_somebody_says_is_measured_before_it_wins(tmp_path: Path, changed: dict[str, Any], moment: float) -> None:
    path, problem = tmp_path / "r.jsonl", ToyProblem()
    first = tuned(tmp_path / "first.jsonl", ToyTrials(), problem)
    Journal(path).append([forged(first, time=moment, **changed)])
    record = best(tuned(path, ToyTrials(), problem, again=True), problem)
    assert record is None or dict(record.values) == {"rows": 8, "columns": 2}
    assert record is not None or moment == MOST_TIME  # nothing comes after the end of time: the default schedule stays


def test_a_gain_that_somebody_boasts_of_counts_for_what_it_is(tmp_path: Path) -> None:
    """It is a gain, and not the greatest: others are not kept from winning."""
    path, problem = tmp_path / "r.jsonl", ToyProblem()
    some = next(r for r in tuned(tmp_path / "first.jsonl", ToyTrials(), problem) if 0.5 < r.share < 1)
    Journal(path).append([replace(some, seconds=1e-12, default_seconds=1.0, confirmed=True, settled=True)])
    record = best(tuned(path, ToyTrials(), problem, again=True), problem)
    assert record is not None
    assert dict(record.values) == {"rows": 8, "columns": 2}
    assert record.share == pytest.approx(0.25)


def test_what_holds_in_another_s_record_is_kept(tmp_path: Path) -> None:
    path, problem = tmp_path / "r.jsonl", ToyProblem()
    winner = best(tuned(path, ToyTrials(), problem), problem)
    again = best(tuned(path, ToyTrials(), problem, again=True), problem)
    assert winner is not None
    assert again is not None
    assert again.values == winner.values


def test_nothing_is_done_for_tasks_that_are_settled(tmp_path: Path) -> None:
    path, problem = tmp_path / "r.jsonl", ToyProblem()
    first = tuned(path, ToyTrials(), problem)
    trials = ToyTrials()
    assert tuned(path, trials, problem) == first
    assert not trials.tried_points
    assert not trials.defaults_measured


def test_what_was_left_with_a_schedule_that_nothing_makes_is_taken_up_again(tmp_path: Path) -> None:
    """A template was changed since, or somebody else wrote the record."""
    path, problem = tmp_path / "r.jsonl", ToyProblem()
    left = next(r for r in tuned(tmp_path / "first.jsonl", ToyTrials(), problem) if r.settled)
    foreign = replace(left, values={"rows": 99}, schedules=((Split("y", "m", 8),),), seconds=1e-9)
    Journal(path).append([foreign])
    records = tuned(path, trials := ToyTrials(), problem)
    assert trials.tried_points
    assert any(r.confirmed and dict(r.values) == {"rows": 8, "columns": 2} for r in records)


def test_what_was_tried_is_not_tried_again(tmp_path: Path) -> None:
    """After a kill, and when more is asked for."""
    path, problem = tmp_path / "r.jsonl", ToyProblem()

    class Killed(Exception):
        pass

    killed = ToyTrials()

    def before() -> None:
        if len(killed.tried_points) == 5:
            raise Killed

    killed.before = before
    with pytest.raises(Killed):
        tuned(path, killed, problem)
    on_record = [r for r in read_lines(path.read_bytes())[0] if not r.confirmed]
    assert len(on_record) == 5
    trials = ToyTrials()
    records = tuned(path, trials, problem)
    before_it = {str(p) for p in killed.tried_points}
    assert not before_it & {str(p) for p in trials.tried_points}
    record = best(records, problem)
    assert record is not None
    assert dict(record.values) == {"rows": 8, "columns": 2}
    more = ToyTrials()
    tuned(path, more, problem, again=True)
    assert not (before_it | {str(p) for p in trials.tried_points}) & {str(p) for p in more.tried_points}


def test_a_crash_is_remembered_and_nothing_else(tmp_path: Path) -> None:
    path, problem = tmp_path / "r.jsonl", ToyProblem()
    records = tuned(path, ToyTrials(crashes=[{"rows": 8, "columns": 2}]), problem)
    assert [dict(r.values) for r in records if r.outcome is OutcomeKind.CRASHED] == [{"rows": 8, "columns": 2}]
    record = best(records, problem)
    assert record is not None
    assert record.share > 0.25


def test_a_point_that_fits_no_schedule_is_no_candidate(tmp_path: Path) -> None:
    trials = ToyTrials()
    tuned(tmp_path / "r.jsonl", trials, ToyProblem())
    assert ("toy", {"rows": 12}) not in trials.tried_points


def test_the_task_that_gains_most_is_first(tmp_path: Path) -> None:
    """Time goes by trials here."""
    small = ToyProblem("small", lambda values: bowl(values) / 100)
    large = ToyProblem("large")
    trials = ToyTrials()
    tuned(tmp_path / "r.jsonl", trials, small, large)
    assert [label for label, _ in trials.tried_points[:8]] == ["large"] * 8
    assert {label for label, _ in trials.tried_points} == {"large", "small"}


def test_a_task_that_takes_no_time_is_left_alone(tmp_path: Path) -> None:
    tiny = ToyProblem("tiny", lambda values: bowl(values) / 1e6)
    trials, again = ToyTrials(), ToyTrials()
    tuned(tmp_path / "r.jsonl", trials, tiny, ToyProblem())
    assert {label for label, _ in trials.tried_points} == {"toy"}
    tuned(tmp_path / "r.jsonl", again, tiny, ToyProblem())
    assert not again.defaults_measured


def of_toy(rows: int, columns: int, **said: Any) -> TrialRecord:
    """What somebody says of a point of the toy problem."""
    task = TuningTask(ToyProblem())
    default = {"rows": 2, "columns": 4}
    values = {name: value for name, value in {"rows": rows, "columns": columns}.items() if value != default[name]}
    made = trial(of=task.workload, target=str(TARGET), rule="toy", values=values, schedules=())
    return replace(made, **said)


_times = st.sampled_from([0.0, 5e-324, 1e-9, 1e-3, 1.0, 1e300]) | st.floats(0, 1e9)
_said = st.fixed_dictionaries(
    {
        "rows": st.sampled_from([1, 2, 4, 6, 8, 12]),
        "columns": st.integers(1, 4),
        "outcome": st.sampled_from(OutcomeKind),
        "seconds": _times,
        "default_seconds": _times,
        "confirmed": st.booleans(),
        "settled": st.booleans(),
        "time": st.floats(0, 1e9),
    }
)


@given(st.lists(_said, max_size=6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_whatever_is_on_record_the_next_run_goes_on(said: list[dict[str, Any]], again: bool) -> None:
    """Candidates that failed have no times, and those of others may be any."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "r.jsonl"
        Journal(path).append([of_toy(**one) for one in said])
        records = tuned(path, ToyTrials(), ToyProblem(), again=again)
        assert all(0 < r.share < 1 for r in [best(records, ToyProblem())] if r is not None)


@pytest.mark.parametrize("outcome", [k for k in OutcomeKind if k is not OutcomeKind.MEASURED])
@pytest.mark.parametrize("again", [False, True])
def test_a_candidate_that_failed_is_known_to_the_next_run(tmp_path: Path, outcome: OutcomeKind, again: bool) -> None:
    path, trials = tmp_path / "r.jsonl", ToyTrials()
    Journal(path).append([of_toy(8, 2, outcome=outcome, seconds=0.0, default_seconds=0.0)])
    record = best(tuned(path, trials, ToyProblem(), again=again), ToyProblem())
    assert record is not None
    assert record.share > 0.25
    assert ("toy", {"rows": 8, "columns": 2}) not in trials.tried_points


def test_a_time_without_that_of_the_default_is_no_gain(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    Journal(path).append([of_toy(8, 2, seconds=1e-9, default_seconds=0.0)])
    record = best(tuned(path, ToyTrials(), ToyProblem()), ToyProblem())
    assert record is not None
    assert dict(record.values) != {"rows": 8, "columns": 2}


def test_two_tuners_repeat_none_of_each_others_trials(tmp_path: Path) -> None:
    """The second one works while the first is in the midst of its trials."""
    path, problem = tmp_path / "r.jsonl", ToyProblem()
    one, other = ToyTrials(), ToyTrials()
    began: list[bool] = []

    def meanwhile() -> None:
        if len(one.tried_points) == 3 and not began:
            began.append(True)
            tuned(path, other, problem)

    one.before = meanwhile
    tuned(path, one, problem)
    assert began
    assert not {str(p) for p in one.tried_points} & {str(p) for p in other.tried_points}


def test_a_gain_of_a_like_task_is_tried_first(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    tuned(path, ToyTrials(), ToyProblem("of 64"))
    trials = ToyTrials()
    tuned(path, trials, ToyProblem("of 128"))
    assert trials.tried_points[0] == ("of 128", {"columns": 2, "rows": 8})


def test_time_ends_it_and_what_was_found_counts(tmp_path: Path) -> None:
    trials = ToyTrials()
    records = tuned(tmp_path / "r.jsonl", trials, ToyProblem(), seconds=1e-9)
    assert not trials.tried_points
    assert not records


def test_what_there_was_no_time_for_is_begun_by_the_next_run(tmp_path: Path) -> None:
    path, problem = tmp_path / "r.jsonl", ToyProblem()
    assert not tuned(path, trials := ToyTrials(), problem, seconds=1e-9)
    assert not trials.tried_points
    record = best(tuned(path, ToyTrials(), problem), problem)
    assert record is not None


class SlowTrials(ToyTrials):
    """Every default schedule takes a hundred seconds of ``now``."""

    def __init__(self, now: list[float]) -> None:
        super().__init__()
        self._now = now

    def defaults(self, problems: Any, seconds: float) -> Any:
        for found in super().defaults(problems, seconds):
            self._now[0] += 100.0
            yield found


def test_a_default_that_takes_all_the_time_settles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, problem, now = tmp_path / "r.jsonl", ToyProblem(), [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert not tuned(path, SlowTrials(now), problem, seconds=60.0)
    monkeypatch.undo()
    assert best(tuned(path, ToyTrials(), problem), problem) is not None


def test_many_tasks_are_tuned_by_run_after_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To measure their defaults takes longer than a run may: some are tuned, and the next run begins with others."""
    path, now = tmp_path / "r.jsonl", [time.monotonic()]
    problems = [ToyProblem(f"toy {n}") for n in range(8)]
    for count in (3, 6, 8):
        now[0] = time.monotonic()
        with monkeypatch.context() as patched:
            patched.setattr(time, "monotonic", lambda: now[0])
            records = tuned(path, SlowTrials(now), *problems, seconds=500.0)
        assert sum(best(records, problem) is not None for problem in problems) == count


def test_lines_of_progress_are_read_back() -> None:
    said = TaskProgress(3, 21, "Conv+Add: 3, 4 ms of", 0.125, 40, 0.2e-3, 0.25e-3)
    assert TaskProgress.parse(str(said)) == said
    assert TaskProgress.parse("measured Conv") is None


def test_where_no_default_can_be_measured_that_is_the_answer(tmp_path: Path) -> None:
    fault = IngotError(ErrorCode.COMPILER_FAULT, "no process may be started here")
    trials = ToyTrials(faults={"one": fault, "two": fault})
    with pytest.raises(IngotError, match="no process may be started"):
        tuned(tmp_path / "r.jsonl", trials, ToyProblem("one"), ToyProblem("two"))
    some = ToyTrials(faults={"one": fault})
    assert best(tuned(tmp_path / "s.jsonl", some, ToyProblem("one"), ToyProblem()), ToyProblem()) is not None
