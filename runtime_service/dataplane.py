"""The serving logic, free of any protocol: what a request goes through, top to bottom.

``api/`` decodes the wire into these requests and encodes the answers; nothing else happens there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from runtime_service.batching.execution import BatchOptions
from runtime_service.batching.messages import InferRequest, InferResponse, TensorData
from runtime_service.batching.sequences import SequenceOptions, step_of
from runtime_service.batching.statistics import Snapshot
from runtime_service.batching.validation import check_inputs, check_outputs
from runtime_service.lifecycle import Lifecycle, Phase
from runtime_service.metrics import Metrics
from runtime_service.models.follower import Follower
from runtime_service.models.registry import ModelRegistry, VersionStatus
from runtime_service.models.served import Interface, ServedModel
from runtime_service.policies import VersionPolicy
from runtime_service.settings import ModelSettings
from shared_ir.errors import ErrorCode, IngotError

_LOG = logging.getLogger(__name__)
EXTENSIONS = (
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "sequence",
    "statistics",
)
"""What ``GET v2`` advertises; clients branch on it, so only what is implemented."""


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._follower = follower
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._version = version
        self._explicit_control = explicit_control
        self._clock = clock
        metrics.in_flight.set_function(lambda: lifecycle.in_flight)
        metrics.ready.set_function(self.ready)

    def infer(self, request: InferRequest) -> InferResponse:
        """One inference, blocking.

        Raises:
            IngotError: NOT_FOUND (model, version), UNAVAILABLE (loading, draining), INVALID_ARGUMENT (inputs, outputs),
                RESOURCE_EXHAUSTED (queue full), DEADLINE_EXCEEDED, CANCELLED; INTERNAL is a bug of ours.
        """
        started = self._clock()
        try:
            with (
                self._lifecycle.request(request.peer),
                self._registry.acquire(request.model_name, request.model_version).held() as served,
            ):
                return self._infer(request, served, started)
        except _Reported as reported:
            raise reported.error from reported.__cause__
        except IngotError as error:
            self._metrics.request_failure.labels("", "", error.code.value).inc()
            raise

    def _infer(self, request: InferRequest, served: ServedModel, started: float) -> InferResponse:
        try:
            step, specs = step_of(request), served.signature
            sequences = served.sequences_of(step)
            inputs = check_inputs(request, specs.inputs, () if sequences is None else sequences.inputs)
            wanted = check_outputs(request.outputs, specs.outputs)
            if sequences is not None and not request.outputs:
                wanted = sequences.gives(wanted)
            result = served.run(inputs, request, step)
            outputs = tuple(TensorData(spec.name, spec.dtype, result.outputs[spec.name]) for spec in wanted)
        except Exception as error:
            typed = self._typed(error, served, request.id)
            served.observer.failed(typed.code, self._clock() - started)
            raise _Reported(typed) from error
        served.observer.succeeded(result, self._clock() - started)
        return InferResponse(served.name, str(served.version), request.id, outputs)

    def live(self) -> bool:
        """The process answers; it stays live while models load and while it drains."""
        return True

    def ready(self) -> bool:
        """Every configured version was loaded and is warm, and the server is not on its way out."""
        return self._lifecycle.phase is Phase.SERVING and self._registry.all_ready()

    def model_ready(self, name: str, version: str = "") -> bool:
        """Whether a request for this version would be served now.

        Raises:
            IngotError: NOT_FOUND.
        """
        try:
            with self._registry.acquire(name, version).held():
                return self._lifecycle.phase is Phase.SERVING
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                return False
            raise

    def server_metadata(self) -> ServerMetadata:
        return ServerMetadata("ingot", self._version, EXTENSIONS)

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
                loading raises.
        """
        self._check_control(name)
        known = self._follower.settings(name)
        if known is None or policy:
            known = ModelSettings(name, VersionPolicy.parse(policy or "stable"))
        self._follower.follow(known)

    def unload(self, name: str) -> None:
        """Unload a model; requests in flight are finished, new ones get NOT_FOUND."""
        self._check_control(name)
        self._follower.unfollow(name)

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


class _Reported(Exception):
    """An error that was counted for its model already."""

    def __init__(self, error: IngotError) -> None:
        super().__init__()
        self.error = error
