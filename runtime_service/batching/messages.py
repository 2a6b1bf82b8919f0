"""Requests and responses of the data plane, free of any protocol."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runtime_service.arrays import Array
from shared_ir.dtype import DType

Parameter = bool | int | float | str
"""A value of the ``parameters`` maps of the Open Inference Protocol."""
Take = Callable[[int], None]
"""Raises IngotError RESOURCE_EXHAUSTED where there is no room for so many bytes more; DEADLINE_EXCEEDED, CANCELLED."""


@dataclass(frozen=True, slots=True)
class RegionSlice:
    """Bytes of a registered region of shared memory, counted from its start."""

    region: str
    byte_size: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class TensorData:
    """A named array. ``dtype`` is kept beside it because numpy has no names for bfloat16 and its kin. What was written to ``place`` is not
    sent."""

    name: str
    dtype: DType
    array: Array
    place: RegionSlice | None = None


@dataclass(frozen=True, slots=True)
class SharedTensor:
    """An input that lies in shared memory, as the request describes it."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    place: RegionSlice


@dataclass(frozen=True, slots=True)
class OutputRequest:
    """How one output is wanted: as it is, its ``classes`` highest values and where they are, or in shared memory."""

    name: str
    classes: int = 0
    place: RegionSlice | None = None


class Cancellation:
    """Tells the work that was started for a caller that the caller has gone."""

    def __init__(self, has_gone: Callable[[], bool] | None = None) -> None:
        """``has_gone`` is asked where nobody calls :meth:`cancel`."""
        self._has_gone = has_gone
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        return self._cancelled or (self._has_gone is not None and self._has_gone())

    def cancel(self) -> None:
        """Run the callbacks, once; later callbacks run as they are added."""
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
            self._cancelled = True
        for callback in callbacks:
            callback()

    def add_callback(self, callback: Callable[[], object]) -> None:
        with self._lock:
            if not self._cancelled:
                self._callbacks.append(callback)
                return
        callback()

    def remove_callback(self, callback: Callable[[], object]) -> None:
        """Nobody needs to be told any more. NOTE: what is called may hold this, and neither is to wait for a collection of garbage."""
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)


def uncounted(count: int) -> None:
    """Where nothing is counted."""


@dataclass(frozen=True, slots=True)
class Origin:
    """How a request came, as far as somebody asks.

    Attributes:
        protocol: ``http`` or ``grpc``.
        request_id: of its head, which proxies set.
        traceparent: of its head: the trace that it belongs to, as W3C Trace Context writes it.
    """

    protocol: str = ""
    request_id: str = ""
    traceparent: str = ""


SPLIT_KEY = "ingot-split-key"
"""Head of a request with the key that keeps requests at one version, for those who cannot set the parameter ``split_key``."""
REQUEST_ID = "x-request-id"
"""In the head of a call, as proxies write it."""
NOWHERE = Origin()
"""Of requests that nobody asked about."""


@dataclass(frozen=True, slots=True)
class InferRequest:
    """One inference.

    Attributes:
        model_name: which model.
        inputs: one tensor per input of the model, in any order.
        model_version: a number, a label (``stable``), or empty for the default version.
        id: chosen by the client and echoed.
        outputs: the wanted outputs; empty for all of them.
        parameters: ``timeout`` in microseconds is understood; unknown ones are ignored.
        deadline: on the clock of ``time.monotonic``, in seconds; the request is not computed after it.
        cancellation: fires when the client went away.
        peer: who sent it, as far as shares go.
        split_key: of its head: requests of one key go to one version, where several share a model by weight.
        hold: counts bytes that are made of the request until it is over, before they are made.
        grow: counts bytes of its answer, likewise.
        size: bytes of the message that it came in, where it may be tried without waiting.
        waits: whether it may wait for its turn; if not, it ends with WouldWait where it had to.
        origin: how it came.
    """

    model_name: str
    inputs: tuple[TensorData | SharedTensor, ...]
    model_version: str = ""
    id: str = ""
    outputs: tuple[OutputRequest, ...] = ()
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    deadline: float | None = None
    cancellation: Cancellation | None = None
    peer: str = ""
    split_key: str = ""
    hold: Take = uncounted
    grow: Take = uncounted
    size: int = 0
    waits: bool = True
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class InferResponse:
    """The answer to one :class:`InferRequest`; ``model_version`` is the number that was computed with."""

    model_name: str
    model_version: str
    id: str
    outputs: tuple[TensorData, ...]
