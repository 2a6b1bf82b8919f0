"""The tuner teaches the cost model and takes its word, and does without where LightGBM is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.tune.cost.ranking import Ranking
from compiler_service.compiler.tune.measuring.trial import Trial, TrialTiming
from compiler_service.compiler.tune.records.book import RecordBook
from compiler_service.compiler.tune.records.journal import Journal
from compiler_service.compiler.tune.remembering import Remembering
from compiler_service.compiler.tune.search.point import DEFAULT, Point
from compiler_service.compiler.tune.tasks import TuningTask
from compiler_service.compiler.tune.trying import Default
from compiler_service.compiler.tune.tuner import Tuner, TuningEffort
from compiler_service.compiler.version import compiler_version
from tests.compiler_service.compiler.tune.toy_problems import ToyProblem, ToyTrials, bowl

TARGET = host_target()


def test_a_task_is_ranked_once_there_are_trials_enough() -> None:
    task = TuningTask(ToyProblem())
    default = Default(task.candidate(Knobs()), cast(Trial, None), cast(Trial, None), (), TrialTiming((1.0,)))
    task.begin(default, (), Ranking(60.0).of(task.workload))
    points = [Point.of({"rows": rows, "columns": columns}) for rows in (1, 4, 6, 8, 12) for columns in (1, 2, 3)]
    for point in points[:14]:
        task.learn(point, task.of_point(point), bowl(point.values) / bowl({}))
    task.propose(1)
    assert task.search.rank is None
    task.learn(points[14], task.of_point(points[14]), bowl(points[14].values) / bowl({}))
    task.propose(1)
    assert task.search.rank is not None
    costs = dict(zip((DEFAULT, *points), task.search.rank([DEFAULT, *points]), strict=True))
    assert costs[Point.of({"rows": 8, "columns": 2})] < costs[Point.of({"rows": 1, "columns": 3})]


@pytest.mark.parametrize("is_installed", [True, False])
def test_tuning_goes_on_without_the_library_and_says_so_once(
    is_installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_installed:
        monkeypatch.setitem(sys.modules, "lightgbm", None)
    said: list[str] = []
    journal, trials, problem = Journal(tmp_path / "r.jsonl"), ToyTrials(), ToyProblem()
    remembering = Remembering(str(TARGET), "a machine", compiler_version())
    book = RecordBook((), TARGET)
    tuner = Tuner(
        trials.as_trials(), book, journal, remembering, TuningEffort(60.0), lambda *line: said.append(line[-1])
    )
    tuner.run([TuningTask(problem)])
    assert sum("ingot-ml[tune]" in line for line in said) == (not is_installed)
    records = Journal(tmp_path / "r.jsonl").read_new()
    best = RecordBook(records, TARGET).best(TuningTask(problem).workload.digest, ())
    assert best is not None
    assert dict(best.values) == {"rows": 8, "columns": 2}
