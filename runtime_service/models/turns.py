"""Whose turn it is to change what is served: a pass over all models takes many, and lets requests go first between two of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ModelTurns:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken = False
        self._requests = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One step of a pass: when nobody else has the turn, and no request waits for it."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._taken or self._requests))
            self._taken = True
        try:
            yield
        finally:
            self._give()

    @contextmanager
    def request(self, patience: float | None = None) -> Iterator[bool]:
        """Before the next step of a pass. False where the turn was not to be had in ``patience`` seconds."""
        with self._changed:
            self._requests += 1
            try:
                is_ours = self._changed.wait_for(lambda: not self._taken, patience)
                self._taken = self._taken or is_ours
            finally:
                self._requests -= 1
                self._changed.notify_all()
        try:
            yield is_ours
        finally:
            if is_ours:
                self._give()

    def _give(self) -> None:
        with self._changed:
            self._taken = False
            self._changed.notify_all()
