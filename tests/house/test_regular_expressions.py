"""No regular expression takes more than about linear time, whatever it is asked of: a client sends what it likes.

What makes one slow is two repeats side by side that can take the same characters, or one around another: how many characters each of
them has is tried in all ways. A possessive repeat (``++``) gives nothing back, and is tried in one way.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import ingot
import runtime_service
import shared_ir

_parser: Any = importlib.import_module("re._parser")
_LONG = 64
"""Repeats of fewer characters take no time to speak of."""
Items = list[tuple[Any, Any]]
EVERYTHING = frozenset(range(256))


def patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    for package in (runtime_service, shared_ir, ingot):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".pb." in module.name or module.name.endswith("__main__"):
                continue
            try:
                found = vars(importlib.import_module(module.name))
            except ImportError:  # of an extra that is not installed here
                continue
            for name, value in found.items():
                if isinstance(value, re.Pattern):
                    yield f"{module.name}.{name}", value


def trouble(pattern: re.Pattern[Any]) -> str:
    """Why it may take long; empty where it does not."""
    return _trouble(list(_parser.parse(pattern.pattern, pattern.flags & re.VERBOSE)), inside=False)


def _trouble(items: Items, *, inside: bool) -> str:
    """Of one sequence; ``inside`` of a repeat its end is followed by its beginning."""
    flat = _flat(items)
    for at, (kind, argument) in enumerate(flat):
        name = str(kind)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            _, most, body = argument
            is_open = name != "POSSESSIVE_REPEAT" and int(most) > _LONG
            if found := _trouble(list(body), inside=int(most) > _LONG):
                return found
            if is_open and inside and _is_all_there_is(flat, at):
                return "a repeat is all that another one repeats"
            if is_open and (rival := _rival(flat[at + 1 :], _characters(list(body)))):
                return f"a repeat is followed by {rival}"
        for branch in _branches(kind, argument):
            if found := _trouble(branch, inside=inside):
                return found
    return ""


def _flat(items: Items) -> Items:
    """Groups opened: their parts follow each other like any others."""
    found: Items = []
    for kind, argument in items:
        if str(kind) == "SUBPATTERN":
            found += _flat(list(argument[-1]))
        else:
            found.append((kind, argument))
    return found


def _is_all_there_is(flat: Items, at: int) -> bool:
    return all(_may_be_empty(item) for number, item in enumerate(flat) if number != at)


def _rival(behind: Items, own: frozenset[int]) -> str:
    """Another long repeat of characters that the first one takes as well, with nothing in between that must be there and is not of them."""
    for kind, argument in behind:
        name = str(kind)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, body = argument
            shared = own & _characters(list(body))
            if int(most) > _LONG and shared:
                return f"another of the same characters, {bytes(sorted(shared))[:20]!r}"
            if least and not shared:
                return ""
        elif name == "BRANCH" or name == "POSSESSIVE_REPEAT":
            continue
        elif not own & _characters([(kind, argument)]):
            return ""
    return ""


def _may_be_empty(item: tuple[Any, Any]) -> bool:
    name = str(item[0])
    return name in ("AT", "ASSERT", "ASSERT_NOT") or (name.endswith("_REPEAT") and item[1][0] == 0)


def _branches(kind: Any, argument: Any) -> list[Items]:
    return [list(branch) for branch in argument[1]] if str(kind) == "BRANCH" else []


def _characters(items: Items) -> frozenset[int]:
    """Those that can be part of a match."""
    found: set[int] = set()
    for kind, argument in _flat(items):
        name = str(kind)
        if name == "LITERAL":
            found.add(min(argument, 255))
        elif name == "NOT_LITERAL":
            found |= EVERYTHING - {argument}
        elif name == "IN":
            found |= _of_class(argument)
        elif name.endswith("_REPEAT"):
            found |= _characters(list(argument[2]))
        elif name == "BRANCH":
            for branch in argument[1]:
                found |= _characters(list(branch))
        elif name == "ANY":
            found |= EVERYTHING
    return frozenset(found)


def _of_class(items: Any) -> frozenset[int]:
    found: set[int] = set()
    is_negated = False
    for kind, argument in items:
        name = str(kind)
        if name == "NEGATE":
            is_negated = True
        elif name == "LITERAL":
            found.add(min(argument, 255))
        elif name == "RANGE":
            found |= set(range(argument[0], min(argument[1], 255) + 1))
        else:
            category = {"CATEGORY_DIGIT": r"\d", "CATEGORY_SPACE": r"\s", "CATEGORY_WORD": r"\w"}.get(
                str(argument), "."
            )
            found |= {code for code in EVERYTHING if re.match(category, chr(code), re.DOTALL)}
    return EVERYTHING - found if is_negated else frozenset(found)


@pytest.mark.parametrize(
    "pattern", [r"a*b*a", r"[ \t]*([^x]*?)[ \t]*", r"(a+)+b", r"(\w*\s?)*x", r"x(.*)=(.*);", r"\d+\w+"]
)
def test_slow_ones_are_found(pattern: str) -> None:
    expected = pattern != r"a*b*a"  # between the two there is nothing that both could take
    assert bool(trouble(re.compile(pattern))) is expected


@pytest.mark.parametrize(
    "pattern", [r"[ \t]*+([^x]*+)y", r"a+b+c", r"(\w+,)*\w", r"[a-z]+=[0-9]+", r"(?:ab)*c\d{0,5}\d*"]
)
def test_others_are_not(pattern: str) -> None:
    assert trouble(re.compile(pattern)) == ""


def test_none_takes_long() -> None:
    found = {name: why for name, pattern in patterns() if (why := trouble(pattern))}
    assert found == {}
