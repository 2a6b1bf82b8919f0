"""What the compiler service answers, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Self

from shared_ir.errors import IngotError

FINISHED = ("SUCCEEDED", "FAILED", "CANCELLED")


@dataclass(frozen=True)
class Source:
    """An uploaded model: hexadecimal sha256 of the model file, and of its external data by location."""

    model_sha256: str
    external_data: Mapping[str, str] = field(default_factory=dict)


STAGES = ("ingest", "tune", "build", "verify", "publish")
"""Stages of a job, in their order."""


def in_order(seconds: Mapping[str, float]) -> dict[str, float]:
    """Seconds by stage, in the order of the stages; those that a newer service knows come last."""
    known = {stage: number for number, stage in enumerate(STAGES)}
    return dict(sorted(seconds.items(), key=lambda item: (known.get(item[0], len(STAGES)), item[0])))


@dataclass(frozen=True)
class OutputFigures:
    """An output beside that of another implementation: the largest difference, and the same relative to the largest element."""

    name: str
    max_abs_error: float
    max_rel_error: float


@dataclass(frozen=True)
class Verification:
    """What the comparison of a compiled model with another implementation, the oracle, came to.

    Attributes:
        state: ``verified``, or ``not run`` for ``reason``.
        sizes: of the symbolic dims.
        tolerance: largest relative error that is accepted.
        seconds, oracle_seconds: of one run of each, on one thread.
        ratio: how often the compiled model runs while ONNX Runtime runs once; 0 where that was not measured.
        emulator: what ran code of another machine; empty where the worker's own did. Its times say nothing: ``seconds`` is 0.
    """

    state: str
    reason: str = ""
    oracle: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    tolerance: float = 0.0
    outputs: tuple[OutputFigures, ...] = ()
    seconds: float = 0.0
    oracle_seconds: float = 0.0
    ratio: float = 0.0
    emulator: str = ""

    @property
    def is_verified(self) -> bool:
        """Whether a comparison was made, and came to no more than was accepted."""
        return self.state == "verified"

    @classmethod
    def from_report(cls, report: Mapping[str, Any]) -> Self:
        """What ``report.json`` of an artifact says."""
        data = report.get("verification")
        if not data:
            return cls("not run", "it was compiled without a service, which compares")
        own = {name: data[name] for name in cls.__dataclass_fields__ if name in data and name != "outputs"}
        names = OutputFigures.__dataclass_fields__
        figures = tuple(OutputFigures(**{n: one[n] for n in names}) for one in data.get("outputs", ()))
        return cls(**{"state": "", **own}, outputs=figures)


@dataclass(frozen=True)
class TargetJob:
    """Work of a job on one target; ``done`` of ``total`` steps of ``stage``.

    ``verification`` is there for jobs that were asked for by id, once a target has its artifact.
    """

    target: str
    state: str
    stage: str
    done: int
    total: int
    artifact_key: str
    cache_hit: bool
    error: IngotError | None
    verification: Verification | None = None


@dataclass(frozen=True)
class Job:
    """A compilation. Times are in seconds since the epoch, 0 for not yet.

    Attributes:
        state: QUEUED, RUNNING, SUCCEEDED, FAILED or CANCELLED.
        cache_hit: every artifact existed already.
        version: the published version, 0 until then.
        stage_seconds: by stage, in their order, over all targets.
        user: who ordered it, empty where there are no tokens.
        deadline: when it fails unless it has finished, 0 for never.
        priority: among the jobs of its user.
        eta_seconds: of work until it will have finished, by how long its stages took before, without waiting for a worker; None where
            that is not known, and of jobs that were not asked for by id.
    """

    id: str
    name: str
    state: str
    model_sha256: str
    targets: tuple[TargetJob, ...]
    options: Mapping[str, Any]
    labels: tuple[str, ...]
    created: float
    started: float
    finished: float
    cache_hit: bool
    version: int
    error: IngotError | None
    stage_seconds: Mapping[str, float]
    user: str = ""
    deadline: float = 0.0
    priority: int = 0
    eta_seconds: float | None = None

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will happen to it, however it ended."""
        return self.state in FINISHED


@dataclass(frozen=True)
class Progress:
    """Where a stage is; ``eta_seconds`` is negative when unknown."""

    stage: str
    done: int
    total: int
    eta_seconds: float
    message: str


@dataclass(frozen=True)
class LogLine:
    """``level`` is DEBUG, INFO, WARNING or ERROR; ``stage`` wrote it, empty for the whole job."""

    level: str
    text: str
    stage: str = ""


@dataclass(frozen=True)
class JobLogLine:
    """A line of the log of a job; ``time`` is in seconds since the epoch, ``target`` empty for what concerns the whole job."""

    time: float
    target: str
    stage: str
    level: str
    text: str


@dataclass(frozen=True)
class JobEvent:
    """Something that happened to a job; exactly one of ``job``, ``progress`` and ``log`` is there.

    ``target`` is empty for what concerns the whole job; ``time`` is in seconds since the epoch.
    """

    sequence: str
    time: float
    target: str
    job: Job | None = None
    progress: Progress | None = None
    log: LogLine | None = None


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of a model; extents as text: ``3``, ``batch``, ``(w + 1) // 2``. An ``optional`` input has a default."""

    name: str
    dtype: str
    shape: tuple[str, ...]
    optional: bool = False


@dataclass(frozen=True)
class CheckReport:
    """Everything that keeps a model from being compiled: ``issues``, none when ``ok``."""

    ok: bool
    opsets: Mapping[str, int]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    operators: Mapping[str, int]
    issues: tuple[IngotError, ...]


@dataclass(frozen=True)
class Label:
    """Points at a version since ``moved`` (seconds since the epoch), when ``by`` asked for it; ``etag`` names just that."""

    label: str
    version: int
    etag: str
    moved: float
    by: str


@dataclass(frozen=True)
class PublishedModel:
    """A model with its newest version, and the versions that labels point at; in lists perhaps with the ``error`` that keeps it from having
    any."""

    name: str
    latest_version: int
    labels: Mapping[str, int]
    label_details: tuple[Label, ...] = ()
    error: IngotError | None = None

    def etag(self, label: str) -> str:
        """Of a label; ``0`` where there is none."""
        return next((own.etag for own in self.label_details if own.label == label), "0")


@dataclass(frozen=True)
class AuditEvent:
    """Who changed what when: ``action`` is publish, set-label, delete-label, delete-version, delete-model or collect.

    ``before`` and ``after`` are a version's number or digest, or a count; empty for nothing.
    """

    id: str
    time: float
    action: str
    by: str
    model: str
    version: int
    label: str
    before: str
    after: str


@dataclass(frozen=True)
class TargetArtifact:
    """One target of a version."""

    key: str
    triple: str
    cpu: str
    features: tuple[str, ...]
    abi_version: int
    min_glibc: str
    compiler_version: str


@dataclass(frozen=True)
class ModelVersion:
    """A published version; ``digest`` is that of its image index."""

    name: str
    version: int
    created: float
    model_sha256: str
    job_id: str
    digest: str
    targets: tuple[TargetArtifact, ...]


@dataclass(frozen=True)
class TargetInfo:
    """A target that the service knows by name."""

    name: str
    description: str
    triple: str
    cpu: str
    features: tuple[str, ...]
    vector_bits: int


@dataclass(frozen=True)
class OptionInfo:
    """An option of a compilation."""

    name: str
    type: str
    default: str
    description: str


@dataclass(frozen=True)
class Capabilities:
    """What the service can do; ``signing_key`` (PEM) is what its artifacts are signed with."""

    compiler_version: str
    abi_version: int
    limits: Mapping[str, int]
    options: tuple[OptionInfo, ...]
    operators: tuple[str, ...]
    min_opset: int
    max_opset: int
    signing_key: str
    signing_key_id: str


def to_json(value: Any) -> Any:
    """JSON values of a record; errors become objects, absent parts are left out."""
    if isinstance(value, IngotError):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        own = {item.name: getattr(value, item.name) for item in fields(value)}
        return {name: to_json(item) for name, item in own.items() if item is not None}
    if isinstance(value, Mapping):
        return {str(name): to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value
