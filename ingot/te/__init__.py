"""Tensor expressions: write a computation, schedule it by hand, look at every stage, build it, call it.

::

    from ingot import te

    n = te.var("n")
    A, B = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    C = te.compute((n,), lambda i: A[i] + B[i], name="C")
    s = te.schedule(C)
    outer, inner = s[C].split("i", 64)
    s[C].vectorize(inner, 16).parallel(outer)
    add = te.build(s, [A, B])
"""

from shared_ir.extras import needing

with needing("compiler", "ingot.te"):
    from compiler_service.compiler.schedule.staging.instructions import INSTRUCTIONS, Instruction
    from ingot.functions import CompiledFunction, CompiledModule
    from ingot.te import nn
    from ingot.te.building import build, lower
    from ingot.te.expressions import (
        Dim,
        absolute,
        all_of,
        any_of,
        cast,
        ceil,
        const,
        cos,
        equal,
        erf,
        exp,
        floor,
        log,
        maximum,
        minimum,
        not_equal,
        power,
        round_to_even,
        rsqrt,
        select,
        sigmoid,
        sin,
        sqrt,
        tanh,
        var,
    )
    from ingot.te.loops import Loop
    from ingot.te.operators import register_operator
    from ingot.te.scheduling import Schedule, Stage, default_schedule, schedule
    from ingot.te.templates import Config, Template, template
    from ingot.te.tensors import Tensor, compute, max, min, placeholder, reduce, sum, text
    from ingot.te.tuning import Tuned, tune
    from shared_ir.expr import Expr

__all__ = (
    "INSTRUCTIONS",
    "CompiledFunction",
    "CompiledModule",
    "Config",
    "Dim",
    "Expr",
    "Instruction",
    "Loop",
    "Schedule",
    "Stage",
    "Template",
    "Tensor",
    "Tuned",
    "absolute",
    "all_of",
    "any_of",
    "build",
    "cast",
    "ceil",
    "compute",
    "const",
    "cos",
    "default_schedule",
    "equal",
    "erf",
    "exp",
    "floor",
    "log",
    "lower",
    "max",
    "maximum",
    "min",
    "minimum",
    "nn",
    "not_equal",
    "placeholder",
    "power",
    "reduce",
    "register_operator",
    "round_to_even",
    "rsqrt",
    "schedule",
    "select",
    "sigmoid",
    "sin",
    "sqrt",
    "sum",
    "tanh",
    "template",
    "text",
    "tune",
    "var",
)  # fmt: skip
