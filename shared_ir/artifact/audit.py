"""Who changed what when, as signed events that are never changed themselves.

    audit/<day>/<moment>=<random>=<action>=<model>.json

Day and moment count down, so that stores, which list keys upwards, list the newest event first; action and model stand in the key, so
that those of one model are found without reading the others.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from shared_ir.artifact.published import SCHEMA
from shared_ir.artifact.signature import SigningKey, Trust
from shared_ir.artifact.signed import MAX_DOCUMENT_BYTES, corrupt, sign_document, verify_document
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.protocol import ObjectStore

MEDIA_EVENT = "application/vnd.ingot.event.v1+json"
_FOLDER = "audit"
_END_OF_TIME_MICROSECONDS = 10**16  # microseconds
_DAY_MICROSECONDS = 86_400_000_000
_LAST_DAY = _END_OF_TIME_MICROSECONDS // _DAY_MICROSECONDS
_BEHIND = "=~"
"""In order of key this comes after every event of one place."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Change:
    """Something that was done to the models of a store.

    Attributes:
        action: ``publish``, ``set-label``, ``delete-label``, ``delete-version``, ``delete-model`` or ``collect``.
        by: who asked for it.
        before, after: what it was and what it is: a version's number or digest, empty for nothing.
        id: its place in the log; time: in seconds since the epoch. Both are given when it is written.
    """

    action: str
    by: str
    model: str = ""
    version: int = 0
    label: str = ""
    before: str = ""
    after: str = ""
    id: str = ""
    time: float = 0.0


@dataclass(frozen=True)
class AuditLog:
    store: ObjectStore
    trust: Trust

    def write(self, change: Change, signer: SigningKey) -> Change:
        """Raises IngotError UNAVAILABLE."""
        while True:
            moment = time.time_ns() // 1000
            place = f"{_END_OF_TIME_MICROSECONDS - moment:016d}={secrets.token_hex(4)}={change.action}={change.model}"
            found = replace(change, id=f"{_LAST_DAY - moment // _DAY_MICROSECONDS:06d}/{place}", time=moment / 1e6)
            document = {"mediaType": MEDIA_EVENT, "annotations": {}, "schema": SCHEMA} | asdict(found)
            if self.store.put_if_absent(_path(found.id), sign_document(document, signer)):
                return found

    def newest(
        self, after: str = "", model: str = "", action: str = "", until: float = 0.0, prefix: str = ""
    ) -> Iterator[Change | str]:
        """Changes from the newest on, or from the one behind the :func:`place` ``after``; only those of a model or an action, where one
        is named, of models whose name starts with ``prefix``, and not later than ``until``, where that is not 0. Those that nothing
        proves are left out.

        An event that is passed over gives its id, so that whoever asks can stop and go on from there.
        """
        start = f"{_FOLDER}/{after}{_BEHIND}" if after else ""
        if until and not after:
            moment = int(until * 1e6)
            start = _path(
                f"{_LAST_DAY - moment // _DAY_MICROSECONDS:06d}/{_END_OF_TIME_MICROSECONDS - moment - 1:016d}"
            )
        for key in self.store.keys(_FOLDER, start):
            id = key.removeprefix(f"{_FOLDER}/").removesuffix(".json")
            parts = id.split("=")
            if len(parts) != 4 or not _is_chosen(parts[3], model, prefix) or (action and parts[2] != action):
                yield id
            else:
                yield self._read(id) or id

    def _read(self, id: str) -> Change | None:
        try:
            data = self.store.get(_path(id), MAX_DOCUMENT_BYTES)
            return _change(verify_document(data, self.trust, f"audit event {id}", MEDIA_EVENT), id)
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise
            _LOG.warning("audit event %s is not taken: %s", id, error)
            return None


def _change(document: dict[str, Any], id: str) -> Change:
    """Fields that a later version writes beside these are no concern of ours."""
    if document.get("id") != id:
        raise corrupt("an audit event lies under the name of another", expected=id, received=str(document.get("id")))
    texts = {name: str(document.get(name, "")) for name in ("action", "by", "model", "label", "before", "after")}
    version, moment = document.get("version", 0), document.get("time", 0.0)
    if type(version) is not int or not isinstance(moment, int | float):
        raise corrupt(f"audit event {id} is malformed")
    return Change(**texts, version=version, id=id, time=float(moment))


def place(id: str) -> str:
    """Where an event stands in the log, without what it is about: who may not see the event may be told."""
    return "=".join(id.split("=")[:2])


def _is_chosen(name: str, model: str, prefix: str) -> bool:
    return name.startswith(prefix) and model in ("", name)


def _path(id: str) -> str:
    return f"{_FOLDER}/{id}.json"
