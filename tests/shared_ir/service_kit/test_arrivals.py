"""Bytes of messages that are on their way, of connections of this process."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shared_ir.service_kit.arrivals import Arrivals, connection_of
from tests.runtime_service.toy_models import wait_until

SENT = 60_000


@contextmanager
def connected(listener: socket.socket, port: int = 0) -> Iterator[tuple[socket.socket, str]]:
    """A client's end, from ``port``, and the key of the connection."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    client.bind(("127.0.0.1", port))
    client.connect(listener.getsockname())
    taken, (host, port) = listener.accept()
    with client, taken:
        # an end that is reset leaves nothing behind, so that its port is free again
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        yield client, connection_of(f"ipv4:{host}:{port}")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


def test_what_has_come_is_on_its_way_until_it_is_whole(listener: socket.socket) -> None:
    arrivals = Arrivals()
    with connected(listener) as (client, name):
        client.sendall(bytes(SENT))
        wait_until(lambda: arrivals.on_their_way()[name] > SENT * 9 // 10)
        arrivals.add(name, SENT)
        assert arrivals.on_their_way()[name] == 0
    assert name not in arrivals.on_their_way()


def test_sockets_of_other_kinds_are_passed_over(listener: socket.socket) -> None:
    with connected(listener) as (_, name), socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        datagrams.connect(("127.0.0.1", 9))
        here, there = socket.socketpair()
        with here, there:
            assert name in Arrivals().on_their_way()


@pytest.mark.parametrize("looks", [0, 2])
def test_a_connection_from_the_port_of_another_is_counted_from_its_start(listener: socket.socket, looks: int) -> None:
    arrivals = Arrivals()
    with connected(listener) as (client, name):
        client.sendall(bytes(SENT))
        arrivals.add(name, SENT)
        wait_until(lambda: arrivals.on_their_way()[name] == 0)
        port = client.getsockname()[1]
    for _ in range(looks):
        arrivals.on_their_way()
    with connected(listener, port) as (client, again):
        assert again == name
        client.sendall(bytes(SENT))
        wait_until(lambda: arrivals.on_their_way()[name] > SENT * 9 // 10)


def test_a_message_that_was_whole_before_a_look_is_not_counted_again(listener: socket.socket) -> None:
    arrivals = Arrivals()
    with connected(listener) as (client, name):
        arrivals.add(name, SENT)  # before anybody looked
        client.sendall(bytes(2 * SENT))
        wait_until(lambda: arrivals.on_their_way()[name] > SENT * 9 // 10)
        assert arrivals.on_their_way()[name] <= SENT


def test_connections_that_ended_between_two_looks_are_forgotten(listener: socket.socket) -> None:
    arrivals = Arrivals()
    for _ in range(3):
        with connected(listener) as (client, name):
            client.sendall(bytes(SENT))
            arrivals.add(name, SENT)
    assert len(arrivals) == 3
    for _ in range(2):
        arrivals.on_their_way()
    assert len(arrivals) == 0


def test_a_message_is_remembered_where_its_connection_came_while_a_look_was_made(listener: socket.socket) -> None:
    arrivals = Arrivals()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    arrivals.add(name := f"127.0.0.1 {port}", SENT)
    arrivals.on_their_way()  # the look did not see the connection yet
    with connected(listener, port) as (client, found):
        assert found == name
        client.sendall(bytes(2 * SENT))
        wait_until(lambda: arrivals.on_their_way()[name] > SENT * 9 // 10)
        assert Arrivals().on_their_way()[name] > 2 * SENT * 9 // 10
        assert arrivals.on_their_way()[name] <= SENT
