"""Who has the next turn: against a real Redis, and with a real worker of one slot."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from compiler_service.jobs.records import WHOLE_JOB, JobRecord, JobStage, UploadedModel
from compiler_service.jobs.waiting.line import WaitingLine
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.service_kit.access.principal import EVERY_SCOPE, Principal
from shared_ir.service_kit.access.token_file import editing
from tests.compiler_service.jobs.mortal import LEASE_SECONDS
from tests.compiler_service.jobs.mortal import Installation as OneProcess
from tests.services.installation import Client, installation, wait_until

pytestmark = pytest.mark.services


def job(name: str, user: str = "", created: float = 1.0, priority: int = 0) -> JobRecord:
    order: dict[str, Any] = {"id": name, "name": "m", "source": UploadedModel("ab" * 32), "options": {}, "targets": ()}
    return JobRecord(**order, user=user, created=created, priority=priority)


def taken(line: WaitingLine, ends: bool = True) -> list[str]:
    found = []
    while (own := line.take("compile")) is not None:
        found.append(own[1])
        if ends:
            line.leave(*own)
    return found


def test_of_one_user_the_higher_priority_goes_first_then_the_older_job(redis: Redis) -> None:
    line = WaitingLine(redis)
    for name, created, priority in (("b", 2.0, 0), ("low", 1.0, -9), ("a", 1.0, 0), ("high", 1e9, 1)):
        line.join(JobStage.BUILD, job(name, created=created, priority=priority), 0)
    assert taken(line) == ["high", "a", "b", "low"]
    assert line.take("compile") is None


def test_users_take_turns_whatever_their_priorities_are(redis: Redis) -> None:
    line = WaitingLine(redis)
    for number in range(50):
        line.join(JobStage.BUILD, job(f"a{number}", "ann", float(number), priority=9), 0)
    assert [own[1] for own in (line.take("compile"), line.take("compile")) if own] == ["a0", "a1"]
    line.join(JobStage.INGEST, job("b0", "bob", 99.0), WHOLE_JOB)
    line.join(JobStage.BUILD, job("c0", "cem", 98.0), 3)
    order = taken(line, ends=False)
    assert set(order[:2]) == {"b0", "c0"}
    assert order[2:] == [f"a{number}" for number in range(2, 50)]


def test_whose_stages_run_least_has_the_next_turn(redis: Redis) -> None:
    line = WaitingLine(redis)
    for number in range(3):
        line.join(JobStage.BUILD, job(f"a{number}", "ann", float(number)), 0)
    first, second = line.take("compile"), line.take("compile")
    assert first is not None
    assert second is not None
    line.join(JobStage.BUILD, job("b0", "bob"), 0)
    line.join(JobStage.BUILD, job("b1", "bob"), 0)
    assert taken(line, ends=False) == ["b0", "b1", "a2"]
    line.leave(*first)
    line.leave(*second)
    line.join(JobStage.BUILD, job("a3", "ann"), 0)
    line.join(JobStage.BUILD, job("b2", "bob"), 0)
    assert taken(line) == ["a3", "b2"]


def test_who_has_had_an_hour_waits_for_all_short_stages_of_others(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, now = WaitingLine(redis), time.time()
    for number in range(3):
        line.join(JobStage.BUILD, job(f"a{number}", "ann", float(number)), 0)
    first = line.take("compile")
    assert first is not None
    monkeypatch.setattr("compiler_service.jobs.waiting.line.time.time", lambda: now + 3600)
    line.leave(*first)
    for name in ("b0", "b1"):  # the second only comes when the first has ended
        line.join(JobStage.BUILD, job(name, "bob"), 0)
        own = line.take("compile")
        assert own == (JobStage.BUILD, name, 0)
        line.leave(*own)
    assert taken(line) == ["a1", "a2"]
    line.join(JobStage.BUILD, job("a3", "ann"), 0)  # time in which bob wanted nothing is not owed to him
    line.join(JobStage.BUILD, job("b2", "bob"), 0)
    line.join(JobStage.BUILD, job("b3", "bob", 2.0), 0)
    assert taken(line)[0] == "b2"


def test_a_stage_that_joins_twice_stands_there_once(redis: Redis) -> None:
    line = WaitingLine(redis)
    for _ in range(2):
        line.join(JobStage.VERIFY, job("a"), 2)
    assert line.standing("verify") == {("a", 2): ""}
    assert line.take("verify") == (JobStage.VERIFY, "a", 2)
    assert line.take("verify") is None
    assert line.standing("verify") == {}


def test_a_stage_without_a_message_of_its_own_is_sent_again_only_when_one_is_missing(
    tmp_path: Path, redis: Redis, redis_url: str
) -> None:
    home = OneProcess(tmp_path, redis_url)
    process = home.process()
    jobs = [process.submit({"name": f"m{n}"}, f"m{n}", ("host",)).id for n in range(3)]
    home.line.tasks.append(home.line.tasks.popleft())
    process.turns.work(*home.line.tasks.popleft())  # the message of the second has the first one taken
    assert process.jobs.get(jobs[0]).passed == JobStage.INGEST.value
    assert set(process.service.dispatch.waiting()) >= {(jobs[1], WHOLE_JOB), (jobs[2], WHOLE_JOB), (jobs[0], 0)}
    home.line.tasks.clear()
    assert process.service.dispatch.waiting() == set()
    end = time.monotonic() + 10
    while not all(process.service.get(own).state.finished for own in jobs):
        assert time.monotonic() < end
        process.look()
        process.work()
        time.sleep(LEASE_SECONDS / 10)


def test_a_stuck_model_blocks_one_slot_for_its_limit_and_no_more(tmp_path: Path) -> None:
    """One user's models never end; another's is compiled after the one that runs, not after all of them."""
    tokens = tmp_path / "tokens.json"
    with editing(tokens) as held:
        users = {}
        for user in ("ann", "bob"):
            held[0], users[user] = held[0].with_token(Principal(user, "", frozenset(EVERY_SCOPE)))
    environment = {"INGOT_API_TOKENS": str(tokens), "INGOT_JOB_SECONDS": "8", "INGOT_WORKERS": "1"}
    with installation(tmp_path / "home", **environment) as running:
        running.start_server()
        ann, bob = (
            Client(running.address, (("authorization", f"Bearer {token}"),)) for token in (users["ann"], users["bob"])
        )
        stuck = [ann.compile({"name": f"s{n}", "seconds": 1000}, f"s{n}") for n in range(4)]
        running.start_worker()
        wait_until(lambda: sum(ann.job(own.id).targets[0].stage == "build" for own in stuck) == 1)
        quick = bob.wait(bob.compile({"name": "quick"}, "quick").id)
        assert quick.state == pb.JOB_STATE_SUCCEEDED
        ended = [own.id for own in stuck if ann.job(own.id).targets[0].state == pb.JOB_STATE_FAILED]
        assert len(ended) == 1, "bob waited for more than what ran when he came"
        failed = ann.wait(ended[0])
        assert (failed.error.code, failed.error.blame) == ("RESOURCE_LIMIT", pb.BLAME_USER)
