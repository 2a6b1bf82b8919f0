"""A compiler service in this process, around the toy compiler: the test works off its queue, stage by stage."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler_service.jobs.neighbours import Addressed, Member
from compiler_service.jobs.records import JobRecord, JobStage, Submission, UploadedModel
from compiler_service.jobs.waiting.line import LINES
from compiler_service.settings import CompilerSettings
from compiler_service.store.sources import UploadAnnouncement
from compiler_service.wiring import make_parts
from compiler_service.worker.run import make_stage_worker
from compiler_service.worker.turns import WorkerTurns
from shared_ir.digest import sha256_hex
from tests.services.toy_compiler import STAGE_COMMAND, ToyCompiler

Stage = tuple[JobStage, str, int]
Between = Callable[[Stage], object]


class Platform:
    """A compiler service whose queue the test works off; ``between`` is called before each stage."""

    def __init__(self, home: Path, url: str) -> None:
        self.home = home
        self._tasks: deque[tuple[JobStage, str, int]] = deque()
        settings = CompilerSettings(home=home, redis_url=url)
        self.parts = make_parts(settings, ToyCompiler(), self, STAGE_COMMAND)
        self.worker = make_stage_worker(self.parts, settings, threading.Event())
        self.turns = WorkerTurns(self.parts.service, self.worker)

    @property
    def store(self) -> Path:
        return self.home / "store"

    def send(self, stage: JobStage, job: str, target: int, kind: str = "") -> None:
        self._tasks.append((stage, job, target))

    def waiting(self, kinds: Collection[str]) -> Mapping[Addressed, Sequence[Member]]:
        return {(name, ""): [own[1:] for own in self._tasks if LINES[own[0]] == name] for name in LINES.values()}

    def upload(self, model: Any) -> UploadedModel:
        data = json.dumps(model).encode()
        self.parts.sources.receive(UploadAnnouncement("model.json", len(data), sha256_hex(data)), [data])
        return UploadedModel(sha256_hex(data))

    def compile(self, name: str, model: Any, between: Between = lambda stage: None, **submission: Any) -> JobRecord:
        job = self.submit(name, model, **submission)
        self.work_off(between)
        return self.parts.service.store.get(job)

    def submit(self, name: str, model: Any, **submission: Any) -> str:
        order = Submission(name, self.upload(model), ("x86-64-v3",), {}, **submission)
        return self.parts.service.submit(order).id

    def work_off(self, between: Between = lambda stage: None) -> None:
        while self._tasks:
            task = self._tasks.popleft()
            between(task)
            self.turns.work(*task)

    def key(self, model: Any) -> str:
        target = ToyCompiler().resolve_target("x86-64-v3")
        source = UploadedModel(sha256_hex(json.dumps(model).encode()))
        return ToyCompiler().artifact_key(source, target, ToyCompiler().normalise_options({}), b"")
