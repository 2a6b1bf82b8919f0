"""Passes of loop IR, what each of them needs and gives, and the pipeline that runs them."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from compiler_service.compiler.loop_ir.ir import Function
from compiler_service.compiler.loop_ir.text import print_function
from compiler_service.compiler.loop_ir.verify import verify
from compiler_service.compiler.pass_order import check_order
from compiler_service.compiler.reproducer import pass_fault
from shared_ir.errors import IngotError


class LoopFact(enum.StrEnum):
    """True of a function from the pass that gives it onwards."""

    STEPS_SKIPPED = "steps-skipped"  # steps of reductions that add nothing are under a condition
    LOOPS_CUT = "loops-cut"  # where a condition on their variable changes
    VECTORIZED = "vectorized"  # no loop is over lanes, and conditions on them are masks
    FLAT = "flat"  # every buffer has one axis
    SIMPLIFIED = "simplified"  # integers are in normal form
    UNROLLED = "unrolled"  # what a schedule unrolls is straight code
    CHECKPOINTED = "checkpointed"  # what takes long looks whether it is to end


FLAT_CODE = frozenset({LoopFact.VECTORIZED, LoopFact.FLAT, LoopFact.UNROLLED})
"""What :func:`~compiler_service.compiler.loop_ir.verify.verify` calls flat, and code is made from."""
NO_FACTS: frozenset[LoopFact] = frozenset()


@dataclass(frozen=True)
class LoopPass:
    """A transformation of loop functions.

    Attributes:
        name: how the pass is called in dumps and errors.
        apply: the transformed function; the same object where nothing changed.
        needs: facts without which it would do nothing, or the wrong thing; whoever gives them comes before.
        gives: facts that hold behind it.
        forbids: facts behind which it would do nothing, or the wrong thing; whoever gives them comes later.
    """

    name: str
    apply: Callable[[Function], Function]
    needs: frozenset[LoopFact] = NO_FACTS
    gives: frozenset[LoopFact] = NO_FACTS
    forbids: frozenset[LoopFact] = NO_FACTS

    def given(self) -> frozenset[LoopFact]:
        """Facts that hold behind it."""
        return self.gives


LoopListener = Callable[[LoopPass, Function], None]
"""Called with a pass and its result: verify, time, dump."""


@dataclass(frozen=True)
class LoopPipeline:
    """Passes in the order in which they run.

    Raises:
        IngotError: INVALID_ARGUMENT, the order is not what the passes declare; see
            :func:`~compiler_service.compiler.pass_order.check_order`.
    """

    passes: tuple[LoopPass, ...]

    def __post_init__(self) -> None:
        check_order(self.passes)

    def __str__(self) -> str:
        return ",".join(item.name for item in self.passes)

    def run(self, function: Function, listener: LoopListener | None = None, *, verifies: bool = False) -> Function:
        """``function`` after every pass; with ``verifies``, what comes in and what goes out is checked.

        Raises:
            IngotError: COMPILER_FAULT, the program has no flat vector form, or is not well formed, or a pass broke.
        """
        if verifies:
            verify(function)
        for item in self.passes:
            function = _applied(item, function)
            if listener is not None:
                listener(item, function)
        if verifies:
            given = NO_FACTS.union(*(item.gives for item in self.passes))
            verify(function, flat=given >= FLAT_CODE)
        return function


def _applied(item: LoopPass, function: Function) -> Function:
    try:
        return item.apply(function)
    except (IngotError, MemoryError):
        raise
    except Exception as error:
        raise pass_fault(item.name, item.name, [], print_function(function), error) from error
