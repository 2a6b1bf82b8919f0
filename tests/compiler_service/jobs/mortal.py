"""An installation in one process whose parts die at any call to the outside, for tests of what is left behind.

A process that has died does nothing more: every later call of it raises :class:`Died` too, and passes through its ``except Exception``.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis import Redis
from redis.client import Pipeline

from compiler_service.jobs.neighbours import Addressed, Member
from compiler_service.jobs.orders import Orders
from compiler_service.jobs.persistence.counters import Counters
from compiler_service.jobs.persistence.seal import Seal
from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.reconciler import Found, Reconciler
from compiler_service.jobs.records import JobRecord, JobStage, Submission, UploadedModel
from compiler_service.jobs.service import JobService
from compiler_service.jobs.waiting.line import LINES
from compiler_service.stages.process import run
from compiler_service.stages.runner import PREPARE, StageLimits
from compiler_service.store.reproducers import Reproducers
from compiler_service.store.sources import SourceStore, UploadAnnouncement
from compiler_service.store.tuning_store import TuningStore
from compiler_service.worker.stages import StageWorker
from compiler_service.worker.turns import WorkerTurns
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import SigningKey, TrustStore
from shared_ir.digest import sha256_hex
from shared_ir.machine.target import Target
from shared_ir.storage.local import FileStore
from shared_ir.storage.protocol import Data, Identity, ObjectDraft, ObjectInfo
from tests.services.toy_compiler import ToyCompiler
from tests.services.toy_stages import ToyStages

LEASE_SECONDS = 0.4
GRACE_SECONDS = 0.05
TARGETS = ("x86-64-v3", "x86-64-v4")


class Died(BaseException):
    """The process has ended here."""


@dataclass
class Life:
    """Ends at the call number ``last`` to the outside, ``after`` it was made or before; None: it does not end."""

    last: int | None = None
    after: bool = False
    calls: int = 0

    def spend(self, act: Callable[[], Any]) -> Any:
        self.calls += 1
        if self.last is None or self.calls < self.last:
            return act()
        if self.calls == self.last and self.after:
            act()
        raise Died


@dataclass
class ForgetfulLife(Life):
    """Goes on, but at the call number ``last`` Redis has lost everything before it answers."""

    forget: Callable[[], None] = lambda: None

    def spend(self, act: Callable[[], Any]) -> Any:
        self.calls += 1
        if self.calls == self.last:
            self.forget()
        return act()


class MortalRedis(Redis):
    life: Life = Life()

    def execute_command(self, *args: Any, **options: Any) -> Any:
        return self.life.spend(lambda: super(MortalRedis, self).execute_command(*args, **options))  # type: ignore[no-untyped-call]

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        made = super().pipeline(transaction, shard_hint)
        execute = made.execute
        made.execute = lambda *a, **k: self.life.spend(lambda: execute(*a, **k))  # type: ignore[method-assign]
        return made


@dataclass(frozen=True)
class MortalStore:
    """An object store that dies at writes: what dies while it reads has changed nothing."""

    own: FileStore
    life: Life

    @property
    def url(self) -> str:
        return self.own.url

    def put(self, key: str, data: Data) -> None:
        self.life.spend(lambda: self.own.put(key, data))

    def draft(self, key: str) -> ObjectDraft:
        found: ObjectDraft = self.life.spend(lambda: self.own.draft(key))
        return found

    def put_if_absent(self, key: str, data: Data) -> bool:
        return bool(self.life.spend(lambda: self.own.put_if_absent(key, data)))

    def replace(self, key: str, data: bytes, tag: str) -> bool:
        return bool(self.life.spend(lambda: self.own.replace(key, data, tag)))

    def delete(self, key: str) -> None:
        self.life.spend(lambda: self.own.delete(key))

    def delete_unused(self, key: str, before: float) -> bool:
        return bool(self.life.spend(lambda: self.own.delete_unused(key, before)))

    def get(self, key: str, limit: int | None = None) -> bytes:
        return self.own.get(key, limit)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.own.get_range(key, start, length)

    def size(self, key: str) -> int | None:
        return self.own.size(key)

    def get_tagged(self, key: str, limit: int | None = None) -> tuple[bytes, str]:
        return self.own.get_tagged(key, limit)

    def pieces(self, key: str) -> Iterator[bytes]:
        return self.own.pieces(key)

    def identity(self, key: str) -> Identity | None:
        return self.own.identity(key)

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        return self.own.list(prefix, after)

    def holding(self) -> AbstractContextManager[None]:
        return self.own.holding()

    def keys(self, prefix: str, after: str = "") -> Iterator[str]:
        return self.own.keys(prefix, after)

    def folders(self, prefix: str) -> tuple[str, ...]:
        return self.own.folders(prefix)

    def local_path(self, key: str, limit: int | None = None) -> Path:
        return self.own.local_path(key, limit)


@dataclass
class Line:
    """The queue: survives everything but what a test takes out of it."""

    tasks: deque[tuple[JobStage, str, int]] = field(default_factory=deque)

    def waiting(self) -> Mapping[Addressed, Sequence[Member]]:
        return {(name, ""): [own[1:] for own in self.tasks if LINES[own[0]] == name] for name in LINES.values()}


@dataclass(frozen=True)
class MortalQueue:
    line: Line
    life: Life

    def send(self, stage: JobStage, job: str, target: int, kind: str = "") -> None:
        self.life.spend(lambda: self.line.tasks.append((stage, job, target)))

    def waiting(self, kinds: Collection[str]) -> Mapping[Addressed, Sequence[Member]]:
        return self.line.waiting()


class InProcess:
    """Runs stages of the toy compiler where they are asked for."""

    limits = StageLimits()

    def emulator(self, target: Target) -> None:
        """Nothing runs code for other machines."""

    def run(
        self,
        work: Path,
        request: Mapping[str, Any],
        on_message: Callable[[Mapping[str, Any]], None],
        should_stop: Callable[[], bool],
    ) -> Mapping[str, Any]:
        if request["stage"] == PREPARE:
            return {}
        return run(request, work, ToyStages(), lambda *_: None)


@dataclass
class Installation:
    """What outlives its processes: Redis, the object store, the queue, the keys."""

    home: Path
    redis_url: str
    line: Line = field(default_factory=Line)

    def __post_init__(self) -> None:
        self.signer = SigningKey.load_or_create(self.home / "signing.pem")
        self.store = FileStore(self.home / "store")

    def process(self, life: Life | None = None) -> Process:
        return Process(self, life or Life())

    def forget(self) -> None:
        """Redis loses its data, and with them the messages."""
        Redis.from_url(self.redis_url).flushall()
        self.line.tasks.clear()


class Process:
    """An API server and a worker in one, that end together."""

    def __init__(self, installation: Installation, life: Life) -> None:
        self.line, self.life = installation.line, life
        redis = MortalRedis(unix_socket_path=installation.redis_url.removeprefix("unix://"), decode_responses=True)
        redis.life = life
        store, signer = MortalStore(installation.store, life), installation.signer
        repository = ArtifactRepository(store, TrustStore.of([signer.public]), signer)
        self.sources = SourceStore(store, 1 << 20)
        counters, tuning = Counters(redis), TuningStore(store, ToyCompiler().merge_records)
        self.jobs = JobStore(redis, 3600, Seal(signer, repository.trust))
        self.repository = repository
        self.service = JobService(
            self.jobs,
            Orders(store),
            counters,
            repository,
            self.sources,
            tuning,
            ToyCompiler(),
            MortalQueue(installation.line, life),
        )
        self.worker = StageWorker(
            self.service,
            counters,
            repository,
            self.sources,
            tuning,
            InProcess(),  # type: ignore[arg-type]  # in place of a StageRunner
            Reproducers(store),
            installation.home / "work",
            LEASE_SECONDS,
            threading.Event(),
            "a worker",
        )
        self.turns = WorkerTurns(self.service, self.worker)

    def submit(
        self,
        model: Mapping[str, Any],
        name: str,
        targets: Sequence[str] = TARGETS,
        key: str = "",
        namespace: str = "",
        **order: Any,
    ) -> JobRecord:
        source = self.upload(model, namespace)
        return self.service.submit(Submission(name, source, tuple(targets), {}, idempotency_key=key, **order))

    def upload(self, model: Mapping[str, Any], namespace: str = "") -> UploadedModel:
        data = json.dumps(model).encode()
        self.sources.receive(UploadAnnouncement("model.json", len(data), sha256_hex(data), namespace=namespace), [data])
        return UploadedModel(sha256_hex(data), namespace=namespace)

    def work(self) -> None:
        """Work the queue off, as Celery does."""
        while self.line.tasks:
            self.turns.work(*self.line.tasks.popleft())

    def look(self) -> Found:
        reconciler = Reconciler(self.service, GRACE_SECONDS)
        restored = reconciler.restore().restored
        found = reconciler.look()
        return Found(found.lost, found.forgotten, found.tried, found.led, restored)
