"""Trials take turns, and one that fails harms itself alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from ingot.device.measuring import MeasuredTrial, measure
from ingot.device.process import TrialFailed


@dataclass
class Machine:
    """``now`` moves as trials run; ``log`` says who ran how often."""

    now: float = 0.0
    log: list[tuple[str, int]] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)

    def clock(self) -> float:
        return self.now


@dataclass
class Trial:
    machine: Machine
    name: str
    seconds: float = 0.001
    fails_at: int = 1_000_000
    kind: str = "crashed"
    runs: int = 0

    def prepare(self, seconds: float) -> None:
        if self.fails_at == 0:
            raise TrialFailed("refused", f"{self.name} does not load")

    def run(self, times: int, seconds: float) -> float:
        self.runs += 1
        if self.runs >= self.fails_at:
            raise TrialFailed(self.kind, f"{self.name} fails")
        self.machine.log.append((self.name, times))
        self.machine.now += self.seconds * times
        return self.seconds * times

    def results(self, seconds: float) -> bytes:
        return self.name.encode()

    def close(self) -> None:
        self.machine.closed.append(self.name)


def measured(machine: Machine, trials: list[Trial], seconds: float = 1.0, limit: float = 5.0) -> list[MeasuredTrial]:
    return measure([partial(lambda own: own, trial) for trial in trials], seconds, limit, clock=machine.clock)


def test_seconds_of_one_run_in_several_rounds() -> None:
    machine = Machine()
    found = measured(machine, [Trial(machine, "a", 0.001), Trial(machine, "b", 0.002)])
    assert [round(min(f.rounds), 6) for f in found] == [0.001, 0.002]
    assert [f.results for f in found] == [b"a", b"b"]
    assert all(f.kind == "measured" and len(f.rounds) == 5 for f in found), "rounds that agree are enough"
    assert sorted(set(machine.closed)) == ["a", "b"]


def test_turns_go_there_and_back() -> None:
    machine = Machine()
    measured(machine, [Trial(machine, "a", 0.02), Trial(machine, "b", 0.02)])
    assert "".join(name for name, _ in machine.log) == "aabb" + "abba" * 2 + "ab"


def test_a_trial_that_fails_harms_itself_alone() -> None:
    machine = Machine()
    trials = [Trial(machine, "a", fails_at=n, kind=kind) for n, kind in ((0, ""), (1, "crashed"), (6, "late"))]
    *failed, good = measured(machine, [*trials, Trial(machine, "good")])
    assert [(f.kind, f.rounds, f.results) for f in failed] == [
        ("refused", [], b""),
        ("crashed", [], b""),
        ("late", [], b""),
    ]
    assert good.kind == "measured"
    assert good.rounds


def test_three_rounds_are_measured_however_little_time_there_is() -> None:
    machine = Machine()
    found = measured(machine, [Trial(machine, "slow", 3.0)], seconds=0.001)
    assert len(found[0].rounds) == 3


def test_what_nobody_wants_any_more_is_not_run() -> None:
    machine = Machine()
    trials = [Trial(machine, "a"), Trial(machine, "b")]
    starts = [partial(lambda own: own, trial) for trial in trials]
    found = measure(starts, 1.0, 1.0, lambda: not machine.log, machine.clock)
    assert len(found) == 1
    assert not found[0].rounds
    assert {name for name, _ in machine.log} == {"a"}
