"""Weights that several processes read from one place in memory: the first process reads a file, and lends what it has read.

Over a socket of packets that the two share: ``{"lend": path, "size": bytes}`` is answered with a descriptor of sealed memory and its
digest, or with an error; ``{"return": path, "size": bytes}`` has no answer. What nobody has any more is forgotten.
"""

from __future__ import annotations

import contextlib
import json
import logging
import mmap
import os
import socket
import threading
import weakref
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.sealed import seal

_LOG = logging.getLogger(__name__)
_MOST_PACKET = 1 << 16
Wanted: TypeAlias = tuple[str, int]
"""A path, and how many bytes there are."""


@dataclass
class _Kept:
    descriptor: int
    digest: str
    holders: Counter[int] = field(default_factory=Counter)


class Lender:
    """What was read, and who has it. Borrowers are numbers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Wanted, _Kept] = {}

    def serve(self, channel: socket.socket, borrower: int) -> None:
        """Answer a borrower until it closes its end; then all is back that it had."""
        try:
            while packet := channel.recv(_MOST_PACKET):
                asked = json.loads(packet)
                if "lend" in asked:
                    self._lend(channel, borrower, (asked["lend"], asked["size"]))
                else:
                    self._take_back(borrower, (asked["return"], asked["size"]), 1)
        except OSError as error:
            _LOG.debug("the process %d is gone: %s", borrower, error)
        finally:
            for wanted in list(self._kept):
                self._take_back(borrower, wanted, None)

    def _lend(self, channel: socket.socket, borrower: int, wanted: Wanted) -> None:
        try:
            with self._lock:
                kept = self._kept.get(wanted) or _Kept(*seal(Path(wanted[0]), wanted[1]))
                self._kept[wanted] = kept
                kept.holders[borrower] += 1
                answer = json.dumps({"digest": kept.digest}).encode()
                socket.send_fds(channel, [answer], [kept.descriptor])
        except IngotError as error:
            channel.send(json.dumps({"error": error.to_dict()}).encode())
        except OSError as error:
            channel.send(json.dumps({"errno": error.errno, "reason": error.strerror}).encode())

    def _take_back(self, borrower: int, wanted: Wanted, count: int | None) -> None:
        with self._lock:
            kept = self._kept.get(wanted)
            if kept is None:
                return
            kept.holders[borrower] -= kept.holders[borrower] if count is None else count
            if not +kept.holders:
                os.close(self._kept.pop(wanted).descriptor)

    @property
    def bytes(self) -> int:
        """Of what is lent."""
        with self._lock:
            return sum(size for _, size in self._kept)


class Borrower:
    """The other end of ``channel``; any thread may use it."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lock = threading.Lock()

    def read(self, path: Path, size: int) -> tuple[memoryview, str]:
        """As :func:`shared_ir.storage.sealed.read_sealed`. It is given back with the last view of it.

        Raises:
            IngotError: as there; UNAVAILABLE, the lender is gone.
            OSError: as it was for the lender.
        """
        with self._lock:
            packet, descriptors = self._ask({"lend": str(path), "size": size})
        if not packet:
            raise IngotError(ErrorCode.UNAVAILABLE, "the process that reads weights for this one has ended")
        answer: dict[str, Any] = json.loads(packet)
        if "error" in answer:
            raise IngotError.from_dict(answer["error"])
        if "errno" in answer:
            raise OSError(answer["errno"], answer["reason"], str(path))
        try:
            mapping = mmap.mmap(descriptors[0], size, prot=mmap.PROT_READ)
        finally:
            os.close(descriptors[0])
        weakref.finalize(mapping, self._give_back, path, size).atexit = False
        return memoryview(mapping), answer["digest"]

    def _ask(self, question: dict[str, Any]) -> tuple[bytes, list[int]]:
        try:
            self._channel.send(json.dumps(question).encode())
            packet, descriptors, _, _ = socket.recv_fds(self._channel, _MOST_PACKET, 1)
        except ConnectionError:
            return b"", []
        return packet, descriptors

    def _give_back(self, path: Path, size: int) -> None:
        """NOTE: whatever thread collects garbage is here, so it waits for nobody: a packet is sent whole."""
        with contextlib.suppress(OSError):
            self._channel.send(json.dumps({"return": str(path), "size": size}).encode())
