"""How an event loop takes connections from its sockets."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any

import pytest

from shared_ir.service_kit.event_loop import EventLoop


class Refusing:
    """Has no room for any connection."""

    def __init__(self) -> None:
        self.count = 0

    def accepted(self, greeting: Any, name: Any) -> bool:
        self.count += 1
        return False

    def connection_lost(self, error: Exception | None) -> None:
        raise AssertionError


def test_an_action_that_raises_is_told_of() -> None:
    failed: list[str] = []
    loop = EventLoop("test", failed.append)
    loop.do(lambda subject: None, "good")
    loop.do(lambda subject: 1 // 0, "bad")  # type: ignore[arg-type]
    assert failed == ["bad"]
    loop.stop(lambda: None)


@pytest.mark.parametrize(("shared", "most"), [(False, 5), (True, 1)])
def test_of_sockets_that_others_accept_from_too_one_connection_is_taken_at_a_time(shared: bool, most: int) -> None:
    loop, protocol = EventLoop("test", lambda subject: None), Refusing()
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.setblocking(False)
        loop.listen((listener,), lambda: protocol, None, 1.0, shared=shared)
        for _ in range(5):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        loop._accept(loop._places[0])
        assert protocol.count == most
    loop.stop(lambda: None)
