"""The order of passes as data: what each needs, gives and forbids, checked when a pipeline is put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from shared_ir.errors import ErrorCode, IngotError

Fact = TypeVar("Fact", bound=str)
Given_co = TypeVar("Given_co", bound=str, covariant=True)


class OrderedPass(Protocol[Given_co]):
    """A pass that says where it belongs; facts are members of an enumeration, or names.

    Attributes:
        name: how the pass is called in options, dumps and errors.
        needs: facts without which it would do nothing, or the wrong thing; whoever gives them comes before.
        forbids: facts behind which it would do nothing, or the wrong thing; whoever gives them comes later.
    """

    @property
    def name(self) -> str: ...

    @property
    def needs(self) -> frozenset[Given_co]: ...

    @property
    def forbids(self) -> frozenset[Given_co]: ...

    def given(self) -> frozenset[Given_co]:
        """Facts that hold behind it."""


def check_order(passes: Sequence[OrderedPass[Fact]]) -> None:
    """What nobody gives is no matter: the program may come so.

    Raises:
        IngotError: INVALID_ARGUMENT, one comes before another that gives what it needs, or behind one that gives what it forbids.
    """
    later = {fact: item for item in reversed(passes) for fact in item.given()}
    given: dict[Fact, OrderedPass[Fact]] = {}
    for item in passes:
        for fact in sorted(item.needs & (later.keys() - given.keys())):
            raise _misplaced(item, "needs", fact, later[fact], "behind")
        for fact in sorted(item.forbids & given.keys()):
            raise _misplaced(item, "must not find", fact, given[fact], "before")
        given.update((fact, item) for fact in item.given() - given.keys())


def _misplaced(item: OrderedPass[Fact], verb: str, fact: Fact, giver: OrderedPass[Fact], place: str) -> IngotError:
    remedy = f"Put {item.name} {place} {giver.name}, or leave one of them out."
    if item.name == giver.name:
        remedy = f"Run {item.name} once."
    where = "comes before" if place == "behind" else "comes behind"
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        f"pass {item.name!r} {verb} {fact!s} and {where} pass {giver.name!r}, which gives it",
        field="passes",
        expected=f"{item.name} {place} {giver.name}",
        received=f"{item.name} {where.removeprefix('comes ')} {giver.name}",
        remedy=remedy,
    )
