"""Which trace a piece of work belongs to, as W3C Trace Context writes it: ``00-<trace id>-<span id>-<flags>``."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Self

HEADER = "traceparent"
_TEXT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})((?:-.*)?)", re.DOTALL)
"""Of any version: a later one begins as version 00 does, and may go on behind it (section 4.1)."""


@dataclass(frozen=True)
class TraceParent:
    """Ids in hexadecimal digits: 32 of the trace, 16 of the span that something is done for."""

    trace_id: str
    span_id: str
    flags: str = "01"

    @classmethod
    def new(cls) -> Self:
        return cls(secrets.token_hex(16), secrets.token_hex(8))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None for what is none, which a client may send."""
        match = _TEXT.fullmatch(text)
        if match is None or not (match[2].strip("0") and match[3].strip("0")):
            return None
        version, trace_id, span_id, flags, more = match.groups()
        if version == "00":
            return None if more else cls(trace_id, span_id, flags)
        return cls(trace_id, span_id, f"{int(flags, 16) & 1:02x}")  # others are not known here

    @property
    def is_sampled(self) -> bool:
        """Whether somebody keeps the spans of the trace."""
        return bool(int(self.flags, 16) & 1)

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"
