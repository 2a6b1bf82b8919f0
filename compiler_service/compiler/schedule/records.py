"""Schedules as JSON and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from types import MappingProxyType
from typing import Any

from compiler_service.compiler.schedule.default import METHODS, RULES
from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.steps import PLAIN_STEPS
from shared_ir.errors import ErrorCode, IngotError

_STEPS: Mapping[str, type[Any]] = MappingProxyType(
    {**PLAIN_STEPS, **{row.step.name: row.step for row in (*RULES, *METHODS) if row.step is not None}}
)
_NAMES = {cls: name for name, cls in _STEPS.items()}


def to_json(schedule: Schedule) -> list[dict[str, Any]]:
    """JSON form of a schedule: one object a step, ``step`` first."""
    return [{"step": _NAMES[type(s)], **asdict(s)} for s in schedule]


def from_json(data: list[dict[str, Any]]) -> Schedule:
    """The inverse of :func:`to_json`.

    Raises:
        IngotError: INVALID_ARGUMENT, an unknown step or a missing or unknown argument.
    """
    return tuple(_step(entry) for entry in data)


def _step(entry: dict[str, Any]) -> Step:
    arguments = {k: _tuples(v) for k, v in entry.items() if k != "step"}
    cls = _STEPS.get(str(entry.get("step")))
    if cls is None or not set(arguments) <= {f.name for f in fields(cls)}:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT, "not a schedule step", received=str(entry), expected=", ".join(_STEPS)
        )
    step: Step = cls(**arguments)
    return step


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, (list, tuple)) else value


def to_text(schedule: Schedule) -> str:
    """One step a line, as DEBUG=3 prints them."""
    return "\n".join(f"{_NAMES[type(s)]}({', '.join(repr(getattr(s, f.name)) for f in fields(s))})" for s in schedule)
