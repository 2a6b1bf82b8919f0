"""What is known of a compile job."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shared_ir.digest import source_digest
from shared_ir.errors import IngotError


class JobState(enum.StrEnum):
    """States of a job and of each of its targets."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def finished(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


class JobStage(enum.StrEnum):
    """The steps of a job; each is one Celery task. The middle three run per target."""

    INGEST = "ingest"
    TUNE = "tune"
    BUILD = "build"
    VERIFY = "verify"
    PUBLISH = "publish"


TARGET_STAGES = (JobStage.TUNE, JobStage.BUILD, JobStage.VERIFY)
WHOLE_JOB = -1
"""Stands for the whole job where the number of a target is asked for."""


@dataclass(frozen=True)
class UploadedModel:
    """An uploaded model: digests (hexadecimal sha256) of the model file and of its external data by location.

    Attributes:
        namespace: whose files they are, empty for those of the whole installation. The same model everywhere is the same model.
    """

    model_sha256: str
    external_data: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""

    @property
    def digest(self) -> str:
        """Names the model as a whole."""
        return source_digest(self.model_sha256, self.external_data)

    @property
    def keys(self) -> frozenset[str]:
        """Of its files in the object store."""
        digests = (self.model_sha256, *self.external_data.values())
        return frozenset(f"{source_folder(self.namespace)}/{sha256}" for sha256 in digests)


def source_folder(namespace: str) -> str:
    """Each namespace has files of its own: what others have uploaded is not there for it."""
    return f"sources/{namespace}" if namespace else "sources"


@dataclass(frozen=True)
class Submission:
    """A request to compile. Of requests of a namespace with the same ``idempotency_key`` the first alone is a job; the others get
    that one.

    After ``timeout`` seconds the job has failed, 0 for never; what waits of a user goes by ``priority``.
    """

    name: str
    source: UploadedModel
    targets: tuple[str, ...]
    options: Mapping[str, Any]
    labels: tuple[str, ...] = ()
    idempotency_key: str = ""
    user: str = ""
    trace: str = ""
    running_stages: int = 0
    unfinished_jobs: int = 0
    timeout: float = 0.0
    priority: int = 0


@dataclass(frozen=True)
class Orderer:
    """Who orders a job, in the trace that the traceparent ``trace`` says; so many stages of its namespace may run at once, and so many of
    its jobs may be unfinished, 0 for any number."""

    user: str = ""
    trace: str = ""
    running_stages: int = 0
    unfinished_jobs: int = 0

    def order(self, submission: Submission) -> Submission:
        return replace(
            submission,
            user=self.user,
            trace=self.trace,
            running_stages=self.running_stages,
            unfinished_jobs=self.unfinished_jobs,
        )


@dataclass(frozen=True)
class TargetRecord:
    """Work on one target.

    Attributes:
        target: as it was asked for.
        spec: the resolved target, JSON values.
        request_key: artifact key at the time of submission; equal requests of a namespace share one compilation.
        stage: stage under way or the last one; ``done`` of ``total`` steps of it.
        artifact_key: of the artifact that came out.
        cache_hit: the artifact existed already, or another job made it.
        follows: the job whose compilation this one waits for.
        passed: the last stage whose output exists.
        leased: a worker said that it runs a stage. Its lease tells whether it still lives.
        worker: the worker that said so last.
        tries: how often the stage after ``passed`` has failed for want of something that comes back.
        resume_at: not before this time is that stage tried again; 0 for at once.
        began: when the stage began that was begun last.
    """

    target: str
    spec: Mapping[str, Any]
    request_key: str
    state: JobState = JobState.QUEUED
    stage: str = ""
    done: int = 0
    total: int = 0
    artifact_key: str = ""
    cache_hit: bool = False
    follows: str = ""
    passed: str = ""
    leased: bool = False
    worker: str = ""
    tries: int = 0
    resume_at: float = 0.0
    began: float = 0.0
    error: IngotError | None = None


@dataclass(frozen=True)
class JobRecord:
    """A job. Times are in seconds since the epoch, 0 for not yet; ``version`` is 0 until published.

    ``stage``, ``passed``, ``leased``, ``worker``, ``tries``, ``resume_at`` and ``began`` are as those of a target, for the stages that
    concern the whole job. ``user`` ordered it, in the trace that the traceparent ``trace`` says; of the stages of its namespace so many
    may run at once, 0 for any number. It fails at ``deadline``, 0 for never. ``number`` is its place in lists, 0 for none known.
    """

    id: str
    name: str
    source: UploadedModel
    options: Mapping[str, Any]
    targets: tuple[TargetRecord, ...]
    created: float
    labels: tuple[str, ...] = ()
    state: JobState = JobState.QUEUED
    started: float = 0.0
    finished: float = 0.0
    version: int = 0
    stage: str = ""
    passed: str = ""
    leased: bool = False
    worker: str = ""
    tries: int = 0
    resume_at: float = 0.0
    began: float = 0.0
    error: IngotError | None = None
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    user: str = ""
    trace: str = ""
    running_stages: int = 0
    deadline: float = 0.0
    priority: int = 0
    number: int = field(default=0, compare=False)

    @property
    def cache_hit(self) -> bool:
        return all(target.cache_hit for target in self.targets)

    def flight(self, number: int) -> str:
        """What a target shares with the equal ones of its namespace, of which one is compiled. What other namespaces order is no matter of
        this one: their quotas would hold it up, and it would learn of their jobs."""
        namespace, key = self.source.namespace, self.targets[number].request_key
        return f"{namespace}:{key}" if namespace else key


@dataclass(frozen=True)
class Event:
    """Something that happened to a job.

    Attributes:
        kind: ``state`` (the job or a target changed state), ``progress`` or ``log``.
        target: the target as it was asked for, empty for the whole job.
        data: for progress ``stage, done, total, eta_seconds, message``; for log ``level, text``.
        sequence: position in the job's history, empty before it is recorded.
        time: seconds since the epoch.
        stage: that wrote a line of the log.
    """

    kind: str
    target: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    sequence: str = ""
    time: float = 0.0
    stage: str = ""
