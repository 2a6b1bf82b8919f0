"""From a stage that waits to a worker that can do it: its places in line, the messages that say so, and what a worker may take.

A verification runs the code that it is about, so that a worker takes it only where its machine can run that, by itself or under an
emulator. Each kind of machine has messages of its own, which only workers on such machines get. What no machine of a living worker can
run is taken by anyone, who then says that it was not run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from compiler_service.jobs.neighbours import Member, Queue
from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.records import WHOLE_JOB, JobRecord, JobStage
from compiler_service.jobs.waiting.line import LINES, Waiting, WaitingLine, place
from compiler_service.jobs.waiting.machines import Machines
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.foreign_json import foreign_json
from shared_ir.machine.machine import Machine

_VERIFY = LINES[JobStage.VERIFY]
_OF_TARGET = (JobStage.TUNE, JobStage.BUILD, JobStage.VERIFY)


class Dispatch:
    """Of the jobs of ``store``, by messages of ``queue``."""

    def __init__(self, store: JobStore, queue: Queue) -> None:
        self._store = store
        self._queue = queue
        self.line = WaitingLine(store.redis)
        self.machines = Machines(store.redis)

    def send(self, record: JobRecord, number: int, stage: JobStage) -> None:
        """Have a stage wait for a worker, in the places of those too who wait for what comes of it."""
        need = need_of(record, number, stage)
        self.line.join(stage, record, number, need)
        for user, rank in self._places(record, number, stage).items():
            self.line.lend(stage, record.id, number, (user, rank))
        for kind in self._kinds_for(need) or ("",):
            self._queue.send(stage, record.id, number, kind)

    def follow(self, record: JobRecord, leader: Member) -> None:
        """A target of ``record`` waits for ``leader`` from now on: what waits of that does so in the place of ``record`` too."""
        job, number = leader
        self.line.lend(JobStage.INGEST, job, WHOLE_JOB, place(record))
        for stage in _OF_TARGET:
            self.line.lend(stage, job, number, place(record))

    def leave(self, record: JobRecord, leader: JobRecord, number: int) -> None:
        """A target of ``record`` waits for target ``number`` of ``leader`` no longer: what waits of that stands in the places of those who
        still do."""
        user, (owner, own) = place(record)[0], place(leader)
        for stage in (JobStage.INGEST, *_OF_TARGET):
            at = WHOLE_JOB if stage is JobStage.INGEST else number
            ranks = [own] if owner == user else []
            ranks += [rank for other, rank in self._places(leader, at, stage).items() if other == user]
            self.line.settle(stage, leader.id, at, user, min(ranks, default=None))

    def take(self, stage: JobStage, machine: Machine | None) -> Waiting | None:
        """What goes first of the line of ``stage`` that a worker on ``machine`` may do; None says that it runs everything."""
        name = LINES[stage]
        return self.line.take(name, self._meets(machine) if machine and name == _VERIFY else None)

    def may_do(self, record: JobRecord, number: int, stage: JobStage, machine: Machine | None) -> bool:
        """Whether a worker on ``machine`` may do a stage, see :meth:`take`."""
        need = need_of(record, number, stage)
        return machine is None or not need or self._meets(machine)(need)

    def require_verifiable(self, record: JobRecord, number: int) -> None:
        """A job that requires a verification needs a living worker that can do it.

        Raises:
            IngotError: NOT_VERIFIED, there is none.
        """
        need = need_of(record, number, JobStage.VERIFY)
        if not need or record.options.get("verification") != "required" or self._kinds_for(need):
            return
        machines = [_description(machine) for machine in self.machines.living().values()]
        triple = _of_text(need)[0]
        raise IngotError(
            ErrorCode.NOT_VERIFIED,
            f"the job requires a verification, and no worker that verifies can run code for {triple}",
            field="verification",
            expected=f"a worker on {triple.split('-')[0]} with the features of the target, or with qemu-user for it",
            received="; ".join(machines)[:500] or "no worker that verifies",
            remedy="Compile with verification=available to publish it as not verified, or ask the operator to install qemu-user.",
        )

    def stands(self, line: str, machine: Machine | None) -> bool:
        """Whether anything waits in a line that a worker on ``machine`` may do; None says that it runs everything."""
        needs = self.line.standing(line).values()
        return any(not need or machine is None or machine.can_run(*_of_text(need)) for need in needs)

    def waiting(self) -> Collection[Member]:
        """Jobs and targets that a message will have a worker come to. Any message of a line will do for any that stands in it, of those
        that go to one kind of machine for any that this can do."""
        living = self.machines.living()
        messages = self._queue.waiting(tuple(living))
        standing = {name: self.line.standing(name) for name in set(LINES.values())}
        found: set[Member] = set()
        for kind, machine in living.items():
            own = {who for who, need in standing[_VERIFY].items() if need and machine.can_run(*_of_text(need))}
            found |= _reached(messages.get((_VERIFY, kind), ()), own)
        for name, waits in standing.items():
            found |= _reached(messages.get((name, ""), ()), waits.keys() - found)
        return found

    # ---- parts

    def _places(self, record: JobRecord, number: int, stage: JobStage) -> Mapping[str, float]:
        """The best of each user of those who wait for a stage, but for whose it is."""
        whole = {JobStage.PUBLISH: (), JobStage.INGEST: range(len(record.targets))}
        numbers = whole.get(stage) if number == WHOLE_JOB else None
        own = ((n, record.targets[n]) for n in ((number,) if numbers is None else numbers))
        keys = {record.flight(n) for n, target in own if not (target.follows or target.state.finished)}
        found: dict[str, float] = {}
        for follower in self._store.load(sorted(self._store.flights.waiters(keys))):
            user, rank = place(follower)
            if not follower.state.finished:
                found[user] = min(rank, found.get(user, rank))
        return found

    def _kinds_for(self, need: str) -> Sequence[str]:
        """Of the machines of living workers, those that can run it; none too where any will do."""
        if not need:
            return ()
        return [kind for kind, machine in self.machines.living().items() if machine.can_run(*_of_text(need))]

    def _meets(self, machine: Machine) -> Callable[[str], bool]:
        """Whether ``machine`` can run what is needed, or nobody can."""

        def meets(need: str) -> bool:
            if machine.can_run(*_of_text(need)):
                return True
            return self.machines.all_have_spoken() and not self._kinds_for(need)

        return meets


def need_of(record: JobRecord, number: int, stage: JobStage) -> str:
    """What the worker of a stage must be able to run; empty where any will do."""
    if stage is not JobStage.VERIFY or record.options.get("verification") == "off":
        return ""
    spec: Mapping[str, Any] = record.targets[number].spec
    features = sorted(name for name in spec.get("features", ()) if name.startswith("+"))
    return json.dumps([spec["triple"], features])


def _of_text(need: str) -> tuple[str, Sequence[str]]:
    triple, features = foreign_json(need)
    return triple, features


def _reached(sent: Collection[Member], waits: Collection[Member]) -> set[Member]:
    return {*sent, *(waits if len(sent) >= len(waits) else ())}


def _description(machine: Machine) -> str:
    emulated = ", ".join(sorted(machine.emulates))
    return f"{machine.triple} that emulates {emulated}" if emulated else machine.triple
