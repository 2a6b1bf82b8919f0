"""What the reports of artifacts say, kept in memory: an artifact that is verified does not change."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from compiler_service.api.converters import verification_to_pb
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.errors import IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb

_MOST_KEPT = 4096

logger = logging.getLogger(__name__)


class Reports:
    """Reads reports of ``repository``; the most recent ones are remembered."""

    def __init__(self, repository: ArtifactRepository) -> None:
        self._repository = repository
        self._known = lru_cache(_MOST_KEPT)(self._read)

    def verified(self, job: pb.Job) -> pb.Job:
        """``job`` with what the comparison of each finished target came to."""
        for target in job.targets:
            found = self._verification(target.artifact_key) if target.state == pb.JOB_STATE_SUCCEEDED else None
            if found is not None:
                target.verification.CopyFrom(verification_to_pb(found))
        return job

    def _verification(self, key: str) -> Mapping[str, Any] | None:
        """What the verification of an artifact came to; None where that is not to be had, which keeps nobody from his job."""
        try:
            return self._known(key)
        except IngotError as error:
            logger.warning("the report of artifact %s is not shown: %s", key, error)
            return None

    def _read(self, key: str) -> Mapping[str, Any] | None:
        found = self._repository.report(key).get("verification")
        return found if isinstance(found, dict) else None
