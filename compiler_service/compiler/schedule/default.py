"""Default schedules: the first rule that applies wins. A rule is ``(kernel, target) -> Schedule | None``.

The rules come from an analytical model of the target (register count, vector width, cache sizes, cores), not from measurements:
they must be good untuned and for targets that cannot be measured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from compiler_service.compiler.schedule.algorithms.attention.rule import attention_candidates, attention_schedule
from compiler_service.compiler.schedule.algorithms.byte_dots.rule import byte_dot_candidates, byte_dot_schedule
from compiler_service.compiler.schedule.algorithms.diagonals.rule import grouped_schedule
from compiler_service.compiler.schedule.algorithms.folded.rule import folded_schedule
from compiler_service.compiler.schedule.algorithms.strassen.rule import strassen_schedule
from compiler_service.compiler.schedule.algorithms.winograd.rule import winograd_schedule
from compiler_service.compiler.schedule.language.steps import Parallel, Recompute, Schedule
from compiler_service.compiler.schedule.model.analysis import KernelView, accumulated, inlined
from compiler_service.compiler.schedule.rules.column import column_schedule
from compiler_service.compiler.schedule.rules.contraction.blocks import block_schedule
from compiler_service.compiler.schedule.rules.contraction.few_columns import few_columns_schedule
from compiler_service.compiler.schedule.rules.contraction.rule import contraction_candidates, contraction_schedule
from compiler_service.compiler.schedule.rules.elementwise import elementwise_schedule
from compiler_service.compiler.schedule.rules.head import head_schedule
from compiler_service.compiler.schedule.rules.reused import reused_schedule
from compiler_service.compiler.schedule.rules.row import row_schedule
from compiler_service.compiler.schedule.rules.window import window_schedule
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target

Rule = Callable[[KernelView, Target], Schedule | None]


def empty_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    """Nothing to tile: an extent is 0 in every run."""
    extents = (a.extent for s in kernel.state.stages.values() for a in s.compute.all_axes)
    return (row_schedule(kernel, target) or inlined(kernel.state)) if any(extent == 0 for extent in extents) else None


RULES: tuple[tuple[str, Rule], ...] = (
    ("empty", empty_schedule),  # an extent of 0
    ("attention", attention_schedule),  # product, softmax, product
    ("blocks", block_schedule),  # sums of products that are scaled before they are added up: weights of 4 bits
    ("grouped", grouped_schedule),  # convolutions of groups narrower than a vector
    ("bytes", byte_dot_schedule),  # sums of products of bytes, where the target has an instruction for them
    ("few columns", few_columns_schedule),  # sums of products with fewer results of a row than a vector has lanes
    ("folded", folded_schedule),  # products of columns that fill no whole number of vectors
    ("contraction", contraction_schedule),  # sum of products: matmul, convolution
    (
        "head",
        head_schedule,
    ),  # sums across contiguous axes, which others then go along: the mean of all pixels, normalised
    ("window", window_schedule),  # reductions with a contiguous spatial axis: pooling, depthwise, global pooling
    ("column", column_schedule),  # reductions across contiguous axes: instance normalisation in channels-last layout
    ("row", row_schedule),  # reductions along contiguous axes: softmax, normalisation
    ("reused", reused_schedule),  # no reduction left, but parts that many elements share: interpolation
    ("elementwise", elementwise_schedule),  # no reduction left
)


METHODS: tuple[tuple[str, Rule], ...] = (
    ("winograd", winograd_schedule),  # convolutions by minimal filtering
    ("strassen", strassen_schedule),  # products by seven products of half the size
)
"""Rules that come before the others where they are asked for: their rounding errors are larger than those of plain sums."""


def default_schedule(
    output: Tensor, constants: frozenset[Tensor], target: Target, methods: Collection[str] = ()
) -> Schedule:
    """The schedule of the first rule that applies; ``methods`` names those of :data:`METHODS` that may.

    Raises:
        IngotError: COMPILER_FAULT, no rule applies (the row rule takes every kernel with a reduction).
    """
    kernel = KernelView.of(output, constants)
    for _, rule in (*(m for m in METHODS if m[0] in methods and empty_schedule(kernel, target) is None), *RULES):
        schedule = rule(kernel, target)
        if schedule is not None:
            return schedule
    raise IngotError(ErrorCode.COMPILER_FAULT, "no schedule rule applies", tensor=output.name)


def each_by_itself(kernel: KernelView, target: Target) -> Schedule:
    """One element of the output after the other, each with all that it needs."""
    steps = accumulated(kernel)
    steps += inlined(kernel.after(steps))
    output = kernel.after(steps).output
    tasks = tuple(a.name for a in output.compute.axes[:1])
    return (*steps, Recompute(), *((Parallel(output.name, tasks),) if tasks else ()))


PLAIN_RULES: tuple[Rule, ...] = (row_schedule, each_by_itself)
"""What a kernel is compiled with where the schedule of its rule does not fit it. The last fits every kernel."""


def candidate_schedules(
    output: Tensor, constants: frozenset[Tensor], target: Target, methods: Collection[str] = ()
) -> tuple[Schedule, ...]:
    """Schedules worth measuring, the default first, whatever rule it comes from; it alone where no other is known."""
    kernel = KernelView.of(output, constants)
    default = default_schedule(output, constants, target, methods)
    makers = (attention_candidates, byte_dot_candidates, contraction_candidates)
    others = next((found for make in makers if (found := make(kernel, target))), ())
    return tuple(dict.fromkeys((default, *others)))
