"""Traces of single requests: when each of its steps began, one line of the log for every request that is traced.

Names of the settings: triton-inference-server, ``docs/protocol/extension_trace.md``. Those that would let a client name files of the
machine, or write what others sent to the log, are refused.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from runtime_service.batching.execution import BatchResult
from runtime_service.batching.messages import InferRequest
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import whole_number
from shared_ir.service_kit.telemetry.log import EXTRA

_LOG = logging.getLogger("ingot.trace")
_LEVEL, _RATE, _COUNT = "trace_level", "trace_rate", "trace_count"
_OFF, _TIMES = "OFF", "TIMESTAMPS"
_NO_FILES = "Traces are lines of the server's log."
_REFUSED: Mapping[str, str] = {
    "trace_file": _NO_FILES,
    "log_frequency": _NO_FILES,
    "trace_mode": _NO_FILES,
}


@dataclass(frozen=True, slots=True)
class TraceSetting:
    """What is traced: every ``rate``-th request, while fewer than ``count`` were; -1 for as many as come."""

    is_on: bool = False
    rate: int = 1000
    count: int = -1

    def document(self) -> dict[str, list[str]]:
        return {_LEVEL: [_TIMES if self.is_on else _OFF], _RATE: [str(self.rate)], _COUNT: [str(self.count)]}


@dataclass(slots=True)
class _Kept:
    setting: TraceSetting
    seen: int = 0
    traced: int = 0

    def takes_next(self) -> bool:
        setting = self.setting
        self.seen += 1
        if not setting.is_on or self.seen % setting.rate or self.traced == setting.count:
            return False
        self.traced += 1
        return True


class Traces:
    """Of all models together, and of those that have a setting of their own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._everywhere = _Kept(TraceSetting())
        self._by_model: dict[str, _Kept] = {}
        self._is_on = False

    def setting(self, model: str = "") -> TraceSetting:
        with self._lock:
            return self._by_model.get(model, self._everywhere).setting

    def change(self, model: str, changes: Mapping[str, Sequence[str]]) -> TraceSetting:
        """The new setting of ``model``, or of all. An empty value is the one that it began with: of a model, that of all models, which is
        all that no changes leave.

        Raises:
            IngotError: INVALID_ARGUMENT, naming the setting.
        """
        with self._lock:
            start = self._everywhere.setting if model else TraceSetting()
            kept = self._by_model.get(model) if model else self._everywhere
            setting = kept.setting if kept else start
            for name, values in changes.items():
                setting = _changed(setting, name, values, start)
            if not model:
                self._everywhere = _Kept(setting)
            elif changes:
                self._by_model[model] = _Kept(setting)
            else:
                setting = self._everywhere.setting
                self._by_model.pop(model, None)
            self._is_on = any(each.setting.is_on for each in (self._everywhere, *self._by_model.values()))
            return setting

    def note(self, request: InferRequest, version: int, result: BatchResult, started: float, ended: float) -> None:
        """A request that was served, from ``started`` to ``ended`` on ``time.monotonic``."""
        if not self._is_on:
            return
        with self._lock:
            if not self._by_model.get(request.model_name, self._everywhere).takes_next():
                return
        ran = result.execution
        steps = {
            "request_ns": ended - started,
            "queue_ns": result.queue_time,
            "compute_input_ns": ran.merge_time,
            "compute_infer_ns": ran.compute_time,
            "compute_output_ns": ran.split_time,
        }
        about: dict[str, object] = {name: int(1e9 * seconds) for name, seconds in steps.items()}
        about |= {"model": request.model_name, "version": version, "request": request.id[:100]}
        about |= {"rows": ran.rows, "requests": ran.requests, "batch": ran.reason.value}
        _LOG.info("a request was traced", extra={EXTRA: about})


def _changed(setting: TraceSetting, name: str, values: Sequence[str], start: TraceSetting) -> TraceSetting:
    if name in _REFUSED:
        raise _invalid(name, "no such setting here", ", ".join(values), _REFUSED[name])
    if name not in (_LEVEL, _RATE, _COUNT):
        raise _invalid(name, f"one of {_LEVEL}, {_RATE}, {_COUNT}", name)
    if not values:
        field = {_LEVEL: "is_on", _RATE: "rate", _COUNT: "count"}[name]
        return replace(setting, **{field: getattr(start, field)})
    if name == _LEVEL:
        if not set(values) <= {_OFF, _TIMES}:
            raise _invalid(
                name, f"{_OFF} or {_TIMES}", ", ".join(values), "What clients send is not written to the log."
            )
        return replace(setting, is_on=_TIMES in values)
    number = whole_number(values[0]) if len(values) == 1 else None
    if name == _COUNT and list(values) == ["-1"]:
        return replace(setting, count=-1)
    if number is None or (name == _RATE and number < 1):
        raise _invalid(name, "a whole number >= 1" if name == _RATE else "a whole number, or -1", ", ".join(values))
    return replace(setting, rate=number) if name == _RATE else replace(setting, count=number)


def _invalid(name: str, expected: str, received: str, remedy: str = "") -> IngotError:
    message = "a trace setting cannot be set so"
    return IngotError(
        ErrorCode.INVALID_ARGUMENT, message, field=name[:100], expected=expected, received=received[:100], remedy=remedy
    )
