"""What a stage's process says while it runs: bytes of two pipes, cut into lines. It may say anything."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shared_ir.printable import printable

MOST_LINE_CHARACTERS = 4000
MOST_LINES = 2000
MOST_STEPS = (1 << 31) - 1
MOST_NAME = 100
"""Characters of the name of what a stage is at."""
MOST_TEXT = 1000
"""Characters of what a report says beside it."""


class Lines:
    """Cuts the bytes of two pipes into lines."""

    def __init__(self, on_message: Callable[[Mapping[str, Any]], None], most_lines: int = MOST_LINES) -> None:
        self._on_message = on_message
        self._rest = {"progress": b"", "log": b""}
        self._logged = 0
        self._most_lines = most_lines

    def progress(self, data: bytes) -> bool:
        for line in self._cut("progress", data):
            message = _progress(line)
            if message is not None:
                self._on_message(message)
        return bool(data)

    def log(self, data: bytes) -> bool:
        for line in self._cut("log", data):
            self._logged += 1
            if self._logged <= self._most_lines:
                self._on_message({"log": line.decode("utf-8", "replace").rstrip()})
        return bool(data)

    def _cut(self, name: str, data: bytes) -> Sequence[bytes]:
        *lines, rest = (self._rest[name] + data).split(b"\n")
        if not data and rest:
            lines, rest = [*lines, rest], b""
        self._rest[name] = rest[:MOST_LINE_CHARACTERS]
        return [line[:MOST_LINE_CHARACTERS] for line in lines if line.strip()]


def _progress(line: bytes) -> Mapping[str, Any] | None:
    """The report that ``line`` is; None where it is none. NOTE: JSON has numbers beyond those of messages, and halves of surrogates."""
    with contextlib.suppress(ValueError, RecursionError):
        match json.loads(line):
            case {"stage": str(stage), "done": int(done), "total": int(total), "message": str(text)}:
                if _is_count(done) and _is_count(total) and len(stage) <= MOST_NAME:
                    words = {"stage": printable(stage, kept=""), "message": printable(text[:MOST_TEXT], kept="")}
                    return {**words, "done": done, "total": total}
    return None


def _is_count(number: int) -> bool:
    return not isinstance(number, bool) and 0 <= number <= MOST_STEPS
