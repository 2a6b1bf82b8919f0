"""Kernels of a model: definitions with their schedules, each distinct one built once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from compiler_service.compiler.loop_ir import passes as loop_passes
from compiler_service.compiler.loop_ir.algorithms.table import algorithm_function
from compiler_service.compiler.loop_ir.ir import Function
from compiler_service.compiler.schedule.default import PLAIN_RULES, Rule, default_schedule
from compiler_service.compiler.schedule.language.packing import Preparation, preparation_of
from compiler_service.compiler.schedule.language.state import stage_names
from compiler_service.compiler.schedule.language.steps import Schedule, methods_of
from compiler_service.compiler.schedule.lowering.nest import lower
from compiler_service.compiler.schedule.model.analysis import KernelView
from compiler_service.compiler.tensor_expr.kernel.algorithm import AlgorithmDefinition
from compiler_service.compiler.tensor_expr.kernel.group import KernelDefinition
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.errors import IngotError
from shared_ir.expr.dim import Dim, bind
from shared_ir.graph.ir import Value
from shared_ir.machine.target import Target

ScheduleSource = Callable[["Kernel"], Schedule | None]
"""A tuned schedule for a kernel, or None to take the default."""


@dataclass(frozen=True)
class Kernel:
    """One native function, shared by every launch whose definition prints equal.

    Attributes:
        key: text that tells kernels apart: the tensor expressions and which arguments are constant.
        definition: the first definition with this key.
        constant: for each argument, whether its elements are known at compile time and may be packed.
    """

    name: str
    key: str
    definition: KernelDefinition
    constant: tuple[bool, ...]

    def default_schedule(self, target: Target, methods: Collection[str] = ()) -> Schedule:
        """The schedule of the rules; ``methods`` that round more than plain sums may be used."""
        if isinstance(self.definition, AlgorithmDefinition):
            return ()
        try:
            return default_schedule(self.definition.output, self._constants, target, methods)
        except IngotError as error:
            raise error.located(node=", ".join(self.definition.nodes)) from error

    def schedule_by(self, rule: Rule, target: Target) -> Schedule | None:
        """The schedule of ``rule``; None where it does not apply."""
        if isinstance(self.definition, AlgorithmDefinition):
            return None
        return rule(KernelView.of(self.definition.output, self._constants), target)

    @property
    def _constants(self) -> frozenset[Tensor]:
        arguments = zip(self.definition.arguments, self.constant, strict=True)
        return frozenset(a for a, c in arguments if c)

    def lower(self, schedule: Schedule, target: Target) -> Function:
        """The loop program before the loop passes."""
        definition = self.definition
        if isinstance(definition, AlgorithmDefinition):
            return algorithm_function(
                definition.algorithm,
                self.name,
                definition.arguments,
                definition.output,
                len(definition.parameters),
                definition.attributes,
            )
        symbols = [f"d{i}" for i in range(len(definition.parameters))]
        try:
            return lower(self.name, definition.output, definition.arguments, symbols, schedule, target)
        except IngotError as error:
            raise error.located(node=", ".join(definition.nodes)) from error

    def preparations(self, schedule: Schedule) -> tuple[Preparation, ...]:
        """What is done to each argument at compile time."""
        if isinstance(self.definition, AlgorithmDefinition):
            return tuple(Preparation() for _ in self.definition.arguments)
        names = stage_names(self.definition.output)
        return tuple(preparation_of(schedule, names[a], a) for a in self.definition.arguments)


class ScheduleFaultWarning(RuntimeWarning):
    """A kernel is compiled with a plain schedule, since that of its rule does not fit: right, but slow; a fault of the compiler."""


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel with its schedule and its flat loop program.

    Attributes:
        fault: why the schedule of the rules was not taken; empty where it was, as it should.
    """

    kernel: Kernel
    schedule: Schedule
    function: Function
    fault: str = ""

    def tasks(self, definition: KernelDefinition) -> Dim:
        """Number of tasks of a launch, over the symbols of the model."""
        return bind(self.function.tasks, {f"d{i}": p for i, p in enumerate(definition.parameters)})


def distinct_kernels(
    graphs: Iterable[tuple[Sequence[KernelDefinition], Mapping[Value, np.ndarray]]],
) -> tuple[tuple[Kernel, ...], tuple[int, ...]]:
    """The distinct kernels of all graphs, given by their definitions and constants; for each definition the number of its kernel."""
    kernels: dict[str, Kernel] = {}
    numbers: list[int] = []
    order: dict[str, int] = {}
    for definition, constants in ((d, constants) for definitions, constants in graphs for d in definitions):
        constant = tuple(v in constants for v in definition.operands)
        key = f"{definition.text}\nconstant: {constant}"
        if key not in kernels:
            order[key] = len(kernels)
            kernels[key] = Kernel(f"k{len(kernels)}_{_slug(definition.label)}", key, definition, constant)
        numbers.append(order[key])
    return tuple(kernels.values()), tuple(numbers)


def _slug(label: str) -> str:
    """A linker-safe name of at most 40 characters."""
    letters = "".join(c if c.isalnum() else "_" for c in label.lower())
    return letters[:40].strip("_")


def build_kernels(
    kernels: Iterable[Kernel], target: Target, tuned: ScheduleSource, methods: Collection[str] = ()
) -> Iterable[BuiltKernel]:
    """Schedule, lower and flatten each kernel, one after the other (a generator: code generation can start early).

    Warns:
        ScheduleFaultWarning: a schedule does not fit, and the kernel is compiled with a plain one.
    """
    for kernel in kernels:
        try:
            built = _built(kernel, _chosen(kernel, target, tuned, methods), target)
        except Exception as error:  # whatever a rule or a step met
            built = _plain(kernel, target, error)
        yield built


def _chosen(kernel: Kernel, target: Target, tuned: ScheduleSource, methods: Collection[str]) -> Schedule:
    schedule = tuned(kernel)
    if schedule is None or not methods_of(schedule) <= set(methods):
        return kernel.default_schedule(target, methods)
    return schedule


def _built(kernel: Kernel, schedule: Schedule, target: Target, fault: str = "") -> BuiltKernel:
    return BuiltKernel(kernel, schedule, loop_passes.run(kernel.lower(schedule, target)), fault)


def _plain(kernel: Kernel, target: Target, error: Exception) -> BuiltKernel:
    """``kernel`` after ``error``, which is raised again if the kernel is at fault itself."""
    fault = f"{type(error).__name__}: {error}"
    found = next(_fitting(kernel, target, fault), None)
    if found is None:
        raise error from None
    names = ", ".join(kernel.definition.nodes)
    message = (
        f"kernel {kernel.name} ({names}) is compiled with a plain schedule and will be slow; report the model: {error}"
    )
    warnings.warn(message, ScheduleFaultWarning, stacklevel=2)
    return found


def _fitting(kernel: Kernel, target: Target, fault: str) -> Iterator[BuiltKernel]:
    for rule in PLAIN_RULES:
        with suppress(Exception):  # whatever the rule or a step met
            schedule = kernel.schedule_by(rule, target)
            if schedule is not None:
                yield _built(kernel, schedule, target, fault)
