"""Kernels of a model: definitions with their schedules, each distinct one built once."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from compiler_service.compiler.loop_ir.algorithms.table import algorithm_function, is_proven
from compiler_service.compiler.loop_ir.ir import Block, Buffer, Function
from compiler_service.compiler.loop_ir.positions.proof import required_extents
from compiler_service.compiler.loop_ir.positions.unproven import UnprovenPositionError
from compiler_service.compiler.schedule.default import (
    PLAIN_RULES,
    RULES,
    ChosenSchedule,
    RuleRow,
    chosen_schedule,
    open_schedule,
)
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.packing import Preparation, preparation_of
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.state import stage_names
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.schedule.model.analysis import KernelView
from compiler_service.compiler.tensor_expr.assumptions import Assumption, reached
from compiler_service.compiler.tensor_expr.kernel.algorithm import AlgorithmDefinition
from compiler_service.compiler.tensor_expr.kernel.external import ExternalDefinition
from compiler_service.compiler.tensor_expr.kernel.group import KernelDefinition
from compiler_service.compiler.tensor_expr.registry import is_own
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Var, equal, lift, select
from shared_ir.expr.dim import Dim, as_dim, bind, dims_text, product
from shared_ir.graph.ir import Graph, Value
from shared_ir.machine.target import Target

ScheduleSource = Callable[["Kernel", Collection[str]], Schedule | None]
"""A tuned schedule for a kernel, or None to take the default."""


@dataclass(frozen=True)
class Kernel(ABC):
    """One native function, shared by every launch whose definition prints equal.

    Attributes:
        key: text that tells kernels apart: the definition and which arguments are constant.
        definition: the first definition with this key.
        constant: for each argument, whether its elements are known at compile time and may be packed.
        elements: for each argument that is constant, what it is in each of the launches; nothing for others.
    """

    name: str
    key: str
    definition: KernelDefinition
    constant: tuple[bool, ...]
    elements: tuple[Sequence[np.ndarray], ...] = field(default=(), compare=False, repr=False)

    @property
    def constants(self) -> frozenset[Tensor]:
        """The arguments whose elements are known at compile time."""
        arguments = zip(self.definition.arguments, self.constant, strict=True)
        return frozenset(a for a, c in arguments if c)

    @abstractmethod
    def chosen_schedule(
        self, target: Target, methods: Collection[str] = (), rules: Sequence[RuleRow] = RULES
    ) -> ChosenSchedule:
        """The schedule of the first of ``rules`` that applies; ``methods`` that round more than plain sums may be used."""

    @abstractmethod
    def schedule_by(self, row: RuleRow, target: Target) -> ChosenSchedule | None:
        """The schedule of one rule; None where it does not apply."""

    @abstractmethod
    def lower(self, schedule: Schedule, target: Target) -> Function:
        """The loop program before the loop passes."""

    def required_extents(self, function: Function) -> frozenset[tuple[Dim, Dim]]:
        """Extents over the symbols of ``function``, as it was lowered, and what each must be at least where it has tasks.

        Raises:
            IngotError: COMPILER_FAULT, it accesses memory at a position from data that is not proven to be inside; INVALID_ARGUMENT
                where an operator of a user's does.
        """
        elements = dict(zip(function.buffers, self.elements, strict=False))
        return required_extents(function, lambda buffer: _ends(elements.get(buffer, ())))

    @abstractmethod
    def preparations(self, schedule: Schedule) -> tuple[Preparation, ...]:
        """What is done to each argument at compile time."""


class ScheduledKernel(Kernel):
    """A kernel of tensor expressions; its schedule says how they are computed."""

    def chosen_schedule(
        self, target: Target, methods: Collection[str] = (), rules: Sequence[RuleRow] = RULES
    ) -> ChosenSchedule:
        try:
            return chosen_schedule(self.definition.output, self.constants, target, methods, rules)
        except IngotError as error:
            raise error.located(node=", ".join(self.definition.nodes)) from error

    def open_schedule(
        self, target: Target, knobs: Knobs, methods: Collection[str] = (), rules: Sequence[RuleRow] = RULES
    ) -> ChosenSchedule:
        """The schedule at a point of the space of the kernel, which is asked of ``knobs``; answered as the model has it, that of
        :meth:`chosen_schedule`.

        Raises:
            IngotError: INVALID_ARGUMENT, what the knobs say does not fit together.
        """
        kernel = KernelView.of(self.definition.output, self.constants).answered_by(knobs)
        try:
            return open_schedule(kernel, target, methods, rules)
        except IngotError as error:
            raise error.located(node=", ".join(self.definition.nodes)) from error

    def schedule_by(self, row: RuleRow, target: Target) -> ChosenSchedule | None:
        found = row.rule(KernelView.of(self.definition.output, self.constants), target)
        return None if found is None else ChosenSchedule(row.name, found)

    def lower(self, schedule: Schedule, target: Target) -> Function:
        definition = self.definition
        symbols = [f"d{i}" for i in range(len(definition.parameters))]
        try:
            return lower(self.name, definition.output, definition.arguments, symbols, schedule, target)
        except IngotError as error:
            raise error.located(node=", ".join(definition.nodes)) from error

    def required_extents(self, function: Function) -> frozenset[tuple[Dim, Dim]]:
        try:
            return super().required_extents(function)
        except UnprovenPositionError as error:
            if any(map(is_own, self.definition.label.split("+"))):
                raise error.of_the_author().located(node=", ".join(self.definition.nodes)) from error
            raise

    def preparations(self, schedule: Schedule) -> tuple[Preparation, ...]:
        names = stage_names(self.definition.output)
        return tuple(preparation_of(schedule, names[a], a) for a in self.definition.arguments)


@dataclass(frozen=True)
class AlgorithmKernel(Kernel):
    """A kernel that a loop function defines; there is nothing to schedule."""

    definition: AlgorithmDefinition

    def chosen_schedule(
        self, target: Target, methods: Collection[str] = (), rules: Sequence[RuleRow] = RULES
    ) -> ChosenSchedule:
        return ChosenSchedule("algorithm", ())

    def schedule_by(self, row: RuleRow, target: Target) -> ChosenSchedule | None:
        return None

    def lower(self, schedule: Schedule, target: Target) -> Function:
        own = self.definition
        parameters = len(own.parameters)
        return algorithm_function(own.algorithm, self.name, own.arguments, own.output, parameters, own.attributes)

    def required_extents(self, function: Function) -> frozenset[tuple[Dim, Dim]]:
        own = self.definition
        if is_proven(own.algorithm, function.buffers[:-1], self.elements, own.attributes):
            return frozenset()
        return super().required_extents(function)

    def preparations(self, schedule: Schedule) -> tuple[Preparation, ...]:
        return tuple(Preparation() for _ in self.definition.arguments)


@dataclass(frozen=True)
class ExternalKernel(Kernel):
    """A part that another code generator makes; its loop function says what it is called with, and does nothing."""

    definition: ExternalDefinition

    def chosen_schedule(
        self, target: Target, methods: Collection[str] = (), rules: Sequence[RuleRow] = RULES
    ) -> ChosenSchedule:
        return ChosenSchedule(f"external {self.definition.codegen}", ())

    def schedule_by(self, row: RuleRow, target: Target) -> ChosenSchedule | None:
        return None

    def lower(self, schedule: Schedule, target: Target) -> Function:
        own = self.definition
        buffers = tuple(Buffer(t.name, t.dtype, t.shape) for t in (*own.arguments, own.output))
        symbols = tuple(Var(f"d{i}") for i in range(len(own.parameters)))
        return Function(self.name, buffers, symbols, Var("task"), 1, Block(()))

    def preparations(self, schedule: Schedule) -> tuple[Preparation, ...]:
        return tuple(Preparation() for _ in self.definition.arguments)

    def part(self) -> Graph:
        """The graph that code is made of, with its constants.

        Raises:
            IngotError: COMPILER_FAULT, they are none any more.
        """
        own = self.definition
        given = self.elements[len(self.elements) - own.constants :]
        if not all(given):
            message = f"a pass made the constants of the part {own.label!r} something that a run computes"
            raise IngotError(ErrorCode.COMPILER_FAULT, message, node=", ".join(own.nodes))
        return own.part([arrays[0] for arrays in given])


def kernel_of(
    name: str,
    key: str,
    definition: KernelDefinition,
    constant: tuple[bool, ...],
    elements: tuple[Sequence[np.ndarray], ...] = (),
) -> Kernel:
    """The kernel that answers for a definition of its kind."""
    if isinstance(definition, AlgorithmDefinition):
        return AlgorithmKernel(name, key, definition, constant, elements)
    if isinstance(definition, ExternalDefinition):
        return ExternalKernel(name, key, definition, constant, elements)
    return ScheduledKernel(name, key, definition, constant, elements)


def _ends(arrays: Sequence[np.ndarray]) -> tuple[int, int] | None:
    """The least and the largest element of constants; 0 is among those that are packed with gaps."""
    if not arrays:
        return None
    filled = [a for a in arrays if a.size]
    return min((0, *(int(a.min()) for a in filled))), max((0, *(int(a.max()) for a in filled)))


class ScheduleFaultWarning(RuntimeWarning):
    """A kernel is compiled with a plain schedule, since that of its rule does not fit: right, but slow; a fault of the compiler."""


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel with its schedule and its flat loop program.

    Attributes:
        rule: the name of the rule that gave the schedule, or ``tuned``, or ``algorithm`` where it takes none.
        fault: why the schedule of the rules was not taken; empty where it was, as it should.
        required: extents over the symbols of the function, and what each must be at least where it has tasks.
    """

    kernel: Kernel
    rule: str
    schedule: Schedule
    function: Function
    fault: str = ""
    required: frozenset[tuple[Dim, Dim]] = frozenset()

    def tasks(self, definition: KernelDefinition) -> Dim:
        """Number of tasks of a launch, over the symbols of the model; none where the result has no elements, however many of those
        there would be along its other axes."""
        tasks = self._of(self.function.tasks, definition)
        left = [d for d in definition.result.shape if not isinstance(d, int) and not _vanishes(tasks, d)]
        return as_dim(select(equal(lift(product(left)), 0), 0, lift(tasks))) if left else tasks

    def assumptions(self, definition: KernelDefinition) -> tuple[Assumption, ...]:
        """What a launch takes for granted about extents besides its definition: where there is something to compute, those that it
        finds positions along are at least 1."""
        elements = product(definition.result.shape)
        found = {(self._of(extent, definition), self._of(least, definition)) for extent, least in self.required}
        return tuple(
            reached(extent, least, elements)
            for extent, least in sorted(found, key=lambda pair: dims_text(pair))
            if extent != least and not (isinstance(extent, int) and isinstance(least, int) and extent >= least)
        )

    def _of(self, dim: Dim, definition: KernelDefinition) -> Dim:
        return bind(dim, {f"d{i}": p for i, p in enumerate(definition.parameters)})


def _vanishes(tasks: Dim, extent: Dim) -> bool:
    """Whether there are no ``tasks`` where ``extent`` is 0."""
    return isinstance(extent, Var) and bind(tasks, {extent.name: 0}) == 0


def distinct_kernels(
    graphs: Iterable[tuple[Sequence[KernelDefinition], Mapping[Value, np.ndarray]]],
) -> tuple[tuple[Kernel, ...], tuple[int, ...]]:
    """The distinct kernels of all graphs, given by their definitions and constants; for each definition the number of its kernel."""
    kernels: dict[str, Kernel] = {}
    elements: dict[str, tuple[list[np.ndarray], ...]] = {}
    keys: list[str] = []
    for definition, constants in ((d, constants) for definitions, constants in graphs for d in definitions):
        constant = tuple(v in constants for v in definition.operands)
        key = f"{definition.text}\nconstant: {constant}"
        if key not in kernels:
            name = f"k{len(kernels)}_{linker_name(definition.label)}"
            elements[key] = tuple([] for _ in constant)
            kernels[key] = kernel_of(name, key, definition, constant, elements[key])
        for arrays, value in zip(elements[key], definition.operands, strict=True):
            arrays += [constants[value]] if value in constants else []
        keys.append(key)
    order = {key: i for i, key in enumerate(kernels)}
    return tuple(kernels.values()), tuple(order[key] for key in keys)


def linker_name(label: str) -> str:
    """A linker-safe name of at most 40 characters."""
    letters = "".join(c if c.isalnum() else "_" for c in label.lower())
    return letters[:40].strip("_")


def schedules_for(
    kernel: Kernel,
    target: Target,
    tuned: ScheduleSource,
    methods: Collection[str] = (),
    rules: Sequence[RuleRow] = RULES,
) -> Iterator[Callable[[], ChosenSchedule | None]]:
    """Ways to come by a schedule of ``kernel``, the fastest first: the tuned one or that of the rules; then, for where that does
    not fit, plain ones, the last of which fits every kernel. Each may find that it has none, or that a rule is broken."""
    if rules:
        yield lambda: _tuned(kernel, tuned, methods) or kernel.chosen_schedule(target, methods, rules)
    for row in PLAIN_RULES:
        yield partial(kernel.schedule_by, row, target)


def _tuned(kernel: Kernel, tuned: ScheduleSource, methods: Collection[str]) -> ChosenSchedule | None:
    schedule = tuned(kernel, methods)
    return None if schedule is None else ChosenSchedule("tuned", schedule)


def warn_of_schedule(kernel: Kernel, fault: Exception) -> None:
    """Warns ScheduleFaultWarning: the schedule of ``kernel`` does not fit."""
    names = ", ".join(kernel.definition.nodes)
    message = (
        f"kernel {kernel.name} ({names}) is compiled with a plain schedule and will be slow; report the model: {fault}"
    )
    warnings.warn(message, ScheduleFaultWarning, stacklevel=3)
