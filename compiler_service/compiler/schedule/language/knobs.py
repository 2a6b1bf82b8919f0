"""Knobs: what a template leaves open. A template is a function that asks for each size and order it needs, and says what the model of
the target would take; asked without values it gives the default schedule, with values another point of the same space.

::

    height = knobs.choice("rows", (4, 6, 8, 14), default=8)
    chunk = knobs.split("row chunk", extent=3136, multiple=height, default=256)

Which knobs there are may depend on what was answered before, so a space is known by asking: a point is the answers by their names, and
answers that no longer fit, since another one has changed, are those of the model again. AutoTVM calls this a template (Chen et al.,
"Learning to Optimize Tensor Programs", 2018); that spaces are defined by running is Optuna's idea (Akiba et al., 2019).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self, SupportsIndex, TypeAlias, TypeVar, cast

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim

Value: TypeAlias = "bool | int | str | tuple[Value, ...]"
"""An answer: what JSON can hold, lists as tuples."""

Values: TypeAlias = Mapping[str, Value]
"""Answers by the names of their knobs; a knob without one takes its default."""

T = TypeVar("T", bound=Value)
C = TypeVar("C")

NO_VALUES: Values = MappingProxyType({})
_MOST_WHOLE = 2**63 - 1
_MOST_NESTED = 8
"""Tuples within tuples of an option."""
_MOST_NUMBERS = 1 << 16
"""Largest number of options of a range."""
_MOST_EVEN_PIECES = 24
"""Largest number of pieces that a split offers to cut an extent into evenly."""


@dataclass(frozen=True)
class Knob:
    """One question of a template.

    Attributes:
        name: unique in the template.
        options: in an order in which neighbours are alike, where there is such an order.
        default: what the model of the target takes.
        value: what was taken.
    """

    name: str
    options: tuple[Value, ...]
    default: Value
    value: Value

    @property
    def neighbours(self) -> tuple[Value, ...]:
        """The options next to the value that was taken."""
        place = self.options.index(self.value)
        return tuple(self.options[i] for i in (place - 1, place + 1) if 0 <= i < len(self.options))


Answer: TypeAlias = Callable[[Knob], Value]
"""What a knob without a value gets, one of its options."""


def as_the_model(knob: Knob) -> Value:
    """The default of a knob."""
    return knob.default


class Knobs:
    """What a template asks.

    Attributes:
        asked: the knobs so far, by name, in the order in which they were asked for.

    Args:
        values: answers; one that is none of the options is not taken.
        otherwise: answers where ``values`` have none.
    """

    def __init__(self, values: Values = NO_VALUES, otherwise: Answer = as_the_model) -> None:
        self._values, self._otherwise = values, otherwise
        self.asked: dict[str, Knob] = {}
        self._prefix = ""
        self._hear: Callable[[Mapping[str, Knob]], None] = _unheard

    @property
    def is_default(self) -> bool:
        """Whether everything is answered by the model."""
        return not self._values and self._otherwise is as_the_model

    def watched(self, hear: Callable[[Mapping[str, Knob]], None]) -> Self:
        """The same knobs, of which ``hear`` is told those that were asked for, each time that one is; what it raises the template meets."""
        inner = copy(self)
        inner._hear = hear
        return inner

    def within(self, name: str) -> Self:
        """The same knobs for a part of the template: those that it asks for are called ``name.``, and what it calls them."""
        inner = copy(self)
        inner._prefix = f"{self._prefix}{name}."
        return inner

    @property
    def values(self) -> Values:
        """The answers that are not the model's: the point, as short as it can be said."""
        return {k.name: k.value for k in self.asked.values() if k.value != k.default}

    def choice(self, name: str, options: Iterable[T], default: T) -> T:
        """One of ``options``; ``default``, which is one of them whether they name it or not, as the model has it. Where there is no
        other, nothing is asked.

        Raises:
            IngotError: INVALID_ARGUMENT, a knob of this name was asked for before with other options, or an option is no :data:`Value`.
        """
        name = f"{self._prefix}{name}"
        options = tuple(options)
        _require_answers(name, (default, *options))
        listed = tuple(dict.fromkeys(options))
        listed = listed if default in listed else (default, *listed)
        known = self.asked.get(name)
        if known is None and len(listed) == 1:
            return default
        if known is None:
            given = self._values.get(name)
            knob = Knob(name, listed, default, default)
            value = given if any(_is_same(given, option) for option in listed) else self._otherwise(knob)
            known = self.asked[name] = Knob(name, listed, default, cast(Value, value))
            self._hear(self.asked)
        elif known.options != listed:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"the knob {name!r} is asked for twice, with other options",
                field=name,
                expected=str(known.options)[:80],
                received=str(listed)[:80],
            )
        return cast(T, known.value)

    def flag(self, name: str, *, default: bool) -> bool:
        """Whether to do something."""
        return self.choice(name, (False, True), default)

    def range(self, name: str, low: int, high: int, default: int, step: int = 1) -> int:
        """A whole number from ``low`` to ``high``, both included, in steps of ``step``.

        Raises:
            IngotError: INVALID_ARGUMENT, one of them is no whole number, ``step`` is below 1, or there are more than 65536 numbers.
        """
        for argument in (low, high, default):
            _require_whole(name, argument)
        _require_whole(name, step, 1)
        _require_whole(name, max(0, (high - low) // step + 1), 0, _MOST_NUMBERS)
        return self.choice(name, _sorted({*range(low, high + 1, step), default}), default)

    def split(self, name: str, extent: Dim, default: int, *, multiple: int = 1, most: int = 1 << 30) -> int:
        """Elements of a tile of an axis of ``extent``: multiples of ``multiple``, up to ``most``, that cut it into even pieces or divide
        it, powers of two of them, half and double of ``default``, and what covers all of it. Of an extent that only the run knows:
        powers of two of multiples.

        Raises:
            IngotError: INVALID_ARGUMENT, one of the last three is no whole number, or ``multiple`` is below 1.
        """
        _require_whole(name, default)
        _require_whole(name, multiple, 1)
        _require_whole(name, most)
        end = -(-extent // multiple) if isinstance(extent, int) else max(64, 4 * default // multiple)
        found = {1 << n for n in range(10)} | {end}
        if isinstance(extent, int):
            found |= set(_factors(end)) | {-(-end // n) for n in range(1, _MOST_EVEN_PIECES + 1)}
        found |= {max(1, default // 2 // multiple), 2 * default // multiple}
        return self.choice(
            name, _sorted({n * multiple for n in found if n <= end and n * multiple <= most} | {default}), default
        )

    def narrowed(self, found: Iterable[tuple[float, C]], **attributes: Callable[[C], Any]) -> C:
        """One of the candidates ``found``, each with what the model says that it costs, asked for one of its ``attributes`` after
        the other: of each, those of the candidates that are left are the options, and that of the cheapest is the default."""
        left = list(found)
        for name, of in attributes.items():
            best = min(left, key=_cost)[1]
            value = self.choice(name.replace("_", " "), sorted({of(c) for _, c in left}), of(best))
            left = [(cost, c) for cost, c in left if of(c) == value]
        return min(left, key=_cost)[1]


def _unheard(asked: Mapping[str, Knob]) -> None:
    """Nobody is told."""


def _cost(entry: tuple[float, object]) -> float:
    return entry[0]


def _is_same(given: object, option: Value) -> bool:
    """Whether they are equal, and of one type: JSON tells true from 1."""
    return given == option and isinstance(given, bool) == isinstance(option, bool)


def _require_answers(name: str, options: Iterable[object]) -> None:
    for option in (name, *options):
        if not _is_answer(option, _MOST_NESTED):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"an option of the knob {name!a}, or its name, cannot be put on record",
                field=ascii(name)[1:-1],
                expected=f"whole numbers of 64 bits, texts, true or false, or tuples of such, at most {_MOST_NESTED} in each other",
                received=_shown(option),
            )


def _is_answer(option: object, nested: int) -> bool:
    if isinstance(option, tuple):
        return nested > 0 and all(_is_answer(part, nested - 1) for part in option)
    if isinstance(option, str):
        return option.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in option)  # halves of letters
    return isinstance(option, int) and abs(option) <= _MOST_WHOLE


def _shown(option: object) -> str:
    try:
        return ascii(option)[:80]
    except (ValueError, RecursionError):  # more digits than are printed, or nested deep
        return f"a very long {type(option).__name__}"


def _require_whole(name: str, given: object, least: int = -_MOST_WHOLE, most: int = _MOST_WHOLE) -> None:
    if not isinstance(given, SupportsIndex) or not least <= operator.index(given) <= most:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"the knob {name!r} cannot be asked for",
            field=name,
            expected=f"whole numbers, this one from {least} to {most}",
            received=_shown(given),
        )


def _factors(number: int) -> Sequence[int]:
    return [n for n in range(1, min(number, 4096) + 1) if number % n == 0] + [number]


def _sorted(numbers: Iterable[int]) -> Sequence[int]:
    return sorted(numbers)
