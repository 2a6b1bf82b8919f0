"""Replicate the bodies of UNROLLED loops.

::

    for i in 0..2 unrolled:            acc[0] = x[m * 2]
        acc[i] = x[m * 2 + i]    ->    acc[1] = x[m * 2 + 1]

It comes last of the passes that rewrite indices, so that they work on one statement where there will be hundreds; copies are
in normal form as they are made. The binders of each copy get names of their own. Copies share the sub-expressions that do not
mention what distinguishes them, so a tile of R x C statements costs about R + C index rewrites. Loops of more copies than any tile
has are not unrolled, whatever their schedule says: their code would take longer to write than to run.
"""

from __future__ import annotations

from compiler_service.compiler.loop_ir.ir import For, ForKind, Function, Statement, walk_statements
from compiler_service.compiler.loop_ir.passes.faults import fault
from compiler_service.compiler.loop_ir.passes.rewrite import block, is_empty
from compiler_service.compiler.loop_ir.passes.simplify import Environment, StatementSimplifier
from shared_ir.expr import Const

_MOST_COPIES = 256


def unroll(function: Function) -> Function:
    """The same function without UNROLLED loops, simplified.

    Raises:
        IngotError: COMPILER_FAULT, the extent of an unrolled loop is not constant.
    """
    if not any(isinstance(s, For) and s.kind is ForKind.UNROLLED for s in walk_statements(function.body)):
        return function
    return _Unroller(function).run()


class _Unroller(StatementSimplifier):
    def loop(self, loop: For, env: Environment) -> Statement:
        if loop.kind is not ForKind.UNROLLED:
            return super().loop(loop, env)
        extent = self.expr(loop.extent, env)
        if not isinstance(extent, Const):
            fault(self.function, loop, f"extent of the unrolled loop {loop.var.name}", "a constant", extent)
        if extent.value > _MOST_COPIES:
            return super().loop(For(loop.var, extent, ForKind.SERIAL, loop.body), env)
        copies = [self.statement(loop.body, env | {loop.var: Const(index)}) for index in range(int(extent.value))]
        return block([copy for copy in copies if not is_empty(copy)])
