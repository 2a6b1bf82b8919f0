"""Types of ours that public signatures name, and that nobody exports: records that calls return, and names for what they take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from scripts.public_members import Member, constructor, lineage, members
from scripts.public_names import MODULES, Definition, Signature, find, is_class, public_names, value_text

_NAME = re.compile(r"[A-Za-z_]\w*")


def named_types() -> tuple[Definition, ...]:
    """In the order of their names. Those of ``ingot`` bring along what they name; of others only they themselves are told."""
    public = exports()
    waiting, found = list(public), dict[tuple[str, str], Definition]()
    while waiting:
        for each in _named_by(waiting.pop()):
            key = each.module, each.name
            if each in public or key in found:
                continue
            found[key] = each
            if each.module.partition(".")[0] == "ingot":
                waiting.append(each)
    told: dict[tuple[str, str], Definition] = {}
    for _, each in sorted(found.items()):
        told.setdefault((each.name, each.docstring or value_text(each).removesuffix("[Any, Any]")), each)
    return tuple(sorted(told.values(), key=lambda d: (d.name, d.module)))


@cache
def exports() -> frozenset[Definition]:
    """What users import by name."""
    return frozenset(p.definition for m in MODULES for p in public_names(m) if p.definition)


def is_for_users(found: Definition) -> bool:
    return found in exports() or found.module.partition(".")[0] == "ingot"


def made_by_users(found: Definition) -> Signature | None:
    """What a class is called with, unless that takes what users do not have."""
    called = constructor(found)
    named = _types(found, (p.annotation for p in called.parameters if p.annotation)) if called else ()
    return called if all(not is_class(each) or is_for_users(each) for each in named) else None


def told_above(found: Definition) -> Definition | None:
    """The nearest class that it is derived from and that users have too, by another name: what is told there is not told again."""
    return next((each for each in lineage(found)[1:] if each in exports() and each.name != found.name), None)


def shown_members(found: Definition) -> tuple[Member, ...]:
    """Those that no other class of the page tells of."""
    above = told_above(found)
    elsewhere = lineage(above) if above else ()
    return tuple(m for m in members(found) if not m.is_override and m.owner not in elsewhere)


def _named_by(found: Definition) -> Iterator[Definition]:
    """The types that its signature, or those of its members, name."""
    yield from _types(found, _annotations(found))


def _types(found: Definition, annotations: Iterable[str]) -> Iterator[Definition]:
    places = lineage(found) if is_class(found) else (found,)
    for text in annotations:
        for name in sorted(set(_NAME.findall(text))):
            meanings = (find(place.module, name) for place in places)
            meaning = next((m for m in meanings if m is not None), None)
            if meaning is not None and not meaning.is_function and not name.startswith("_"):
                yield meaning


def _annotations(found: Definition) -> Iterator[str]:
    if is_class(found):
        own = shown_members(found)
        signatures = [m.signature for m in own if m.signature]
        yield from (m.type for m in own if m.type and m.docstring)
        signatures += [called] if (called := made_by_users(found)) else []
    else:
        signatures = list(found.signatures)
        if found.is_constant and found.name[0].isupper() and not found.name.isupper():
            yield value_text(found)
    for signature in signatures:
        yield from (p.annotation for p in signature.parameters if p.annotation)
        yield signature.result or ""
