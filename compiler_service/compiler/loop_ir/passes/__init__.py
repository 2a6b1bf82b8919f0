"""The passes of loop IR, in the order in which they run: from what lowering yields to what code generation takes."""

from __future__ import annotations

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
from compiler_service.compiler.loop_ir.pipeline import FLAT_CODE, LoopFact, LoopListener, LoopPass, LoopPipeline

_CONDITIONS_GONE = frozenset({LoopFact.VECTORIZED, LoopFact.FLAT, LoopFact.UNROLLED, LoopFact.CHECKPOINTED})
"""Behind these a condition on a loop is a mask, or stands in a hundred copies of the body."""

LOOP_PASSES: tuple[LoopPass, ...] = (
    LoopPass(
        "skip",
        skip,
        gives=frozenset({LoopFact.STEPS_SKIPPED}),
        forbids=_CONDITIONS_GONE | {LoopFact.LOOPS_CUT},  # a loop is cut where the steps to skip begin and end
    ),
    LoopPass(
        "partition",
        partition,
        needs=frozenset({LoopFact.STEPS_SKIPPED}),
        gives=frozenset({LoopFact.LOOPS_CUT}),
        forbids=_CONDITIONS_GONE,  # it leaves short loops to be unrolled
    ),
    LoopPass(
        "vectorize",
        vectorize,
        gives=frozenset({LoopFact.VECTORIZED}),
        forbids=frozenset({LoopFact.FLAT, LoopFact.UNROLLED, LoopFact.CHECKPOINTED}),  # lanes lie along an axis
    ),
    LoopPass(
        "flatten",
        flatten,
        needs=frozenset({LoopFact.VECTORIZED}),
        gives=frozenset({LoopFact.FLAT}),
        forbids=frozenset({LoopFact.UNROLLED, LoopFact.CHECKPOINTED}),  # one index is worked on instead of its copies
    ),
    LoopPass("simplify", simplify, gives=frozenset({LoopFact.SIMPLIFIED})),
    LoopPass(
        "unroll",
        unroll,
        needs=frozenset({LoopFact.FLAT, LoopFact.SIMPLIFIED}),
        gives=frozenset({LoopFact.UNROLLED}),
        forbids=frozenset({LoopFact.CHECKPOINTED}),
    ),
    LoopPass("shuffle", shuffle, needs=FLAT_CODE | {LoopFact.SIMPLIFIED}, forbids=frozenset({LoopFact.CHECKPOINTED})),
    LoopPass("start", start, needs=FLAT_CODE | {LoopFact.SIMPLIFIED}, forbids=frozenset({LoopFact.CHECKPOINTED})),
    LoopPass("checkpoints", with_checkpoints, needs=FLAT_CODE, gives=frozenset({LoopFact.CHECKPOINTED})),
)
"""In the order in which they run, for code of flat vectors."""


def run(function: Function, listener: LoopListener | None = None, *, verifies: bool = False) -> Function:
    """Every pass in order; see :meth:`~compiler_service.compiler.loop_ir.pipeline.LoopPipeline.run`."""
    return LoopPipeline(LOOP_PASSES).run(function, listener, verifies=verifies)
