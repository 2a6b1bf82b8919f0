"""Points of a space, and the space: known by asking a template, which says with each answer which knobs there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self, TypeAlias

from compiler_service.compiler.schedule.language.knobs import Answer, Knob, Knobs, Value, Values, as_the_model
from shared_ir.digest import canonical_json, sha256_hex

Make: TypeAlias = Callable[[Knobs], object]
"""A template: asks for what it leaves open, and raises where the answers fit together in no schedule."""


@dataclass(frozen=True)
class Point:
    """Answers, those that are not the model's. Equal ones have equal digests.

    Attributes:
        digest: sha256 of their canonical JSON, in hexadecimal.
    """

    values: Values = field(compare=False)
    digest: str

    @classmethod
    def of(cls, values: Values) -> Self:
        held = {name: _frozen(value) for name, value in sorted(values.items())}
        return cls(MappingProxyType(held), sha256_hex(canonical_json(held)))

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.values.items()) or "as the model has it"


DEFAULT = Point.of({})
"""Every answer the model's."""


@dataclass(frozen=True)
class AskedPoint:
    """A point, and what a template asked there.

    Attributes:
        knobs: by name, in the order in which they were asked for.
    """

    point: Point
    knobs: Mapping[str, Knob]


def asked_at(make: Make, values: Values, otherwise: Answer = as_the_model) -> AskedPoint | None:
    """What ``make`` comes to with ``values``, the rest answered by ``otherwise``; None where no schedule is made of them."""
    knobs = Knobs(values, otherwise)
    try:
        make(knobs)
    except Exception:  # a template of a user may raise what it likes
        return None
    return AskedPoint(Point.of(knobs.values), MappingProxyType(dict(knobs.asked)))


def _frozen(value: Any) -> Value:
    """``value`` with tuples for the lists of JSON."""
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value
