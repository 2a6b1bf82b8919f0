"""A verification is taken by a worker whose machine can run what is verified, where one lives; by anyone where none does."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from compiler_service.jobs.neighbours import Addressed, Member
from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.records import JobRecord, JobStage, TargetRecord, UploadedModel
from compiler_service.jobs.waiting.dispatch import Dispatch
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.machine import Machine
from shared_ir.machine.target import PRESETS, target_to_dict

pytestmark = pytest.mark.services
SERVER = Machine("x86_64-linux-gnu", frozenset({"+avx2", "+fma", "+f16c", "+bmi2"}))
WITH_QEMU = Machine(SERVER.triple, SERVER.features, frozenset({"aarch64"}))
VERIFY = JobStage.VERIFY


@dataclass
class Broker:
    """Messages by line and kind of machine."""

    messages: dict[Addressed, list[Member]] = field(default_factory=dict)

    def send(self, stage: JobStage, job: str, target: int, kind: str = "") -> None:
        self.messages.setdefault(("verify" if stage is VERIFY else "compile", kind), []).append((job, target))

    def waiting(self, kinds: Collection[str]) -> Mapping[Addressed, Sequence[Member]]:
        return {where: sent for where, sent in self.messages.items() if where[1] in ("", *kinds)}


@pytest.fixture(name="broker")
def fixture_broker() -> Broker:
    return Broker()


@pytest.fixture(name="dispatch")
def fixture_dispatch(store: JobStore, broker: Broker) -> Dispatch:
    return Dispatch(store, broker)


def job(name: str, target: str = "raspberry-pi/4b", verification: str = "required", created: float = 1.0) -> JobRecord:
    spec = target_to_dict(PRESETS[target][0])
    options = {} if verification == "available" else {"verification": verification}
    return JobRecord(
        name, "m", UploadedModel("ab" * 32), options, (TargetRecord(target, spec, f"key of {name}"),), created
    )


def all_know(redis: Redis) -> None:
    """Every worker had time to say that it lives."""
    redis.delete("ingot:machines:gathering")


def test_who_can_run_it_is_told_and_takes_it(dispatch: Dispatch, broker: Broker, redis: Redis) -> None:
    for machine in (SERVER, WITH_QEMU):
        dispatch.machines.say(machine, 60)
    all_know(redis)
    dispatch.send(job("foreign"), 0, VERIFY)
    dispatch.send(job("own", "x86-64-v3", created=2.0), 0, VERIFY)
    assert broker.messages == {
        ("verify", WITH_QEMU.kind): [("foreign", 0), ("own", 0)],
        ("verify", SERVER.kind): [("own", 0)],
    }
    assert dispatch.take(VERIFY, SERVER) == (VERIFY, "own", 0)
    assert dispatch.take(VERIFY, SERVER) is None
    assert not dispatch.may_do(job("foreign"), 0, VERIFY, SERVER)
    assert dispatch.take(VERIFY, WITH_QEMU) == (VERIFY, "foreign", 0)


def test_what_nobody_can_run_is_for_anyone_once_all_have_spoken(
    dispatch: Dispatch, broker: Broker, redis: Redis
) -> None:
    dispatch.machines.say(SERVER, 60)
    dispatch.send(job("foreign"), 0, VERIFY)
    assert broker.messages == {("verify", ""): [("foreign", 0)]}
    assert dispatch.take(VERIFY, SERVER) is None, "others may not have had time to say what they can run"
    all_know(redis)
    assert dispatch.take(VERIFY, SERVER) == (VERIFY, "foreign", 0)


def test_a_machine_that_is_gone_counts_for_nothing(dispatch: Dispatch, broker: Broker, redis: Redis) -> None:
    dispatch.machines.say(SERVER, 60)
    dispatch.machines.say(WITH_QEMU, 0.05)
    all_know(redis)
    dispatch.send(job("foreign"), 0, VERIFY)
    assert dispatch.waiting() == {("foreign", 0)}
    time.sleep(0.1)
    assert dispatch.waiting() == set(), "its message lies where nobody reads it"
    dispatch.send(job("foreign"), 0, VERIFY)
    assert broker.messages["verify", ""] == [("foreign", 0)]
    assert dispatch.take(VERIFY, SERVER) == (VERIFY, "foreign", 0)


def test_a_job_that_requires_it_fails_where_no_living_worker_can(dispatch: Dispatch, redis: Redis) -> None:
    dispatch.machines.say(SERVER, 60)
    with pytest.raises(IngotError, match="no worker that verifies can run code for aarch64-linux-gnu") as caught:
        dispatch.require_verifiable(job("foreign"), 0)
    assert (caught.value.code, caught.value.received) == (ErrorCode.NOT_VERIFIED, "x86_64-linux-gnu")
    for verification in ("available", "off"):
        dispatch.require_verifiable(job("foreign", verification=verification), 0)
    dispatch.machines.say(WITH_QEMU, 60)
    dispatch.require_verifiable(job("foreign"), 0)


def test_what_is_not_verified_at_all_is_for_anyone(dispatch: Dispatch, broker: Broker, redis: Redis) -> None:
    dispatch.machines.say(WITH_QEMU, 60)
    dispatch.send(job("foreign", verification="off"), 0, VERIFY)
    assert broker.messages == {("verify", ""): [("foreign", 0)]}
    assert dispatch.take(VERIFY, SERVER) == (VERIFY, "foreign", 0)


def test_a_few_messages_reach_as_many_as_a_machine_can_take(dispatch: Dispatch, broker: Broker, redis: Redis) -> None:
    for machine in (SERVER, WITH_QEMU):
        dispatch.machines.say(machine, 60)
    for number in range(3):
        dispatch.send(job(f"j{number}", created=float(number)), 0, VERIFY)
    assert dispatch.waiting() == {(f"j{number}", 0) for number in range(3)}
    broker.messages["verify", WITH_QEMU.kind].pop(0)
    assert dispatch.waiting() == {("j1", 0), ("j2", 0)}


MACHINES = st.builds(
    Machine,
    st.sampled_from(("x86_64-linux-gnu", "aarch64-linux-gnu")),
    st.frozensets(st.sampled_from(("+avx2", "+sve"))),
    st.frozensets(st.sampled_from(("aarch64", "x86_64"))),
)


@given(machine=MACHINES, other=MACHINES)
def test_machines_are_said_and_read(machine: Machine, other: Machine) -> None:
    assert Machine.from_dict(machine.to_dict()) == machine
    assert (machine.kind == other.kind) == (machine == other)
