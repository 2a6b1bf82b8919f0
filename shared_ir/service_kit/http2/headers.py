"""Header blocks of requests: decompressed, checked and taken apart once for as long as a client sends the same."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from hpack import Decoder, HPACKError
from hpack.table import HeaderTable

from shared_ir.service_kit.http2.frames import Code, ConnectionFault, StreamFault

MOST_BYTES = 16 * 1024
"""Of the fields of a request, each with the 32 bytes that RFC 9113, section 6.5.2, counts beside it."""
_MOST_KEPT = 16
_SMALL_BYTES, _SMALL_FIELDS = 4096, 32
"""Heads up to this size are remembered: larger ones would be megabytes of every connection, and nobody counts those."""
_TABLE_BYTES = 4096
_RESIZES, _RESIZE_MASK, _MOST_OF_PREFIX = 0x20, 0xE0, 0x1F
"""The three highest bits of a block that begins with another size of the table, and the greatest size that fits into the others."""
_MOST_RESIZES = 2
"""At the beginning of a block: the least size that was in between, and the last one (RFC 7541, section 4.2)."""
_PSEUDO = frozenset({b":method", b":scheme", b":authority", b":path"})
_FORBIDDEN = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
"""Of connections, which HTTP/2 says in its own words (section 8.2.2)."""
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(rb"(?![ \t])[^\x00\r\n]*(?<![ \t])")


@dataclass(frozen=True)
class Http2Head:
    """The head of a request, well formed; ``fields`` are those that are no pseudo-header, their names in lower case."""

    method: bytes
    path: bytes
    authority: bytes
    fields: tuple[tuple[bytes, bytes], ...]

    @functools.cached_property
    def is_small(self) -> bool:
        """Whether it may be remembered."""
        size = len(self.path) + len(self.authority) + sum(len(name) + len(value) for name, value in self.fields)
        return len(self.fields) <= _SMALL_FIELDS and size <= _SMALL_BYTES


class _Table(HeaderTable):
    """Counts its changes."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0

    def add(self, name: bytes, value: bytes) -> None:
        self.changes += 1
        super().add(name, value)


class HeadReader:
    """Of one connection, whose blocks have to be read all and in their order."""

    def __init__(self) -> None:
        self._decoder = Decoder(MOST_BYTES)
        self._table = _Table()
        self._decoder.header_table = self._table
        self._decoder.max_allowed_table_size = _TABLE_BYTES
        self._kept: dict[bytes, Http2Head] = {}

    def read(self, block: bytes) -> Http2Head:
        """The head of a request.

        NOTE: the same bytes mean the same, as long as the table that they refer to is the same.

        Raises:
            ConnectionFault: the block cannot be decompressed, or is too large.
            StreamFault: it can, and is no head of a request.
        """
        kept = self._kept.get(block)
        if kept is not None:
            return kept
        before = self._table.changes
        fields = self._fields(block)
        is_resized = block[:1] and block[0] & _RESIZE_MASK == _RESIZES
        if is_resized or self._table.changes != before:
            self._kept.clear()
            return _head(fields)
        head = _head(fields)
        if not head.is_small:
            return head
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[block] = head
        return head

    def skip(self, block: bytes) -> None:
        """A block whose fields nobody wants: trailers, or of a stream that is over. Raises ConnectionFault as :meth:`read`."""
        self._fields(block)
        self._kept.clear()

    def _fields(self, block: bytes) -> list[tuple[bytes, bytes]]:
        _check_resizes(block)
        try:
            return [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        except HPACKError as error:
            # NOTE: the peer is told a sentence of ours: the library's own may hold addresses of memory
            raise ConnectionFault(
                Code.COMPRESSION_ERROR, "a header block that cannot be unpacked, or is too large"
            ) from error


def _check_resizes(block: bytes) -> None:
    """Raises ConnectionFault COMPRESSION_ERROR: the size of the table is said more often than anybody has to. Each time takes as long as a
    field to read, and counts as none."""
    at = 0
    for _ in range(_MOST_RESIZES + 1):
        if at >= len(block) or block[at] & _RESIZE_MASK != _RESIZES:
            return
        if block[at] & _MOST_OF_PREFIX == _MOST_OF_PREFIX:
            at += 1
            while at < len(block) and block[at] & 0x80:
                at += 1
        at += 1
    raise ConnectionFault(Code.COMPRESSION_ERROR, "the size of the table is said too often")


def _head(fields: Iterable[tuple[bytes, bytes]]) -> Http2Head:
    """Raises StreamFault PROTOCOL_ERROR (section 8.1.1)."""
    pseudo: dict[bytes, bytes] = {}
    others: list[tuple[bytes, bytes]] = []
    for name, value in fields:
        if not _VALUE.fullmatch(value):
            raise _malformed("a value has characters that are none of a value")
        if name.startswith(b":"):
            if others or name in pseudo or name not in _PSEUDO:
                raise _malformed("pseudo-headers")
            pseudo[name] = value
            continue
        if not _NAME.fullmatch(name) or name in _FORBIDDEN or (name == b"te" and value != b"trailers"):
            raise _malformed("a field that is none of a request")
        others.append((name, value))
    if not (pseudo.get(b":method") and pseudo.get(b":scheme") and pseudo.get(b":path")):
        raise _malformed("a pseudo-header is missing")
    return Http2Head(pseudo[b":method"], pseudo[b":path"], pseudo.get(b":authority", b""), tuple(others))


def _malformed(text: str) -> StreamFault:
    return StreamFault(Code.PROTOCOL_ERROR, text)
