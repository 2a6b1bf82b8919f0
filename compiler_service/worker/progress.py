"""Turns what a stage's process reports into job events."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.records import WHOLE_JOB, Event
from shared_ir.service_kit.telemetry.tracing import TRACING

_PRINTED = logging.getLogger("ingot.stage")
"""What the processes of stages print: they have no log of their own."""
INTERVAL_SECONDS = 0.1
"""Seconds between progress events of one process. The first and the last of a stage are sent at once, as long as the process does
not do so without end: each costs two writes to Redis, and what the process says may come of a foreign model."""
MOST_PROMPT = 1000
"""Events of one process that are sent at once."""


class ProgressEvents:
    """Called with each message of the process of ``stage``."""

    def __init__(self, store: JobStore, job: str, number: int, target: str, stage: str) -> None:
        self._store = store
        self._job = job
        self._number = number
        self._target = target
        self._of_job = stage
        self._stage = ""
        self._started = 0.0
        self._began = 0.0
        self._trace = TRACING.here()
        self._sent = 0.0
        self._prompt = MOST_PROMPT
        self._waiting: Mapping[str, Any] | None = None

    def __call__(self, message: Mapping[str, Any]) -> None:
        if "log" in message:
            _PRINTED.info("%s", message["log"])
            data = {"level": "INFO", "text": message["log"]}
            self._store.add_event(self._job, Event("log", self._target, data, stage=self._of_job))
            return
        now = time.monotonic()
        stage = str(message.get("stage", ""))
        is_first = stage != self._stage
        if is_first:
            if self._may_send(now):
                self.flush()
                self.end_stage()
            self._stage, self._started, self._began = stage, now, time.time()
        done, total = int(message.get("done", 0)), int(message.get("total", 0))
        elapsed = now - self._started
        eta = elapsed / done * (total - done) if done > 0 and total >= done and elapsed > 0 else -1.0
        text = str(message.get("message", ""))
        self._waiting = {"stage": stage, "done": done, "total": total, "eta_seconds": round(eta, 2), "message": text}
        if self._is_due(now) or ((is_first or (total and done >= total)) and self._may_send(now)):
            self.flush()

    def _is_due(self, now: float) -> bool:
        return now - self._sent >= INTERVAL_SECONDS

    def _may_send(self, now: float) -> bool:
        """Whether an event may be sent before it is due; then it is one less."""
        if self._is_due(now):
            return True
        self._prompt -= self._prompt > 0
        return self._prompt > 0

    def end_stage(self) -> None:
        """What the process was at is over: a span, where traces are on."""
        if self._stage:
            TRACING.past(f"compiler {self._stage}", self._trace, self._began, time.time())
            self._stage = ""

    def flush(self) -> None:
        """Send what was held back."""
        if self._waiting is None:
            return
        event, self._waiting, self._sent = self._waiting, None, time.monotonic()
        if self._number != WHOLE_JOB:
            self._store.update_target(self._job, self._number, done=event["done"], total=event["total"])
        self._store.add_event(self._job, Event("progress", self._target, event))
