"""One loaded version of a model, ready to compute."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from runtime_service.arrays import Array
from runtime_service.batching.batcher import Batcher
from runtime_service.batching.execution import BatchOptions, BatchResult
from runtime_service.batching.messages import InferRequest
from runtime_service.batching.sequences import Sequences, Step
from runtime_service.batching.statistics import ModelObserver
from runtime_service.batching.validation import priority_of
from runtime_service.executors.stop import Stop
from runtime_service.models.thread_budget import ThreadBudget
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.program import TensorSpec
from shared_ir.service_kit.waiting import WouldWait


class LoadedModel(Protocol):
    """What the loader makes of an artifact: runs without the GIL, from any thread."""

    @property
    def inputs(self) -> Sequence[TensorSpec]: ...

    @property
    def outputs(self) -> Sequence[TensorSpec]: ...

    @property
    def is_steady(self) -> bool:
        """Whether what it does depends on the sizes of its inputs alone, and not on what is in them."""

    @property
    def batch(self) -> str:
        """The symbol that counts rows which the compiler has proven not to see each other; empty without a proof."""

    @property
    def weights_bytes(self) -> int:
        """In memory, shared by the instances of a version."""

    def run(self, inputs: Mapping[str, Array], /, stop: Stop | None = None) -> dict[str, Array]: ...

    def rest(self) -> bool:
        """End its threads until it runs again; False where it runs just now."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Interface:
    """Inputs and outputs of a model. ``batch`` is the symbol that requests are merged along, if they are."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batch: str | None = None


class ServedModel:
    """A version with its instances, queue and statistics. It is closed when nobody holds it any more."""

    def __init__(
        self,
        name: str,
        version: int,
        signature: Interface,
        instances: Sequence[LoadedModel],
        options: BatchOptions,
        observer: ModelObserver,
        sequences: Sequences | None = None,
        budget: ThreadBudget | None = None,
    ) -> None:
        """``instances`` have their threads, of which ``budget`` says how long they keep them."""
        self.name = name
        self.version = version
        self.signature = signature
        self.options = options
        self.observer = observer
        self.sequences = sequences
        self._instances = tuple(instances)
        self._batcher = Batcher(instances, options, observer)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._holders = 0
        self._is_closed = False
        self._budget = budget or ThreadBudget()
        self._budget.use(self)
        observer.watch_queue(lambda: self._batcher.oldest_wait)

    @property
    def is_steady(self) -> bool:
        return all(instance.is_steady for instance in self._instances)

    @property
    def instances(self) -> int:
        return len(self._instances)

    @property
    def threads(self) -> int:
        """That it keeps between two runs: those of its instances beyond the one that asks."""
        return len(self._instances) * max(0, self.options.resources.threads - 1)

    def rest(self) -> bool:
        """As :meth:`Member.rest`; what is being closed has nothing left to end."""
        if self._is_closed:
            return True
        rested = [instance.rest() for instance in self._instances]
        return all(rested)

    def sequences_of(self, step: Step | None) -> Sequences | None:
        """What keeps the state of a request.

        Raises:
            IngotError: INVALID_ARGUMENT, the model keeps none.
        """
        if step is None:
            return None
        if self.sequences is None:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"model {self.name!r} keeps no state between requests",
                field="sequence_id",
                expected="none",
                remedy="Leave the parameters of sequences out, or name the model's state in the models file.",
            )
        return self.sequences

    def run(self, inputs: Mapping[str, Array], request: InferRequest, step: Step | None = None) -> BatchResult:
        """See :meth:`Batcher.run`, and :meth:`Sequences.run` for a ``step``, which waits for the one before; what has to begin threads
        waits for them."""
        priority = priority_of(request)
        if not (request.waits or self._budget.is_awake(self)):
            raise WouldWait
        self._budget.use(self)

        def compute(arrays: Mapping[str, Array]) -> BatchResult:
            return self._batcher.run(arrays, request.deadline, request.cancellation, priority, request.waits)

        sequences = self.sequences_of(step)
        if step is None or sequences is None:
            return compute(inputs)
        if not request.waits:
            raise WouldWait
        return sequences.run(step, inputs, request.deadline, compute, request.cancellation)

    def acquire(self) -> None:
        """Keep the version open until :meth:`release`."""
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if not self._holders:
                self._changed.notify_all()

    def held(self) -> _Held:
        """For a version that was acquired: release it at the end."""
        return _Held(self)

    def close(self) -> None:
        """Wait for the requests in flight, then free everything. Call it once, after the last :meth:`acquire`."""
        with self._lock:
            self._changed.wait_for(lambda: self._holders == 0)
        self._batcher.close()
        self._is_closed = True
        self._budget.leave(self)
        for instance in self._instances:
            instance.close()
        self.observer.close()


class _Held:
    """NOTE: every request goes through it; a generator would take thrice as long."""

    __slots__ = ("_served",)

    def __init__(self, served: ServedModel) -> None:
        self._served = served

    def __enter__(self) -> ServedModel:
        return self._served

    def __exit__(self, *_: object) -> None:
        self._served.release()
