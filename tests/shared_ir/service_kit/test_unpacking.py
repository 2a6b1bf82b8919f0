"""Bodies that are some kilobytes packed and megabytes else: one after the other, and for nobody who has gone."""

from __future__ import annotations

import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from shared_ir.service_kit.http1 import body
from shared_ir.service_kit.http1.body import unpacked
from shared_ir.service_kit.http1.head import HttpRefusal

MOST = 1 << 26


class Together:
    """Counts bytes, and who is at it at the same time beyond the first step."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now = self.most = 0

    def holder(self) -> Holder:
        return Holder(self)


class Holder:
    def __init__(self, together: Together) -> None:
        self._together, self._bytes = together, 0

    def take(self, count: int, /) -> None:
        self._bytes += count
        if self._bytes <= 1 << 20:
            return
        with self._together.lock:
            self._together.now += 1
            self._together.most = max(self._together.most, self._together.now)
        time.sleep(0.005)
        with self._together.lock:
            self._together.now -= 1

    def give(self, count: int, /) -> None: ...


def test_large_bodies_are_unpacked_one_after_the_other() -> None:
    data, together = zlib.compress(bytes(8 << 20), 9), Together()
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: len(unpacked(data, "deflate", MOST, together.holder())), range(6)))
    assert found == [8 << 20] * 6
    assert together.most == 1


def test_small_bodies_wait_for_no_large_one() -> None:
    with body._LARGE:
        assert unpacked(zlib.compress(bytes(100_000)), "deflate", MOST, Together().holder()) == bytes(100_000)


def test_nothing_is_unpacked_for_who_has_gone() -> None:
    data = zlib.compress(bytes(8 << 20), 9)
    for waits in (True, False):
        if waits:
            body._LARGE.acquire()
        asked: list[int] = []

        def has_gone(asked: list[int] = asked) -> bool:
            asked.append(1)
            return True

        try:
            with pytest.raises(HttpRefusal, match="ended inside"):
                unpacked(data, "deflate", MOST, Together().holder(), has_gone)
        finally:
            if waits:
                body._LARGE.release()
        assert asked == [1]
    assert len(unpacked(data, "deflate", MOST, Together().holder())) == 8 << 20


def test_a_refusal_leaves_the_turn_to_others() -> None:
    data = zlib.compress(bytes(8 << 20), 9)
    with pytest.raises(HttpRefusal):
        unpacked(data, "deflate", 3 << 20, Together().holder())
    assert len(unpacked(data, "deflate", MOST, Together().holder())) == 8 << 20
