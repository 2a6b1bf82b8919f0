"""What options of passes may be, as metadata of their fields: ``most: int = field(default=32, metadata=at_least(2))``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from shared_ir.errors import ErrorCode, IngotError


def at_least(least: float) -> Mapping[str, Any]:
    """Of a number."""
    return {"admits": lambda value: value >= least, "expected": f"at least {least}"}


def above(limit: float) -> Mapping[str, Any]:
    """Of a number."""
    return {"admits": lambda value: value > limit, "expected": f"more than {limit}"}


def among(*options: object) -> Mapping[str, Any]:
    """Of a value, or of each of several."""

    def admits(value: object) -> bool:
        return all(v in options for v in (value if isinstance(value, tuple) else (value,)))

    return {"admits": admits, "expected": ", ".join("none" if o is None else str(o) for o in options)}


def check_limits(options: object, owner: str) -> None:
    """Raise unless the fields of a dataclass, and of those in it, are within their limits.

    Raises:
        IngotError: INVALID_ARGUMENT, naming the field.
    """
    assert dataclasses.is_dataclass(options)
    for item in dataclasses.fields(options):
        value = getattr(options, item.name)
        if dataclasses.is_dataclass(value):
            check_limits(value, f"{owner}.{item.name}")
        elif "admits" in item.metadata and not item.metadata["admits"](value):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"{owner}.{item.name} is out of its limits",
                field="passes",
                expected=item.metadata["expected"],
                received=str(value),
            )
