"""Requests and responses of the data plane, free of any protocol."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runtime_service.arrays import Array
from shared_ir.dtype import DType

Parameter = bool | int | float | str
"""A value of the ``parameters`` maps of the Open Inference Protocol."""


@dataclass(frozen=True, slots=True)
class TensorData:
    """A named array. ``dtype`` is kept beside it because numpy has no names for bfloat16 and its kin."""

    name: str
    dtype: DType
    array: Array


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


@dataclass(frozen=True, slots=True)
class InferRequest:
    """One inference.

    Attributes:
        model_name: which model.
        inputs: one array per input of the model, in any order.
        model_version: a number, a label (``stable``), or empty for the default version.
        id: chosen by the client and echoed.
        outputs: names of the wanted outputs; empty for all of them.
        parameters: ``timeout`` in microseconds is understood; unknown ones are ignored.
        deadline: on the clock of ``time.monotonic``, in seconds; the request is not computed after it.
        cancellation: fires when the client went away.
        peer: who sent it, as far as shares go.
    """

    model_name: str
    inputs: tuple[TensorData, ...]
    model_version: str = ""
    id: str = ""
    outputs: tuple[str, ...] = ()
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    deadline: float | None = None
    cancellation: Cancellation | None = None
    peer: str = ""


@dataclass(frozen=True, slots=True)
class InferResponse:
    """The answer to one :class:`InferRequest`; ``model_version`` is the number that was computed with."""

    model_name: str
    model_version: str
    id: str
    outputs: tuple[TensorData, ...]
