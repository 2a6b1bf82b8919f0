"""A stage that several jobs wait for is taken from the best of their places: against a small model, over random orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from compiler_service.jobs.records import WHOLE_JOB, JobRecord, JobStage, UploadedModel
from compiler_service.jobs.waiting.line import WaitingLine, place
from tests.compiler_service.jobs.mortal import Installation, Process

pytestmark = pytest.mark.services
MODEL = {"name": "shared"}
Act = tuple[str, int, str, int]
"""``order``, ``follow``, ``take`` or ``end``; of which job or turn; by whom, with which priority."""


@pytest.fixture(name="still")
def fixture_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still, so that turns alone count."""
    monkeypatch.setattr("compiler_service.jobs.waiting.line.time.time", lambda: 1e9)


@dataclass
class Model:
    """What :class:`WaitingLine` promises, in the plainest words: stages with their places, and how often whom has had a turn."""

    stages: dict[str, dict[str, float]] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    running: dict[str, str] = field(default_factory=dict)
    least: int = 0

    def stand(self, stage: str, user: str, rank: float) -> None:
        if not any(user in places for places in self.stages.values()):
            self.turns[user] = max(self.turns.get(user, 0), self.least)
        places = self.stages.setdefault(stage, {})
        places[user] = min(rank, places.get(user, rank))

    def take(self) -> str | None:
        users = {user for places in self.stages.values() for user in places}
        if not users:
            return None
        runs = list(self.running.values())
        user = min(users, key=lambda own: (runs.count(own), self.turns[own], own))
        stage = min((places[user], name) for name, places in self.stages.items() if user in places)[1]
        del self.stages[stage]
        self.running[stage] = user
        self.least = max(self.least, self.turns[user])
        self.turns[user] += 1
        return stage


def job(name: str, user: str, created: float, priority: int) -> JobRecord:
    order: dict[str, Any] = {"id": name, "name": "m", "source": UploadedModel("ab" * 32), "options": {}, "targets": ()}
    return JobRecord(**order, user=user, created=created, priority=priority)


ACTS = st.lists(
    st.tuples(
        st.sampled_from(("order", "order", "follow", "follow", "take", "end")),
        st.integers(0, 7),
        st.sampled_from(("ann", "bob", "cem")),
        st.integers(-9, 9),
    ),
    max_size=40,
)


@pytest.mark.usefixtures("still")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=ACTS)
def test_lines_do_as_the_model_says(redis: Redis, acts: Sequence[Act]) -> None:
    redis.flushall()
    line, model = WaitingLine(redis), Model()
    for number, (act, which, user, priority) in enumerate([*acts, *([("take", 0, "", 0)] * 20)]):
        own = job(f"j{number:03}", user, float(number), priority)
        waits, runs = sorted(model.stages), sorted(model.running)
        if act == "order":
            line.join(JobStage.BUILD, own, 0)
            model.stand(own.id, *place(own))
        elif act == "follow" and waits:
            leader = waits[which % len(waits)]
            line.lend(JobStage.BUILD, leader, 0, place(own))
            model.stand(leader, *place(own))
        elif act == "follow" and runs:
            line.lend(JobStage.BUILD, runs[which % len(runs)], 0, place(own))  # it does not wait: nothing changes
        elif act == "end" and runs:
            ended = runs[which % len(runs)]
            line.leave(JobStage.BUILD, ended, 0)
            del model.running[ended]
        elif act == "take":
            taken = line.take("compile")
            assert (taken and taken[1]) == model.take()
    assert line.standing("compile").keys() == {(name, 0) for name in model.stages}


def first(process: Process) -> tuple[str, int]:
    """Whose turn it is in the line of compilations, of which nothing is taken."""
    found = process.service.dispatch.line.take("compile")
    assert found is not None
    return found[1:]


def orders(process: Process, *priorities: tuple[str, str, int]) -> Mapping[str, str]:
    """Jobs by name, of users and with priorities; those of a name that begins alike are of one model."""
    found = {}
    for name, user, priority in priorities:
        model = {"name": name.partition("-")[0]}
        found[name] = process.submit(model, name, ("x86-64-v3",), user=user, priority=priority).id
    return found


def test_whom_a_job_of_high_priority_follows_goes_before_others(installation: Installation) -> None:
    process = installation.process()
    jobs = orders(process, ("shared-low", "ann", -5), ("other", "ann", 0), ("shared-high", "ann", 9))
    assert process.jobs.get(jobs["shared-high"]).targets[0].follows == jobs["shared-low"]
    assert first(process) == (jobs["shared-low"], WHOLE_JOB)
    assert first(process) == (jobs["other"], WHOLE_JOB)


def test_each_stage_of_whom_others_follow_stands_in_their_places(installation: Installation) -> None:
    """Those too that begin to wait after they came."""
    process = installation.process()
    jobs = orders(process, ("shared-low", "ann", -5))
    process.turns.work(*installation.line.tasks.popleft())
    jobs = {**jobs, **orders(process, ("shared-high", "ann", 9), ("other", "ann", 0))}
    line = process.service.dispatch.line
    assert first(process) == (jobs["shared-low"], 0)
    line.leave(JobStage.BUILD, jobs["shared-low"], 0)
    process.service.dispatch.send(process.jobs.get(jobs["shared-low"]), 0, JobStage.BUILD)
    assert first(process) == (jobs["shared-low"], 0)


def test_a_follower_has_its_users_turn(installation: Installation) -> None:
    process = installation.process()
    many = [(f"a{number}", "ann", 0) for number in range(5)]
    jobs = orders(process, *many, ("shared-ann", "ann", -9), ("shared-bob", "bob", 0))
    assert {first(process)[0], first(process)[0]} == {jobs["a0"], jobs["shared-ann"]}


def test_who_takes_a_cancelled_leader_s_place_has_the_places_of_the_others(installation: Installation) -> None:
    process = installation.process()
    jobs = orders(
        process, ("shared-1", "ann", -9), ("shared-2", "ann", -8), ("shared-3", "ann", 9), ("other", "ann", 0)
    )
    process.service.cancel(jobs["shared-1"])
    leader = jobs["shared-2"] if not process.jobs.get(jobs["shared-2"]).targets[0].follows else jobs["shared-3"]
    follower = ({jobs["shared-2"], jobs["shared-3"]} - {leader}).pop()
    assert process.jobs.get(follower).targets[0].follows == leader
    taken = [first(process)[0] for _ in range(3)]
    assert taken.index(leader) < taken.index(jobs["other"])


def test_who_cancels_takes_his_place_back(installation: Installation) -> None:
    """A turn of his is not spent on what he does not want any more."""
    process = installation.process()
    many = [(f"a{number}", "ann", 0) for number in range(3)]
    jobs = orders(process, *many, ("shared-ann", "ann", -9), ("shared-bob", "bob", 9))
    process.service.cancel(jobs["shared-bob"])
    assert [first(process)[0] for _ in range(4)] == [jobs[name] for name in ("a0", "a1", "a2", "shared-ann")]


def test_who_cancels_one_of_several_keeps_the_place_of_the_best_that_is_left(installation: Installation) -> None:
    process = installation.process()
    jobs = orders(
        process,
        ("shared-0", "ann", -5),
        ("low", "ann", -3),
        ("shared-1", "ann", -1),
        ("middle", "ann", 0),
        ("shared-2", "ann", 9),
    )
    process.service.cancel(jobs["shared-2"])
    assert [first(process)[0] for _ in range(3)] == [jobs[name] for name in ("middle", "shared-0", "low")]


def test_what_its_owner_waits_for_is_not_lost_with_a_follower(installation: Installation) -> None:
    process = installation.process()
    jobs = orders(process, ("shared-low", "ann", -5), ("other", "ann", 0), ("shared-high", "ann", 9))
    process.service.cancel(jobs["shared-high"])
    assert [first(process)[0] for _ in range(2)] == [jobs["other"], jobs["shared-low"]]
