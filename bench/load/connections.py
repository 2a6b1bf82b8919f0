"""Connections of clients that cost little: bytes of a request out, the body of its answer in. The same for every server."""

from __future__ import annotations

import re
import socket
from typing import Protocol

from bench.load.requests import GRPC

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_WINDOW = (1 << 31) - 1
PATH = "/inference.GRPCInferenceService/ModelInfer"


class WrongAnswer(Exception):
    """Not what was to come back; the text begins with what did."""


class Connection(Protocol):
    """One request at a time."""

    socket: socket.socket

    data: bytes
    """Of the next request, as :class:`bench.load.requests.Question` has it."""

    def ask(self) -> None:
        """Send the request."""

    def receive(self) -> bytes | None:
        """Take what has come; the body of the answer once it is whole.

        Raises:
            WrongAnswer: an error, or no answer.
        """


class HttpConnection:
    """HTTP/1.1, kept alive (RFC 9112). Bodies have a declared length."""

    def __init__(self, address: str, data: bytes) -> None:
        self.socket = connect(address)
        self.data = data
        self._received = b""

    def ask(self) -> None:
        self._received = b""
        self.socket.sendall(self.data)

    def receive(self) -> bytes | None:
        self._received += _read(self.socket)
        head, mark, body = self._received.partition(b"\r\n\r\n")
        if not mark:
            return None
        length = _LENGTH.search(head)
        if length is None:
            raise WrongAnswer(f"{head[:200]!r} has no Content-Length")
        if len(body) < int(length[1]):
            return None
        if not head.startswith(b"HTTP/1.1 200"):
            raise WrongAnswer(f"{head[:60]!r} {body[:200]!r}")
        return body


class GrpcConnection:
    """A unary call after another over HTTP/2 (RFC 9113), its headers literal (RFC 7541, 6.2.2)."""

    def __init__(self, address: str, data: bytes) -> None:
        self.socket = connect(address)
        self.data = data
        self._head = _block(address)
        self._stream, self._received, self._body = -1, b"", b""
        window = _WINDOW.to_bytes(4, "big")
        grown = (_WINDOW - 65535).to_bytes(4, "big")
        self.socket.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, b"\0\4" + window) + _frame(8, 0, 0, grown)
        )

    def ask(self) -> None:
        self._stream += 2
        self._body = b""
        message = b"\0" + len(self.data).to_bytes(4, "big") + self.data
        head = _frame(_HEADERS, _END_HEADERS, self._stream, self._head)
        self.socket.sendall(head + _frame(_DATA, _END_STREAM, self._stream, message))

    def receive(self) -> bytes | None:
        self._received += _read(self.socket)
        whole = None
        while len(self._received) >= 9:
            size = int.from_bytes(self._received[:3], "big")
            if len(self._received) < 9 + size:
                break
            kind, flags = self._received[3], self._received[4]
            stream = int.from_bytes(self._received[5:9], "big")
            content, self._received = self._received[9 : 9 + size], self._received[9 + size :]
            if self._take(kind, flags, stream, content):
                whole = self._answer()
        return whole

    def _take(self, kind: int, flags: int, stream: int, content: bytes) -> bool:
        """A frame; whether it ends the answer. NOTE: padding is not taken off: no server of these sends any."""
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            self.socket.sendall(_frame(kind, _ACK, 0, content if kind == _PING else b""))
        if kind in (_RESET, _GOAWAY):
            raise WrongAnswer(f"frame of type {kind}: {content[:200]!r}")
        if stream != self._stream or kind not in (_DATA, _HEADERS):
            return False
        if kind == _DATA:
            self._body += content
        return bool(flags & _END_STREAM)

    def _answer(self) -> bytes:
        if len(self._body) < 5:
            raise WrongAnswer("a call without a message: its status is not OK")
        return self._body[5:]


def connection(kind: str, address: str, data: bytes) -> Connection:
    """For requests of a kind of :data:`bench.load.requests.KINDS`."""
    return (GrpcConnection if kind == GRPC else HttpConnection)(address, data)


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    made = socket.create_connection((host, int(port)), 30)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def _read(opened: socket.socket) -> bytes:
    data = opened.recv(1 << 16)
    if not data:
        raise WrongAnswer("the server closed the connection")
    return data


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + content


def _block(address: str) -> bytes:
    fields = {":method": "POST", ":scheme": "http", ":path": PATH, ":authority": address, "te": "trailers"}
    fields["content-type"] = "application/grpc"
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())


def _text(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()
