"""Bytes that somebody might send to a port of HTTP: requests, and what becomes of them when anything in them is changed."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from typing import Any

SECRET = "7c1e-what-another-client-sent"
_BODY = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1.0, 2.0, 3.0, 4.0]}]}
_TARGETS = (
    "/v2/models/scale/infer", "/v2/models/scale", "/v2/models/scale/versions/1/infer", "/v2", "/v2/health/live", "/metrics",
    "/v2/repository/index", "/v2/repository/models/scale/load", "/v2/models/%00%1b%5b31m/infer", "/v2/models/" + "a" * 300,
    "/v2/models/%E2%80%AE%ff/config", "//", "/../../etc/passwd", "*", "http://localhost/v2", "http://evil/v2", "/v2/models/scale/stats?x=1",
    "v2", "/\xe9", "/v2/models/sc ale", "/v2/models/x\x1b[2J", "/v2/models/stats",
    "/v2/logging", "/v2/trace/setting", "/v2/models/scale/trace/setting", "/v2/systemsharedmemory/status",
    "/v2/systemsharedmemory/region/%1b/register", "/v2/systemsharedmemory/unregister", "/v2/cudasharedmemory/region/x/register",
)  # fmt: skip
_METHODS = (
    "POST",
    "GET",
    "HEAD",
    "PUT",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "get",
    "P" * 40,
    "PRI",
    "\x00",
    "PO ST",
    "",
)
_VERSIONS = ("HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "HTTP/11", "http/1.1", "", "HTTP/1.1 x", "HTTP/1.१")
_FIELDS = (
    "Host: evil.example", "Host: localhost", "Host: ", "Host: [::1", "Host: a\x00b", "Origin: http://evil.example", "Origin: null",
    "Content-Length: 5", "Content-Length: -1", "Content-Length: +7", "Content-Length: 1e3", "Content-Length: ", "Content-Length: 0x10",
    "Content-Length: 99999999999999999999", "Content-Length : 5", " Content-Length: 5", "Content-Length: 5, 5", "Content-Length: 5, 6",
    "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: \x0bgzip",
    "Transfer-Encoding : chunked", "Transfer-Encoding: identity", "transfer-encoding: xchunked", "Content-Encoding: gzip",
    "Content-Encoding: deflate", "Content-Encoding: br", "Connection: close", "Connection: keep-alive, close", "Expect: 100-continue",
    "Expect: \x1b", "Inference-Header-Content-Length: 20", "Inference-Header-Content-Length: -1", "Inference-Header-Content-Length: 0",
    "Inference-Header-Content-Length: 999999", "Accept: application/openmetrics-text; version=1.0.0; escaping=\x7f", "X: " + "y" * 3000,
    "X: \xff\xfe", "no colon", ": no name", "a b: c", "X:\ty", "X: a\rb", "Authorization: Bearer \x1b[31m", "Upgrade: h2c",
)  # fmt: skip
_ENDS = ("\r\n", "\r\n", "\r\n", "\n", "\r", "\r\r\n", "\x00\r\n")
_TEXTS = (
    "\x1b[31m",
    "\u202e",
    "\r\nSet-Cookie: a=b",
    "\x00",
    "\ud800",
    "n" * 3000,
    "../../x",
    "é",
    "FP32",
    "",
    "\x7f\x85",
)


def request(source: random.Random) -> bytes:
    """A request in which nothing is changed."""
    body = json.dumps(_BODY | {"id": SECRET}).encode()
    return b"POST /v2/models/scale/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def composed(source: random.Random) -> bytes:
    """Parts that are each odd for itself."""
    body = source.choice(_BODIES)(source)
    lines = [" ".join((_odd(source, _METHODS), _odd(source, _TARGETS), _odd(source, _VERSIONS)))]
    lines += ["Host: localhost"] * (source.random() < 0.9) + source.sample(_FIELDS, source.choice((0, 0, 1, 1, 2, 3)))
    lines += [f"Content-Length: {len(body)}"] * (source.random() < 0.7)
    if source.random() < 0.02:
        lines += [f"h{i}: v" for i in range(source.choice((90, 200)))]
    end = source.choice(_ENDS) if source.random() < 0.1 else "\r\n"
    return end.join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body


def changed(source: random.Random) -> bytes:
    """A request with some of its bytes changed, left out, doubled or cut off."""
    data = bytearray(source.choice((request, composed))(source))
    for _ in range(source.choice((1, 1, 2, 5, 20))):
        at, count = source.randrange(len(data) + 1), source.choice((1, 1, 2, 8, 64))
        kind = source.randrange(5)
        if kind == 0:
            data[at : at + count] = source.randbytes(count)
        elif kind == 1:
            del data[at : at + count]
        elif kind == 2:
            data[at:at] = data[at : at + count] * source.choice((1, 2, 50))
        elif kind == 3:
            data[at:at] = source.choice((b"\r\n", b"\n", b"\r", b"\x00", b":", b" ", b"\xff", b"{" * 500, b"[" * 3000))
        else:
            del data[at + 1 :]
        if not data:
            break
    return bytes(data)


def chunked(source: random.Random) -> bytes:
    """A body in chunks with odd sizes, extensions and trailers."""
    body, chunks = json.dumps(_BODY).encode(), []
    while body:
        size = source.choice((1, 7, 40, 4000))
        piece, body = body[:size], body[size:]
        text = source.choice(
            (
                f"{len(piece):x}",
                f"{len(piece):x}",
                f"{len(piece):x};a=b",
                f"0x{len(piece):x}",
                "-1",
                "g",
                f"{len(piece) + 1:x}",
                "",
            )
        )
        text = text if source.random() < 0.3 else f"{len(piece):X}"
        chunks.append(text.encode() + b"\r\n" + piece + b"\r\n")
    last = source.choice(
        (
            b"0\r\n\r\n",
            b"0\r\n\r\n",
            b"0\r\nA: b\r\n\r\n",
            b"0\r\n" + b"A: b\r\n" * 200 + b"\r\n",
            b"0",
            b"00000000000000000\r\n\r\n",
        )
    )
    return (
        b"POST /v2/models/scale/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"".join(chunks)
        + last
    )


def noise(source: random.Random) -> bytes:
    """What was meant for another port, or for none."""
    return source.choice(
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + source.randbytes(60),
            source.randbytes(source.choice((1, 20, 500, 70_000))),
            b"\r\n" * source.choice((1, 2, 50)),
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 70_000,
            b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
            b"",
        )
    )


def pipelined(source: random.Random) -> bytes:
    return b"".join(
        source.choice((request, composed, changed, chunked))(source) for _ in range(source.choice((2, 3, 6)))
    )


KINDS: tuple[Callable[[random.Random], bytes], ...] = (
    request,
    composed,
    composed,
    composed,
    changed,
    changed,
    chunked,
    noise,
    pipelined,
)


def _odd(source: random.Random, texts: tuple[str, ...]) -> str:
    """Mostly the first."""
    return texts[0] if source.random() < 0.6 else source.choice(texts)


def _document(source: random.Random) -> bytes:
    """JSON whose fields hold what they should not."""
    values: tuple[Any, ...] = (
        None,
        True,
        -1,
        2**70,
        1e400,
        "x" * 5000,
        [],
        {},
        [[]],
        source.choice(_TEXTS),
        float("nan"),
        10**18,
    )
    body = json.loads(json.dumps(_BODY))
    for _ in range(source.choice((1, 2))):
        tensors = body.get("inputs")
        place = source.choice(
            (body, tensors[0] if isinstance(tensors, list) and tensors and isinstance(tensors[0], dict) else body)
        )
        name = source.choice(
            (*(place or {"x": 0}), "id", "parameters", "outputs", "inputs", "binary_data_size", source.choice(_TEXTS))
        )
        place[name] = source.choice(
            (*values, {source.choice(_TEXTS): source.choice(values)}, [{"name": source.choice(_TEXTS)}])
        )
    return json.dumps(body).encode()


_BODIES: tuple[Callable[[random.Random], bytes], ...] = (
    lambda source: json.dumps(_BODY).encode(),
    _document,
    _document,
    _document,
    lambda source: gzip.compress(source.choice((b"{}", bytes(300_000), b"[" * 1000)))[: source.choice((None, 20, 5))],
    lambda source: source.choice(
        (b"[" * 100_000, b'{"a":' * 20_000, b"9" * 5000, b'"\\ud800"', b"\xff\xfe", b"{}{}", b"")
    ),
    lambda source: source.randbytes(source.choice((1, 16, 300))),
)


def framed_twice(body: bytes) -> list[bytes]:
    """Heads of requests whose body ends at two places, by who reads them."""
    length = b"Content-Length: %d" % len(body)
    fields = (
        length + b"\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\n" + length, length + b"\r\nContent-Length: 0",
        length + b", 0", b"Content-Length : %d" % len(body), b" " + length, b"X: a\r\n " + length, length + b"\r\nTransfer-Encoding:\x0bx",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", b"Transfer-Encoding: xchunked", b"X: a\n" + length,
        b"X: a\r" + length,
        b"junk\r\n" + length, b"Content-Length: 0x%x" % len(body), b"Content-Length: +%d" % len(body), b"\x00" + length, length + b"\x00",
        b"Content_Length: %d\r\nContent-Length: -0" % len(body), b"Transfer-Encoding: chunked\r\nContent-Encoding: chunked\r\n" + length,
    )  # fmt: skip
    return [
        b"POST /v2/models/scale/infer HTTP/1.1\r\nHost: localhost\r\n" + field + b"\r\n\r\n" + body for field in fields
    ]
