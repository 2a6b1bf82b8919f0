"""What the reports of artifacts say, kept in memory: an artifact that is verified does not change."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.errors import IngotError

_MOST_KEPT = 4096

logger = logging.getLogger(__name__)


class Reports:
    """Reads reports of ``repository``; the most recent ones are remembered."""

    def __init__(self, repository: ArtifactRepository) -> None:
        self._repository = repository
        self._known = lru_cache(_MOST_KEPT)(self._read)

    def verification(self, key: str) -> Mapping[str, Any] | None:
        """What the verification of an artifact came to; None where that is not to be had, which keeps nobody from his job."""
        try:
            return self._known(key)
        except IngotError as error:
            logger.warning("the report of artifact %s is not shown: %s", key, error)
            return None

    def _read(self, key: str) -> Mapping[str, Any] | None:
        found = self._repository.report(key).get("verification")
        return found if isinstance(found, dict) else None
