"""The passes of loop IR, in the order in which they run: from what lowering yields to what code generation takes."""

from __future__ import annotations

from collections.abc import Callable

from compiler_service.compiler.loop_ir.ir import Function
from compiler_service.compiler.loop_ir.passes.checkpoints import with_checkpoints
from compiler_service.compiler.loop_ir.passes.flatten import flatten
from compiler_service.compiler.loop_ir.passes.partition import partition
from compiler_service.compiler.loop_ir.passes.shuffle import shuffle
from compiler_service.compiler.loop_ir.passes.simplify import simplify
from compiler_service.compiler.loop_ir.passes.skip import skip
from compiler_service.compiler.loop_ir.passes.start import start
from compiler_service.compiler.loop_ir.passes.unroll import unroll
from compiler_service.compiler.loop_ir.passes.vectorize import vectorize
from compiler_service.compiler.loop_ir.text import print_function
from compiler_service.compiler.loop_ir.verify import verify
from compiler_service.compiler.reproducer import pass_fault
from shared_ir.errors import IngotError

LoopPass = Callable[[Function], Function]
Listener = Callable[[str, Function], None]
"""Called with the name of a pass and its result: verify, time, dump."""

LOOP_PASSES: tuple[tuple[str, LoopPass], ...] = (
    ("skip", skip),
    ("partition", partition),
    ("vectorize", vectorize),
    ("flatten", flatten),
    ("simplify", simplify),
    ("unroll", unroll),
    ("shuffle", shuffle),
    ("start", start),
    ("checkpoints", with_checkpoints),
)


def run(function: Function, listener: Listener | None = None, *, verifies: bool = False) -> Function:
    """Every pass in order; with ``verifies``, what comes in and what goes out is checked.

    Raises:
        IngotError: COMPILER_FAULT, the program has no flat vector form, or is not well formed, or a pass broke.
    """
    if verifies:
        verify(function)
    for name, loop_pass in LOOP_PASSES:
        function = _apply(name, loop_pass, function)
        if listener is not None:
            listener(name, function)
    if verifies:
        verify(function, flat=True)
    return function


def _apply(name: str, loop_pass: LoopPass, function: Function) -> Function:
    try:
        return loop_pass(function)
    except (IngotError, MemoryError):
        raise
    except Exception as error:
        raise pass_fault(name, name, [], print_function(function), error) from error
