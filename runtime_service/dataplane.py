"""The serving logic, free of any protocol: what a request goes through, top to bottom.

``api/`` decodes the wire into these requests and encodes the answers; nothing else happens there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from runtime_service.arrays import Array
from runtime_service.batching.execution import BatchOptions, BatchResult
from runtime_service.batching.messages import InferRequest, InferResponse, OutputRequest, TensorData
from runtime_service.batching.quick import Quick
from runtime_service.batching.sequences import step_of
from runtime_service.batching.statistics import Snapshot
from runtime_service.batching.taking import taking
from runtime_service.batching.validation import check_inputs, check_outputs, split_key
from runtime_service.extensions.classification import classified, require_classes
from runtime_service.extensions.shared_memory import SharedMemory
from runtime_service.extensions.traces import Traces, TraceSetting
from runtime_service.lifecycle import Lifecycle, ServerPhase
from runtime_service.metrics import Metrics
from runtime_service.models.follower import Follower
from runtime_service.models.registry import ModelRegistry, VersionStatus
from runtime_service.models.served import Interface, ServedModel
from runtime_service.policies import SequenceOptions
from runtime_service.readiness import ReadyRule
from runtime_service.reports import InferenceReports, Report
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.program import TensorSpec
from shared_ir.service_kit.status import visible
from shared_ir.service_kit.telemetry.levels import LogLevels, Value
from shared_ir.service_kit.waiting import WouldWait

_LOG, _AUDIT = logging.getLogger(__name__), logging.getLogger("ingot.audit")
EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "parameters",
    "sequence",
    "statistics",
)
"""What ``GET v2`` advertises of every server; clients branch on it, so only what is implemented."""


@dataclass(frozen=True, slots=True)
class ServerMetadata:
    name: str
    version: str
    extensions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """``versions`` are those that answer now."""

    name: str
    versions: tuple[int, ...]
    signature: Interface
    platform: str = "ingot"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """How one version is served."""

    name: str
    version: int
    policy: str
    signature: Interface
    options: BatchOptions
    instances: int
    sequences: SequenceOptions | None = None
    platform: str = "ingot"


@dataclass(frozen=True, slots=True)
class ModelStatistics:
    name: str
    version: int
    snapshot: Snapshot


class DataPlane:
    """All methods may be called from any thread and raise IngotError."""

    def __init__(
        self,
        registry: ModelRegistry,
        follower: Follower,
        lifecycle: Lifecycle,
        metrics: Metrics,
        *,
        version: str,
        explicit_control: bool = False,
        has_admin: bool = False,
        has_access_log: bool = False,
        shared_memory: SharedMemory | None = None,
        ready_rule: ReadyRule | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``has_admin``: whether there is a place where settings of log and traces may be changed; ``has_access_log``: whether every
        inference has a line in the log.
        """
        self.shared_memory = shared_memory or SharedMemory()
        self._ready_rule = ready_rule or ReadyRule()
        self.quick = Quick()
        self._traces = Traces()
        self._reports = InferenceReports(has_access_log)
        self._log_levels = LogLevels()
        self._has_admin = has_admin
        self._registry = registry
        self._follower = follower
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._version = version
        self._explicit_control = explicit_control
        self._clock = clock
        metrics.in_flight, metrics.ready = lambda: lifecycle.in_flight, self.ready

    def infer(self, request: InferRequest) -> InferResponse:
        """One inference, blocking.

        Raises:
            IngotError: NOT_FOUND (model, version), UNAVAILABLE (loading, draining), INVALID_ARGUMENT (inputs, outputs),
                RESOURCE_EXHAUSTED (queue full), DEADLINE_EXCEEDED, CANCELLED; INTERNAL is a bug of ours.
            WouldWait: it does not want to wait, and would have to.
        """
        started, name, version = self._clock(), request.model_name, request.model_version
        try:
            with (
                self._lifecycle.request(request.peer),
                self._registry.acquire(name, version, split_key(request), request.waits).held() as served,
            ):
                return self._infer(request, served, started)
        except _Reported as reported:
            raise reported.error from reported.__cause__
        except IngotError as error:
            self.refused(request, error, started)
            raise

    def check_admission(self, model: str, version: str | None, peer: str) -> None:
        """Whether an inference would be let in now, of whatever version where that is None; for what is large, before it is read.

        Raises as :meth:`infer`, and counts nothing.
        """
        self._lifecycle.check(peer)
        if version is None:
            return
        with self._registry.acquire(model, version).held():
            pass

    @property
    def asks_split_key(self) -> bool:
        """Whether it matters by which key a request takes part in a split."""
        return self._registry.splits

    @property
    def asks_origin(self) -> bool:
        """Whether it matters how a request came."""
        return self._reports.is_on

    def refused(self, request: InferRequest, error: IngotError, started: float | None = None) -> None:
        """``request``, or as much of it as was read, is answered with ``error`` before it has reached a version."""
        self._metrics.refused(request.model_name, error.code)
        if self._reports.is_on:
            self._report(request, 0, self._clock() if started is None else started, code=error.code)

    def _report(
        self,
        request: InferRequest,
        version: int,
        started: float,
        result: BatchResult | None = None,
        code: str = "",
    ) -> None:
        name, ended = request.model_name, self._clock()
        self._reports.tell(
            Report(name, version, request.id, request.peer, request.origin, started, ended, result, code)
        )

    def _infer(self, request: InferRequest, served: ServedModel, started: float) -> InferResponse:
        try:
            step, specs = step_of(request), served.signature
            sequences = served.sequences_of(step)
            inputs = check_inputs(self._present(request), specs.inputs, () if sequences is None else sequences.inputs)
            given = specs.outputs if sequences is None or request.outputs else sequences.gives(specs.outputs)
            wanted = check_outputs(request.outputs, given)
            for asked, spec in wanted:
                self._require_deliverable(asked, spec)
            result = served.run(inputs, request, step)
            outputs = self._delivered(wanted, result.outputs, request)
        except WouldWait:
            raise
        except Exception as error:
            typed = self._typed(error, served, request.id)
            served.observer.failed(typed.code, self._clock() - started)
            if self._reports.is_on:
                self._report(request, served.version, started, code=typed.code)
            raise _Reported(typed) from error
        ended = self._clock()
        if request.size and served.is_steady:
            ran = result.execution
            self.quick.note(request.model_name, request.size, ran.cpu_time, ran.requests)
        served.observer.succeeded(result, ended - started)
        self._traces.note(request, served.version, result, started, ended)
        if self._reports.is_on:
            self._report(request, served.version, started, result)
        return InferResponse(served.name, str(served.version), request.id, outputs)

    def _present(self, request: InferRequest) -> Sequence[TensorData]:
        """The inputs of ``request``, copied from where they lie."""
        here = [each for each in request.inputs if isinstance(each, TensorData)]
        return here if len(here) == len(request.inputs) else self.shared_memory.filled(request.inputs, request)

    def _require_deliverable(self, asked: OutputRequest, spec: TensorSpec) -> None:
        """Raises IngotError INVALID_ARGUMENT: an output that cannot be given so, before it is computed."""
        if asked.place is not None:
            self.shared_memory.require(asked.place, spec.name)
        if asked.classes:
            require_classes(spec)

    def _delivered(
        self,
        wanted: Sequence[tuple[OutputRequest, TensorSpec]],
        outputs: Mapping[str, Array],
        request: InferRequest,
    ) -> tuple[TensorData, ...]:
        """Outputs as they are wanted; those that were written to shared memory say where."""
        found = []
        for asked, spec in wanted:
            output = TensorData(spec.name, spec.dtype, outputs[spec.name])
            if asked.classes:
                strings = classified(output.array, spec, asked.classes, taking(request))
                output = TensorData(spec.name, DType.STRING, strings)
            if asked.place is not None:
                output = self.shared_memory.write(output, asked.place, taking(request))
            found.append(output)
        return tuple(found)

    def live(self) -> bool:
        """The process answers; it stays live while models load and while it drains."""
        return True

    def ready(self) -> bool:
        """Whether the models are as the rule wants them, and the server is not on its way out."""
        is_serving = self._lifecycle.phase is ServerPhase.SERVING
        return is_serving and self._ready_rule.holds(self._registry.standings(), self._follower.has_tried)

    def models_ready(self) -> dict[str, bool]:
        """Of every model, whether a request that names no version would be served now."""
        is_serving = self._lifecycle.phase is ServerPhase.SERVING
        return {name: is_serving and ready for name, ready in self._registry.models_ready().items()}

    def model_ready(self, name: str, version: str = "") -> bool:
        """Whether a request for this version would be served now.

        Raises:
            IngotError: NOT_FOUND.
        """
        try:
            with self._registry.acquire(name, version).held():
                return self._lifecycle.phase is ServerPhase.SERVING
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                return False
            raise

    def server_metadata(self) -> ServerMetadata:
        found = list(EXTENSIONS)
        found += ["system_shared_memory"] if self.shared_memory.is_on else []
        found += ["model_repository(unload_dependents)"] if self._explicit_control else []
        found += ["logging", "trace"] if self._has_admin else []
        return ServerMetadata("ingot", self._version, tuple(sorted(found)))

    def model_metadata(self, name: str, version: str = "") -> ModelMetadata:
        with self._registry.acquire(name, version).held() as served:
            return ModelMetadata(name, self._registry.ready_versions(name), served.signature)

    def model_config(self, name: str, version: str = "") -> ModelConfig:
        with self._registry.acquire(name, version).held() as served:
            settings = self._follower.settings(name)
            policy = str(settings.policy) if settings else ""
            kept = served.sequences.options if served.sequences is not None else None
            return ModelConfig(name, served.version, policy, served.signature, served.options, served.instances, kept)

    def model_statistics(self, name: str = "", version: str = "") -> tuple[ModelStatistics, ...]:
        """Of one version; of all loaded versions of a model without ``version``; of all models without ``name``."""
        names = (name,) if name else self._registry.names()
        found = []
        for model in names:
            versions = (version,) if version else tuple(map(str, self._registry.ready_versions(model)))
            for number in versions:
                with self._registry.acquire(model, number).held() as served:
                    found.append(ModelStatistics(served.name, served.version, served.observer.snapshot()))
        return tuple(found)

    def repository_index(self, ready_only: bool = False) -> tuple[VersionStatus, ...]:
        """State of every known version, with the reason of failures."""
        statuses = self._registry.statuses()
        return tuple(s for s in statuses if s.state == "READY") if ready_only else statuses

    def load(self, name: str, policy: str = "") -> None:
        """Load a model of the store, or look for its newest versions now; returns when it is ready.

        Raises:
            IngotError: INVALID_ARGUMENT unless the server runs with ``model_control=explicit``; NOT_FOUND; what
                loading raises. Nothing has changed then.
        """
        self._check_control(name)
        self._follower.load(name, policy)

    def unload(self, name: str) -> None:
        """Unload a model, until it is loaded by request; requests in flight are finished, new ones get NOT_FOUND."""
        self._check_control(name)
        self._follower.unload(name)

    def log_settings(self, changes: Mapping[str, object]) -> dict[str, Value]:
        """Which lines of the log are written, after ``changes``; raises IngotError INVALID_ARGUMENT."""
        if changes:
            _AUDIT.info("log settings are changed: %s", visible(str(dict(changes)), 300))
        return self._log_levels.change(changes) if changes else self._log_levels.settings()

    def trace_setting(self, model: str, changes: Mapping[str, Sequence[str]] | None) -> TraceSetting:
        """What is traced of a model, or of all, after ``changes``; no changes at all take the setting of a model back.

        Raises:
            IngotError: INVALID_ARGUMENT, NOT_FOUND.
        """
        if model:
            self._registry.ready_versions(model)
        if changes is None:
            return self._traces.setting(model)
        _AUDIT.info("trace settings are changed: %s", visible(f"{model} {dict(changes)}".strip(), 300))
        return self._traces.change(model, changes)

    def close(self) -> None:
        """Forget what clients have set and registered."""
        self.shared_memory.close()
        self._log_levels.close()

    def _check_control(self, name: str) -> None:
        if not self._explicit_control:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "this server does not let clients load or unload models",
                field=name[:200],
                remedy="Start it with INGOT_RUNTIME_MODEL_CONTROL=explicit.",
            )

    def _typed(self, error: Exception, served: ServedModel, request_id: str) -> IngotError:
        if isinstance(error, IngotError):
            return error
        _LOG.error(
            "inference on %s version %d failed, request %r",
            served.name,
            served.version,
            request_id[:100],
            exc_info=error,
        )
        return IngotError(
            ErrorCode.INTERNAL,
            f"the model failed with {type(error).__name__}; the log of the server has the details",
            remedy="Report it with the id of the request.",
        )


def no_control() -> IngotError:
    """What is told to who would load or unload a model where that is not done."""
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "models are not loaded or unloaded here",
        field="repository",
        remedy="Ask at INGOT_RUNTIME_CONTROL_ADDRESS of the server.",
    )


def no_admin() -> IngotError:
    """What is told to who would see or change settings of log and traces where that is not done."""
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "settings of log and traces are not changed here",
        field="settings",
        remedy="Ask at INGOT_RUNTIME_CONTROL_ADDRESS of the server, or set INGOT_RUNTIME_TOKEN.",
    )


class _Reported(Exception):
    """An error that was counted for its model already."""

    def __init__(self, error: IngotError) -> None:
        super().__init__()
        self.error = error
