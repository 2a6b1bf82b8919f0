"""Which lines of the log are written, as may be changed while a process runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from shared_ir.errors import ErrorCode, IngotError

Value = bool | int | str
_OURS = ("ingot", "shared_ir", "runtime_service", "compiler_service")
"""Loggers whose small talk is worth reading: that of libraries may hold what clients sent."""
_SWITCHES: Mapping[str, tuple[int, int]] = {
    "log_info": (logging.INFO, logging.WARNING),
    "log_warnings": (logging.WARNING, logging.ERROR),
    "log_errors": (logging.ERROR, logging.CRITICAL + 1),
}
"""Levels that each lets through, from the first to below the second."""
_VERBOSE = "log_verbose_level"
_FIXED: Mapping[str, tuple[str, str]] = {
    "log_file": ("", "The log goes to standard error of the server."),
    "log_format": ("default", "INGOT_LOG_FORMAT says it at the start of the server."),
}
"""Settings that have one value, and why."""
_MOST_VERBOSE = 1 << 31


class LogLevels(logging.Filter):
    """A filter of the handlers of the root logger. Names of the settings are those of Triton's logging extension."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._switches = dict.fromkeys(_SWITCHES, True)
        self._verbose = 0

    def filter(self, record: logging.LogRecord) -> bool:
        return not any(
            low <= record.levelno < high and not self._switches[name] for name, (low, high) in _SWITCHES.items()
        )

    def settings(self) -> dict[str, Value]:
        with self._lock:
            return {**{name: value for name, (value, _) in _FIXED.items()}, **self._switches, _VERBOSE: self._verbose}

    def change(self, changes: Mapping[str, object]) -> dict[str, Value]:
        """The new settings. All of ``changes`` are made, or none.

        Raises:
            IngotError: INVALID_ARGUMENT, naming the setting.
        """
        for name, value in changes.items():
            _check(name, value)
        with self._lock:
            self._switches |= {name: bool(value) for name, value in changes.items() if name in _SWITCHES}
            if _VERBOSE in changes:
                self._verbose = int(str(changes[_VERBOSE]))
                for name in _OURS:
                    logging.getLogger(name).setLevel(logging.DEBUG if self._verbose else logging.NOTSET)
            for handler in logging.getLogger().handlers:
                handler.addFilter(self)
        return self.settings()

    def close(self) -> None:
        """As it was before."""
        for handler in logging.getLogger().handlers:
            handler.removeFilter(self)
        if self._verbose:
            self.change({_VERBOSE: 0})


def _check(name: str, value: object) -> None:
    if name in _SWITCHES:
        if not isinstance(value, bool):
            raise _invalid(name, "true or false", value)
    elif name == _VERBOSE:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_VERBOSE:
            raise _invalid(name, "a whole number >= 0", value)
    elif name in _FIXED:
        only, remedy = _FIXED[name]
        if value != only:
            raise _invalid(name, repr(only), value, remedy)
    else:
        raise _invalid(name, "one of " + ", ".join((*_SWITCHES, _VERBOSE)), name)


def _invalid(name: str, expected: str, received: object, remedy: str = "") -> IngotError:
    message, shown = "a log setting cannot be set so", repr(received)[:100]
    return IngotError(
        ErrorCode.INVALID_ARGUMENT, message, field=name[:100], expected=expected, received=shown, remedy=remedy
    )
