"""Writes to the registry of models that the API asks for and a worker does: the API has no key that they could be signed with.

    writes       list    orders, each signed by the API (ingot:writes)
    write:<id>   list    the answer to one, for a minute

An order that nobody takes in time is taken back. One that is taken twice, by whichever worker, or late, is refused: Redis may be written by
others. So that one is taken is noted in the object store (``writes/<id>.json``), and forgotten when the order would be late anyway.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from shared_ir.artifact.memory import Memory
from shared_ir.artifact.published import check_label, check_model_name, check_new_label
from shared_ir.artifact.signature import Signature, SigningKey, Trust
from shared_ir.digest import canonical_json
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.foreign_json import foreign_json
from shared_ir.registry.registry import ArtifactRegistry
from shared_ir.storage.protocol import ObjectStore

_LOG = logging.getLogger(__name__)
_WRITES, _SIGNER = "ingot:writes", "ingot:signer"
_DOMAIN = b"ingot order to write, version 1\n"
_WAIT_SECONDS = 15.0
_LONG_SECONDS = 600.0
"""For a model with all of its versions: as long as clients wait."""
_MOST_AT_ONCE = 8
"""Calls that wait for an answer; others have threads to themselves."""
_FRESH_SECONDS = 120.0
"""For so long an order is one, clocks that differ included."""
_NOTED_SECONDS = 4 * _FRESH_SECONDS
_FORGOTTEN_AT_ONCE = 20
_TAKEN = "writes"
_LOOK_SECONDS = 1
_LEAST_SECONDS = 0.01
"""Redis takes less for none at all, and waits for good."""
_ANSWER_SECONDS = 60

Write = Callable[..., Any]
"""Does what an order asks for, by arguments that are JSON values, and returns one; raises IngotError."""


@dataclass(frozen=True)
class OrderedWrites:
    """Has things written by whatever worker takes the order."""

    redis: Any
    signer: SigningKey
    waiting: threading.BoundedSemaphore
    seconds: float = _WAIT_SECONDS

    @classmethod
    def over(cls, redis: Redis, signer: SigningKey, seconds: float = _WAIT_SECONDS) -> OrderedWrites:
        return cls(redis, signer, threading.BoundedSemaphore(_MOST_AT_ONCE), seconds)

    def order(self, write: str, seconds: float | None = None, **arguments: Any) -> Any:
        """What the write returns, when it has been done; one that is long gets more ``seconds`` once a worker has taken it.

        Raises:
            IngotError: what the write raised; UNAVAILABLE, no worker took the order in time; RESOURCE_EXHAUSTED.
        """
        if not self.waiting.acquire(blocking=False):
            message, remedy = "too many calls wait for a worker to write", "Try again in a moment."
            raise IngotError(
                ErrorCode.RESOURCE_EXHAUSTED, message, expected=f"at most {_MOST_AT_ONCE} at once", remedy=remedy
            )
        try:
            order = {"id": secrets.token_hex(16), "time": time.time(), "write": write, "arguments": arguments}
            return self._order(order, max(seconds or 0.0, self.seconds))
        finally:
            self.waiting.release()

    def _order(self, order: Mapping[str, Any], seconds: float) -> Any:
        text = canonical_json(dict(order)).decode()
        signature = self.signer.sign(_DOMAIN + text.encode())
        packet = json.dumps({"order": text, "key": signature.key_id, "seal": signature.value})
        self.redis.rpush(_WRITES, packet)
        until = time.monotonic() + seconds
        while (found := self._answer(_answer_key(order["id"]))) is None:
            taken = not self.redis.lrem(_WRITES, 1, packet)
            if taken and time.monotonic() < until:
                continue
            raise IngotError(
                ErrorCode.UNAVAILABLE,
                "a worker has not answered yet" if taken else "no worker is there to write what was asked for",
                remedy="Look whether it was done, and try again." if taken else "Try again when a worker runs.",
            )
        answer = foreign_json(found[1])
        if answer.get("error"):
            raise IngotError.from_dict(answer["error"])
        return answer.get("result")

    def _answer(self, key: str) -> Any:
        """What :meth:`redis.Redis.blpop` has; asked for in pieces, so that a Redis that hangs is missed before all time is up."""
        until = time.monotonic() + self.seconds
        while (left := until - time.monotonic()) > 0:
            found = self.redis.blpop([key], timeout=max(_LEAST_SECONDS, min(left, _LOOK_SECONDS)))
            if found is not None:
                return found
        return None


class Clerk:
    """Does what trusted orders ask for, one after another, in a thread of its own.

    Args:
        store: where it is noted which orders were taken.
        trust: whose orders are taken.
        writes: what can be ordered.
        signs: id of the key that this process signs with, for those who ask the API.
    """

    def __init__(self, redis: Redis, store: ObjectStore, trust: Trust, writes: Mapping[str, Write], signs: str) -> None:
        self._redis: Any = redis
        self._store = store
        self._trust = trust
        self._writes = writes
        self._signs = signs
        self._forgotten = 0.0
        self._old: list[str] = []

    def start(self, stopping: threading.Event) -> threading.Thread:
        thread = threading.Thread(target=self._serve, args=(stopping,), name="clerk", daemon=True)
        thread.start()
        return thread

    def _serve(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                self._redis.set(_SIGNER, self._signs)
                taken = self._redis.blpop([_WRITES], timeout=_LOOK_SECONDS)
                if taken is not None:
                    self.do(taken[1])
                self.forget()
            except IngotError as error:
                _LOG.warning("the clerk cannot forget old orders: %s", error)
            except (RedisError, ValueError) as error:  # away, or it holds bytes that are no text
                _LOG.warning("the clerk waits for Redis: %s", error)
                stopping.wait(_LOOK_SECONDS)

    def do(self, packet: str) -> None:
        """One order; what proves not to be one is dropped."""
        try:
            order = self._proven(packet)
        except (IngotError, ValueError, TypeError, KeyError, AttributeError) as error:
            _LOG.warning("an order to write is not taken: %s", error)
            return
        answer: dict[str, Any] = {}
        try:
            self._take(order["id"])
            answer["result"] = self._write(order["write"])(**order["arguments"])
        except IngotError as error:
            answer["error"] = error.to_dict()
        except Exception as error:
            _LOG.exception("an order to write failed")
            fault = IngotError(ErrorCode.INTERNAL, f"the worker failed with {type(error).__name__}")
            answer["error"] = fault.to_dict()
        key = _answer_key(order["id"])
        self._redis.rpush(key, json.dumps(answer))
        self._redis.expire(key, _ANSWER_SECONDS)

    def _write(self, name: str) -> Write:
        found = self._writes.get(name)
        if found is None:
            remedy = "Update the workers, which do what the API of a service asks for, before it."
            raise IngotError(ErrorCode.UNAVAILABLE, f"the worker knows no {name[:40]!r}", remedy=remedy)
        return found

    def _proven(self, packet: str) -> Mapping[str, Any]:
        """Raises IngotError ARTIFACT_UNTRUSTED, or what comes of reading what is none."""
        outer = foreign_json(packet)
        text = outer["order"].encode()
        self._trust.verify(_DOMAIN + text, Signature(outer["key"], outer["seal"]))
        order: Mapping[str, Any] = foreign_json(text)
        old = time.time() - order["time"]
        if abs(old) > _FRESH_SECONDS:
            message = "an order to write came late"
            raise IngotError(ErrorCode.ARTIFACT_UNTRUSTED, message, received=f"{old:.0f} seconds old")
        return order

    def _take(self, id: str) -> None:
        """Raises IngotError ARTIFACT_UNTRUSTED, it was taken before; UNAVAILABLE, the store is away."""
        if not self._store.put_if_absent(f"{_TAKEN}/{id}.json", canonical_json({"taken": time.time()})):
            _LOG.warning("an order to write came twice: %s", id)
            raise IngotError(ErrorCode.ARTIFACT_UNTRUSTED, "an order to write came twice", received=id)

    def forget(self) -> None:
        """Some of the notes of orders that would be late by now: never so many that who orders something waits for it.

        Raises:
            IngotError: UNAVAILABLE, the store is away.
        """
        now = time.time()
        if not self._old and now - self._forgotten > _NOTED_SECONDS:
            self._forgotten = now
            self._old = list(self._store.keys(_TAKEN))
        for _ in range(min(_FORGOTTEN_AT_ONCE, len(self._old))):
            self._store.delete_unused(self._old.pop(), now - _NOTED_SECONDS)


def signing_key_id(redis: Any) -> str:
    """What the workers say that they sign with; empty where none has said so."""
    found: str | None = redis.get(_SIGNER)
    return found or ""


def _answer_key(id: str) -> str:
    return f"ingot:write:{id}"


class OrderingRegistry(ArtifactRegistry):
    """Reads by itself; what would have to be signed is ordered from a worker. That something is used needs no signature."""

    def __init__(self, store: ObjectStore, trust: Trust, memory: Memory, writes: OrderedWrites) -> None:
        super().__init__(store, trust, None, memory)
        self._marks_use = True
        self._writes = writes

    def set_label(
        self, name: str, label: str, number: int, asked: float | None = None, by: str = "", etag: str = ""
    ) -> None:
        of: dict[str, Any] = {"name": check_model_name(name), "label": check_new_label(label)}
        self._writes.order("set_label", **of, number=number, asked=asked, by=by, etag=_short(etag))

    def delete_label(self, name: str, label: str, by: str = "", etag: str = "") -> None:
        of: dict[str, Any] = {"name": check_model_name(name), "label": check_label(label)}
        self._writes.order("delete_label", **of, by=by, etag=_short(etag))

    def delete_version(self, name: str, number: int, by: str = "") -> None:
        self._writes.order("delete_version", name=check_model_name(name), number=number, by=by)
        self.proven.learn_deletion(name, number)  # the worker remembers it in its own home

    def delete_model(self, name: str, by: str = "", force: bool = False) -> int:
        count = self._writes.order("delete_model", _LONG_SECONDS, name=check_model_name(name), by=by, force=force)
        self.proven.learn_ranges(name)
        return int(count)


def _short(etag: str) -> str:
    """What is longer than any etag is none, however much of it is sent on."""
    return etag[:100]


def writes_of(registry: ArtifactRegistry) -> Mapping[str, Write]:
    """What :class:`OrderingRegistry` orders, done by a registry that can sign."""
    return {
        "set_label": registry.set_label,
        "delete_label": registry.delete_label,
        "delete_version": registry.delete_version,
        "delete_model": registry.delete_model,
    }
