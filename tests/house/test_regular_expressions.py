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
TRUSTED = {"shared_ir.service_kit.settings._SERVICE_LINK": "names of variables, which who starts the service sets"}
"""What reads nothing that a client sends, and why."""


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
        if (name := str(kind)) in REPEATS:
            _, most, body = argument
            is_long = int(most) > _LONG
            if found := _trouble(list(body), inside=is_long):
                return found
            behind = flat[at + 1 :] + (flat[:at] if inside else [])
            if is_long and name != "POSSESSIVE_REPEAT":
                if inside and all(map(_may_be_empty, behind)):
                    return "a repeat is all that another one repeats"
                if rival := _rival(behind, _characters(list(body))):
                    return f"a repeat is followed by {rival}"
        for branch in _branches(kind, argument):
            if found := _trouble(branch, inside=inside):
                return found
    return ""


REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


def _flat(items: Items) -> Items:
    """Groups opened: their parts follow each other like any others."""
    found: Items = []
    for kind, argument in items:
        if str(kind) == "SUBPATTERN":
            found += _flat(list(argument[-1]))
        else:
            found.append((kind, argument))
    return found


def _rival(behind: Items, own: frozenset[int]) -> str:
    """Another long repeat that may begin with a character that the first one takes as well, with nothing in between that must be there
    and is not of them."""
    for number, (kind, argument) in enumerate(behind):
        shared = own & _first([(kind, argument)])
        if str(kind) in ("MAX_REPEAT", "MIN_REPEAT") and int(argument[1]) > _LONG and shared:
            return f"another of the same characters, {bytes(sorted(shared))[:20]!r}"
        for branch in _branches(kind, argument):
            if found := _rival([*_flat(branch), *behind[number + 1 :]], own):
                return found
        if not shared and not _may_be_empty((kind, argument)):
            return ""
    return ""


def _may_be_empty(item: tuple[Any, Any]) -> bool:
    name = str(item[0])
    if name == "BRANCH":
        return any(all(map(_may_be_empty, _flat(branch))) for branch in _branches(*item))
    return name in ("AT", "ASSERT", "ASSERT_NOT") or (name in REPEATS and item[1][0] == 0)


def _first(items: Items) -> frozenset[int]:
    """Characters that a match may begin with."""
    found: frozenset[int] = frozenset()
    for item in _flat(items):
        kind, argument = item
        if str(kind) in REPEATS:
            found |= _first(list(argument[2]))
        elif str(kind) == "BRANCH":
            found = found.union(*(_first(branch) for branch in _branches(kind, argument)))
        else:
            found |= _characters([item])
        if not _may_be_empty(item):
            break
    return found


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
        elif name in REPEATS:
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
    assert {name: why for name, why in found.items() if name not in TRUSTED} == {}
    assert set(TRUSTED) <= set(found)
