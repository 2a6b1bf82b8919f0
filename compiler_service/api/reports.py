"""What the reports of artifacts say, beside jobs. A store that is slow or away delays no answer about a job."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from compiler_service.api.converters import verification_to_pb
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb

PATIENCE_SECONDS = 0.5
"""How long an answer waits for a report that is asked for the first time."""
PAUSE_SECONDS = 5.0
"""For which a store that was away is not asked again."""
_MOST_KEPT = 4096
_MOST_READING = 4

MOST_BYTES = 3 << 20
"""Of a job with what its comparisons came to: clients take messages of 4 MiB."""
MOST_WORST = 10

logger = logging.getLogger(__name__)


@dataclass
class _Report:
    """One that is read, or was."""

    asked: float
    is_there: threading.Event = field(default_factory=threading.Event)
    verification: Mapping[str, Any] | None = None


class VerificationReports:
    """Reads reports of ``repository``, each once: an artifact that is verified does not change."""

    def __init__(self, repository: ArtifactRepository) -> None:
        self._repository = repository
        self._lock = threading.Lock()
        self._known: dict[str, _Report] = {}
        self._reading = 0
        self._not_before = 0.0

    def verified(self, job: pb.Job) -> pb.Job:
        """``job`` with what the comparison of each finished target came to, as far as that is to be had at once."""
        for target in job.targets:
            found = self._verification(target.artifact_key) if target.state == pb.JOB_STATE_SUCCEEDED else None
            if found is None:
                continue
            try:
                shown = verification_to_pb(found)
                _cut(shown, MOST_BYTES - job.ByteSize())
                target.verification.CopyFrom(shown)
            except (ValueError, TypeError, LookupError, OverflowError) as error:
                logger.warning("the report of artifact %s makes no sense: %s", target.artifact_key, error)
        return job

    def _verification(self, key: str) -> Mapping[str, Any] | None:
        report = self._ask(key)
        if report is None:
            return None
        report.is_there.wait(max(0.0, report.asked + PATIENCE_SECONDS - time.monotonic()))
        return report.verification

    def _ask(self, key: str) -> _Report | None:
        """The report of a key, perhaps still being read; None where it is not the time to."""
        with self._lock:
            now = time.monotonic()
            known = self._known.get(key)
            if known is not None or self._reading >= _MOST_READING or now < self._not_before:
                return known
            while len(self._known) >= _MOST_KEPT:
                del self._known[next(iter(self._known))]
            report = self._known[key] = _Report(now)
            self._reading += 1
        threading.Thread(target=self._read, args=(key, report), name="report", daemon=True).start()
        return report

    def _read(self, key: str, report: _Report) -> None:
        is_away = True
        try:
            found = self._repository.report(key).get("verification")
            report.verification = found if isinstance(found, dict) else None
            is_away = False
        except IngotError as error:
            is_away = error.code is ErrorCode.UNAVAILABLE
            logger.info("the report of artifact %s is not shown: %s", key, error)
        finally:
            with self._lock:
                self._reading -= 1
                if is_away:
                    self._known.pop(key, None)
                    self._not_before = time.monotonic() + PAUSE_SECONDS
            report.is_there.set()


def _cut(shown: pb.Verification, room: int) -> None:
    """Keep of very many outputs those with the largest relative errors, in the order of the model; of names without end none."""
    if shown.ByteSize() <= room:
        return
    by_error = sorted(range(len(shown.outputs)), key=lambda at: -shown.outputs[at].max_rel_error)
    kept = [shown.outputs[at] for at in sorted(by_error[:MOST_WORST])]
    del shown.outputs[:]
    shown.outputs.extend(kept)
    if shown.ByteSize() > room:
        shown.ClearField("outputs")
        shown.ClearField("sizes")
