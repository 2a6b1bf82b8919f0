"""The log of a process: lines on standard error, for people or for programs."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import IO, Any

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.printable import printable, printable_json
from shared_ir.service_kit.telemetry.descriptors import DESCRIPTORS
from shared_ir.service_kit.telemetry.fields import FIELDS, current_fields

VARIABLE = "INGOT_LOG_FORMAT"
TEXT, JSON = "text", "json"
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_PLAIN = re.compile(r"[\w.,:/@+-]*")
EXTRA = "ingot"
"""Name in ``extra`` of more fields of a line, a mapping."""


class TextFormatter(logging.Formatter):
    """Lines, and the traces after them, that no terminal obeys."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        known = {**current_fields(), **getattr(record, EXTRA, {})}
        about = " ".join(f"{name}={_word(value)}" for name, value in known.items() if value not in ("", None))
        return super().formatMessage(record) + (f" [{about}]" if about else "")

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _word(value: Any) -> str:
    """As it is where it can be nothing else: what others chose does not look like the next field."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


class JsonFormatter(logging.Formatter):
    """One JSON object a line; every one has the same fields at least."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "process": self._process,
            "pid": os.getpid(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        document |= dict.fromkeys(FIELDS, "") | dict(current_fields()) | dict(getattr(record, EXTRA, {}))
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return printable_json(json.dumps(document, ensure_ascii=False, default=str))


def start_log(
    process: str,
    environment: Mapping[str, str] = os.environ,
    stream: IO[str] | None = None,
    *,
    is_whole: bool = False,
) -> None:
    """Lines as ``INGOT_LOG_FORMAT`` asks for: ``text`` or ``json``; by default text on a terminal, JSON elsewhere.

    Args:
        process: which one of several it is: ``compiler-api``, ``compiler-worker``, ``runtime``.
        is_whole: this process does nothing else, so that whatever else writes to standard output or error writes to its log: libraries in
            C, exceptions that nobody catches, crashes. Where the log is JSON, that is.

    Raises:
        IngotError: INVALID_ARGUMENT, there is no such format.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)
    if log_format(environment, handler.stream) == JSON:
        if is_whole:
            handler.setStream(DESCRIPTORS.take(process))
            _log_what_nobody_catches()
        handler.setFormatter(JsonFormatter(process))


def _log_what_nobody_catches() -> None:
    logger = logging.getLogger("ingot.uncaught")

    def in_process(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            logger.critical("the process ends: %s", kind.__name__, exc_info=(kind, error, trace))

    def in_thread(caught: threading.ExceptHookArgs) -> None:
        if caught.exc_type is not SystemExit:
            name, error = caught.thread.name if caught.thread else "unknown", caught.exc_value or caught.exc_type()
            exception = (caught.exc_type, error, caught.exc_traceback)
            logger.error("thread %s has ended: %s", name, caught.exc_type.__name__, exc_info=exception)

    def nowhere(caught: sys.UnraisableHookArgs) -> None:
        error = caught.exc_value or caught.exc_type()
        exception = (caught.exc_type, error, caught.exc_traceback)
        logger.error("%s in %r", caught.err_msg or "ignored", caught.object, exc_info=exception)

    sys.excepthook, threading.excepthook, sys.unraisablehook = in_process, in_thread, nowhere


def log_format(environment: Mapping[str, str], stream: IO[str]) -> str:
    """Raises IngotError INVALID_ARGUMENT."""
    given = environment.get(VARIABLE)
    if given is None:
        return TEXT if stream.isatty() else JSON
    if given not in (TEXT, JSON):
        message, expected = "there is no such format of the log", f"{TEXT} or {JSON}"
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field=VARIABLE, expected=expected, received=given[:100])
    return given


def say_why_not(error: IngotError) -> None:
    """The last line of a process that does not start: a sentence, in the format of its log."""
    handlers = logging.getLogger().handlers
    if any(isinstance(handler.formatter, JsonFormatter) for handler in handlers):
        logging.getLogger("ingot").critical("error: %s", error, extra={EXTRA: {"code": error.code.value}})
    else:
        print(f"error: {error}", file=sys.stderr)
