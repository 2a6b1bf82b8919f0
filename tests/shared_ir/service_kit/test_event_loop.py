"""How an event loop takes connections from its sockets."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from shared_ir.service_kit.connection_counts import ConnectionCounts, shared_counts
from shared_ir.service_kit.event_loop import EventLoop


class Refusing:
    """Has no room for any connection."""

    def __init__(self) -> None:
        self.count = 0
        self.asked = threading.Semaphore(0)

    def accepted(self, greeting: Any, name: Any) -> bool:
        self.count += 1
        self.asked.release()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        raise AssertionError


def counts_of_two() -> tuple[ConnectionCounts, ConnectionCounts]:
    descriptor = shared_counts(2)
    mine, theirs = ConnectionCounts(descriptor, 0), ConnectionCounts(descriptor, 1)
    os.close(descriptor)
    return mine, theirs


def test_an_action_that_raises_is_told_of() -> None:
    failed: list[str] = []
    loop = EventLoop("test", failed.append)
    loop.do(lambda subject: None, "good")
    loop.do(lambda subject: 1 // 0, "bad")  # type: ignore[arg-type]
    assert failed == ["bad"]
    loop.stop(lambda: None)


@pytest.mark.parametrize(("others", "own", "most"), [(0, 0, 5), (1, 0, 1), (1, 7, 1), (1, 8, 0)])
def test_of_sockets_that_others_accept_from_too_who_has_fewest_connections_takes_one_at_a_time(
    others: int, own: int, most: int
) -> None:
    loop, protocol = EventLoop("test", lambda subject: None), Refusing()
    mine, theirs = counts_of_two()
    mine.tell(own)
    theirs.tell(7)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.setblocking(False)
        loop.listen((listener,), lambda: protocol, None, 1.0, counts=mine if others else None)
        for _ in range(5):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        loop._accept(loop._places[0])
        assert protocol.count == most
    loop.stop(lambda: None)


def test_who_has_come_less_far_than_another_takes_none() -> None:
    loop, protocol = EventLoop("test", lambda subject: None), Refusing()
    mine, theirs = counts_of_two()
    theirs.tell(7)
    theirs.tell_rank(1)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.setblocking(False)
        loop.listen((listener,), lambda: protocol, None, 1.0, counts=mine)
        for _ in range(5):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        loop._accept(loop._places[0])
        assert protocol.count == 0
        mine.tell_rank(1)
        loop._accept(loop._places[0])
        assert protocol.count == 1
    loop.stop(lambda: None)


@pytest.mark.parametrize("change", ["comes as far", "the other ends", "the other falls back"])
def test_it_takes_what_waits_once_no_other_is_farther(change: str) -> None:
    loop, protocol = EventLoop("test", lambda subject: None), Refusing()
    mine, theirs = counts_of_two()
    theirs.tell_rank(2)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        loop.listen((listener,), lambda: protocol, None, 1.0, counts=mine)
        loop.start(lambda: None)
        stack.enter_context(socket.create_connection(listener.getsockname()))
        assert not protocol.asked.acquire(timeout=0.2)
        changes: dict[str, Callable[[], None]] = {
            "comes as far": lambda: mine.tell_rank(2),
            "the other ends": theirs.tell_end,
            "the other falls back": lambda: theirs.tell_rank(0),
        }
        changes[change]()
        assert protocol.asked.acquire(timeout=10)
        loop.stop(lambda: loop.end(0.0))
        assert loop.ended.wait(10)


def test_who_is_not_there_yet_or_no_more_is_not_waited_for() -> None:
    mine, theirs = counts_of_two()
    mine.tell(3)
    assert mine.is_ahead
    theirs.tell_end()
    assert not mine.is_ahead
    theirs.tell_rank(0)
    mine.tell_rank(1)
    assert not mine.is_ahead
    assert not mine.is_outranked
    assert theirs.is_outranked


def test_what_the_others_do_not_take_is_taken() -> None:
    loop, protocol = EventLoop("test", lambda subject: None), Refusing()
    mine, _ = counts_of_two()
    mine.tell(1)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        loop.listen((listener,), lambda: protocol, None, 1.0, counts=mine)
        loop.start(lambda: None)
        for _ in range(5):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        assert all(protocol.asked.acquire(timeout=10) for _ in range(5))
        loop.stop(lambda: loop.end(0.0))
        assert loop.ended.wait(10)
