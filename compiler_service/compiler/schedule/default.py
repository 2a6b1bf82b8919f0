"""Default schedules: the first rule that applies wins. A rule is ``(kernel, target) -> Schedule | None``.

The rules come from an analytical model of the target (register count, vector width, cache sizes, cores), not from measurements:
they must be good untuned and for targets that cannot be measured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from compiler_service.compiler.schedule.algorithms.attention.rule import attention_schedule
from compiler_service.compiler.schedule.algorithms.attention.step import Attend
from compiler_service.compiler.schedule.algorithms.byte_dots.rule import byte_dot_schedule
from compiler_service.compiler.schedule.algorithms.byte_dots.step import DotBytes
from compiler_service.compiler.schedule.algorithms.diagonals.rule import grouped_schedule
from compiler_service.compiler.schedule.algorithms.diagonals.step import Diagonals
from compiler_service.compiler.schedule.algorithms.folded.rule import folded_schedule
from compiler_service.compiler.schedule.algorithms.folded.step import Fold
from compiler_service.compiler.schedule.algorithms.strassen.rule import strassen_schedule
from compiler_service.compiler.schedule.algorithms.strassen.step import Strassen
from compiler_service.compiler.schedule.algorithms.winograd.rule import winograd_schedule
from compiler_service.compiler.schedule.algorithms.winograd.step import Winograd
from compiler_service.compiler.schedule.language.algorithm import AlgorithmStep, NestStep
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.steps import Parallel, Recompute
from compiler_service.compiler.schedule.model.analysis import KernelView, accumulated, inlined
from compiler_service.compiler.schedule.rules.column import column_schedule
from compiler_service.compiler.schedule.rules.contraction.blocks import block_schedule
from compiler_service.compiler.schedule.rules.contraction.few_columns import few_columns_schedule
from compiler_service.compiler.schedule.rules.contraction.rule import contraction_schedule
from compiler_service.compiler.schedule.rules.elementwise import elementwise_schedule
from compiler_service.compiler.schedule.rules.head import head_schedule
from compiler_service.compiler.schedule.rules.reused import reused_schedule
from compiler_service.compiler.schedule.rules.row import row_schedule
from compiler_service.compiler.schedule.rules.window import window_schedule
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target

Rule = Callable[[KernelView, Target], Schedule | None]
_KERNELS_REMEMBERED = 64
"""Number of kernels of which it is remembered which rules have a schedule."""


def empty_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    """Nothing to tile: an extent is 0 in every run."""
    extents = (a.extent for s in kernel.state.stages.values() for a in s.compute.all_axes)
    return (row_schedule(kernel, target) or inlined(kernel.state)) if any(extent == 0 for extent in extents) else None


@dataclass(frozen=True)
class ChosenSchedule:
    """A schedule and the name of the rule that gave it."""

    rule: str
    schedule: Schedule


@dataclass(frozen=True)
class RuleRow:
    """A rule by the name that reports give it.

    Attributes:
        step: of its algorithm, where it has one of its own.
    """

    name: str
    rule: Rule
    step: type[AlgorithmStep] | type[NestStep] | None = None

    def by_itself(self, kernel: KernelView, target: Target) -> Schedule | None:
        """What the rule gives where its knobs, which may be called like those of another one, are answered as the model has it."""
        return self.rule(kernel.answered_by(Knobs()), target)


RULES: tuple[RuleRow, ...] = (
    RuleRow("empty", empty_schedule),  # an extent of 0
    RuleRow("attention", attention_schedule, Attend),  # product, softmax, product
    RuleRow("blocks", block_schedule),  # sums of products that are scaled before they are added up: weights of 4 bits
    RuleRow("grouped", grouped_schedule, Diagonals),  # convolutions of groups narrower than a vector
    RuleRow("bytes", byte_dot_schedule, DotBytes),  # sums of products of bytes, by an instruction of the target
    RuleRow(
        "few columns", few_columns_schedule
    ),  # sums of products with fewer results of a row than a vector has lanes
    RuleRow("folded", folded_schedule, Fold),  # products of columns that fill no whole number of vectors
    RuleRow("contraction", contraction_schedule),  # sum of products: matmul, convolution
    RuleRow(
        "head", head_schedule
    ),  # sums across contiguous axes, which others then go along: the mean of all pixels, normalised
    RuleRow("window", window_schedule),  # reductions with a contiguous spatial axis: pooling, depthwise, global pooling
    RuleRow(
        "column", column_schedule
    ),  # reductions across contiguous axes: instance normalisation in channels-last layout
    RuleRow("row", row_schedule),  # reductions along contiguous axes: softmax, normalisation
    RuleRow("reused", reused_schedule),  # no reduction left, but parts that many elements share: interpolation
    RuleRow("elementwise", elementwise_schedule),  # no reduction left
)


METHODS: tuple[RuleRow, ...] = (
    RuleRow("winograd", winograd_schedule, Winograd),  # convolutions by minimal filtering
    RuleRow("strassen", strassen_schedule, Strassen),  # products by seven products of half the size
)
"""Rules that come before the others where they are asked for: their rounding errors are larger than those of plain sums."""


def methods_of(schedule: Schedule) -> frozenset[str]:
    """Names of the methods of ``schedule``: its results differ from plain sums by more than the rounding errors of these."""
    return frozenset(row.name for row in METHODS if any(type(step) is row.step for step in schedule))


def default_schedule(
    output: Tensor, constants: frozenset[Tensor], target: Target, methods: Collection[str] = ()
) -> Schedule:
    """The schedule of :func:`chosen_schedule`."""
    return chosen_schedule(output, constants, target, methods).schedule


def chosen_schedule(
    output: Tensor,
    constants: frozenset[Tensor],
    target: Target,
    methods: Collection[str] = (),
    rules: Sequence[RuleRow] = RULES,
) -> ChosenSchedule:
    """The schedule of the first of ``rules`` that applies; ``methods`` names those of :data:`METHODS` that may.

    Raises:
        IngotError: COMPILER_FAULT, no rule applies (the row rule takes every kernel with a reduction).
    """
    kernel = KernelView.of(output, constants)
    asked = [row for row in METHODS if row.name in methods] if empty_schedule(kernel, target) is None else []
    for row in (*asked, *rules):
        schedule = row.by_itself(kernel, target)
        if schedule is not None:
            return ChosenSchedule(row.name, schedule)
    raise IngotError(ErrorCode.COMPILER_FAULT, "no schedule rule applies", tensor=output.name)


def each_by_itself(kernel: KernelView, target: Target) -> Schedule:
    """One element of the output after the other, each with all that it needs."""
    steps = accumulated(kernel)
    steps += inlined(kernel.after(steps))
    output = kernel.after(steps).output
    tasks = tuple(a.name for a in output.compute.axes[:1])
    return (*steps, Recompute(), *((Parallel(output.name, tasks),) if tasks else ()))


PLAIN_RULES: tuple[RuleRow, ...] = (RuleRow("plain row", row_schedule), RuleRow("each by itself", each_by_itself))
"""What a kernel is compiled with where the schedule of its rule does not fit it. The last fits every kernel."""


def open_schedule(
    kernel: KernelView, target: Target, methods: Collection[str] = (), rules: Sequence[RuleRow] = RULES
) -> ChosenSchedule:
    """A point of the space of ``kernel``: the rule is a knob, and so is what it leaves open. As the model answers, it is what
    :func:`chosen_schedule` gives.

    Raises:
        IngotError: COMPILER_FAULT, no rule applies; INVALID_ARGUMENT, what the knobs say does not fit together.
    """
    rows = (*(row for row in METHODS if row.name in methods), *rules)
    default, names = _fitting(kernel.output, kernel.constants, target, rows)
    name = kernel.knobs.choice("rule", names, default)
    schedule = next(row for row in rows if row.name == name).rule(replace(kernel, is_open=True), target)
    if schedule is None:
        message = f"the rule {name!r} has no schedule for what its knobs say"
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, tensor=kernel.output.name)
    return ChosenSchedule(name, schedule)


@lru_cache(maxsize=_KERNELS_REMEMBERED)
def _fitting(
    output: Tensor, constants: frozenset[Tensor], target: Target, rows: tuple[RuleRow, ...]
) -> tuple[str, tuple[str, ...]]:
    """(the rule that the model takes, all that have a schedule); it is the same for each point of a space."""
    kernel = KernelView.of(output, constants)
    is_empty = empty_schedule(kernel, target) is not None
    if is_empty:
        rows = tuple(row for row in rows if row not in METHODS)
    default = next((row.name for row in rows if row.by_itself(kernel, target) is not None), None)
    if default is None:
        raise IngotError(ErrorCode.COMPILER_FAULT, "no schedule rule applies", tensor=output.name)
    anyway = replace(kernel, is_open=True)
    names = (row.name for row in rows if row.by_itself(anyway, target) is not None)
    return default, (default,) if is_empty else tuple(names)
