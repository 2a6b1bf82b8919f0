"""Which trace a piece of work belongs to, as W3C Trace Context writes it: ``00-<trace id>-<span id>-<flags>``."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Self

HEADER = "traceparent"
_TEXT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


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
        if match is None or not (match[1].strip("0") and match[2].strip("0")):
            return None
        return cls(match[1], match[2], match[3])

    @property
    def is_sampled(self) -> bool:
        """Whether somebody keeps the spans of the trace."""
        return bool(int(self.flags, 16) & 1)

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"
