"""Requests mean the same wherever the network cuts them."""

from __future__ import annotations

import gzip
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shared_ir.errors import IngotError
from shared_ir.service_kit.http.message import Admission, HttpRequest, HttpResponse
from shared_ir.service_kit.http1.arriving import ArrivingRequests, Whole
from shared_ir.service_kit.http1.head import HttpRefusal
from shared_ir.service_kit.http1.source import Need
from shared_ir.service_kit.memory.room import RequestRoom

_BODY = bytes(range(256)) * 400


class _Anything:
    def admit(self, request: HttpRequest) -> HttpResponse | Admission:
        return Admission(200_000, lambda asked: HttpResponse())

    def refused(self, request: HttpRequest, error: IngotError) -> None: ...


def _chunked(body: bytes, size: int) -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%X;e\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\nTrailer: t\r\n\r\n"


def _message(kind: str, size: int) -> bytes:
    body = _BODY[:size]
    head = b"POST /%s HTTP/1.1\r\nHost: h\r\n" % kind.encode()
    if kind == "chunks":
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + _chunked(body, 1 + size // 3)
    if kind == "gzip":
        body = gzip.compress(body)
        head += b"Content-Encoding: gzip\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _read(data: bytes, cuts: list[int]) -> list[tuple[str, bytes]]:
    """What is read of ``data`` where it comes in pieces of ``cuts`` bytes, in turns, a part of it straight into the body."""
    arriving, found, at = ArrivingRequests(_Anything(), RequestRoom(1 << 30).enter("p", lambda: None), "p"), [], 0
    turn = 0
    while True:
        what: Any = arriving.read()
        if isinstance(what, Whole):
            found.append((what.head.path, bytes(what.body)))
            continue
        if what is None or at >= len(data):
            return found
        assert what is Need.BYTES
        piece = data[at : at + cuts[turn % len(cuts)]]
        turn += 1
        if (target := arriving.source.target) is not None:
            piece = piece[: len(target)]
            target[: len(piece)] = piece
            arriving.source.filled(len(piece))
        else:
            arriving.source.feed(piece)
        at += len(piece)


_KINDS = st.tuples(st.sampled_from(["plain", "chunks", "gzip"]), st.sampled_from([0, 1, 5, 1000, 70_000, 100_000]))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(_KINDS, min_size=1, max_size=4),
    st.lists(st.sampled_from([1, 2, 7, 100, 4096, 1 << 16]), min_size=1, max_size=5),
)
def test_wherever_they_are_cut(kinds: list[tuple[str, int]], cuts: list[int]) -> None:
    data = b"".join(_message(kind, size) for kind, size in kinds)
    if sum(cuts) / len(cuts) < 100:  # a byte at a time takes a while
        kinds = [(kind, min(size, 1000)) for kind, size in kinds]
        data = b"".join(_message(kind, size) for kind, size in kinds)
    found = _read(data, cuts)
    assert [path for path, _ in found] == [f"/{kind}" for kind, _ in kinds]
    for (kind, size), (_, body) in zip(kinds, found, strict=True):
        assert (gzip.decompress(body) if kind == "gzip" else body) == _BODY[:size]


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=40), st.sampled_from([1, 3, 64]), st.integers(0, 120))
def test_what_is_refused_is_refused_wherever_it_is_cut(noise: bytes, cut: int, place: int) -> None:
    data = bytearray(_message("chunks", 5))
    data[place:place] = noise

    def outcome(cuts: list[int]) -> Any:
        try:
            return _read(bytes(data), cuts)
        except HttpRefusal as refusal:
            return refusal.status, str(refusal.error)

    assert outcome([cut]) == outcome([len(data)])
