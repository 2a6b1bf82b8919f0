"""How much work a kernel is, and how many tasks it is cut into.

The estimates are of the machine's clock cycles, good to a factor of two: they keep small kernels on one thread (a launch on several
costs a few microseconds) and large ones in enough pieces to share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.state import KernelStage
from compiler_service.compiler.schedule.language.steps import Split
from compiler_service.compiler.tensor_expr.tensor import Axis, Load
from shared_ir.expr import Binary, BinaryOp, Cast, Const, Expr, Scalar, Select, Unary, UnaryOp, Var, variables
from shared_ir.expr.dim import Dim
from shared_ir.machine.target import Target

LEAST_CYCLES_OF_TASK = 10000
"""Work of fewer cycles (3 microseconds) is not worth a task of its own. NOTE: it is little more than what a launch costs, since data
that several cores have written is read faster by the same cores."""
TASKS_PER_CORE = 4
"""Number of tasks for each core, where there is work for so many: cores that are late leave some to others."""
_TASKS_PER_CORE_ASKED = (1, 2, 3, 4, 6, 8, 12, 16, 32)
"""Numbers of tasks for each core that may be asked for."""
_CYCLES_OF_TASK_ASKED = tuple(LEAST_CYCLES_OF_TASK << n for n in range(6))
"""Cycles of a task that may be asked for where the run decides how many there are."""
LEAST_SHARED_BYTES = 1 << 18
"""Smallest size in bytes of data that several cores are taken to have made."""
_GUESSED_EXTENT = 32
"""Elements along an axis whose extent is only known at run time, where tasks are weighed."""
_L2_BYTES_PER_CYCLE = 32
"""Bytes that are moved in order, out of the second-level cache, in a cycle."""
_OPERATION_CYCLES = 0.5
"""Cycles of an addition, a multiplication, or another operation that is one instruction."""
_DIVISION_CYCLES = 4.0
"""Cycles of a division or a root."""
_FUNCTION_CYCLES = 12.0
"""Cycles of a function that is a polynomial, such as Exp."""
_CHEAP = frozenset(
    {UnaryOp.NEG, UnaryOp.ABS, UnaryOp.NOT, UnaryOp.BIT_NOT, UnaryOp.FLOOR, UnaryOp.CEIL, UnaryOp.ROUND, UnaryOp.TRUNC}
)
_ROOTS = frozenset({UnaryOp.SQRT, UnaryOp.RSQRT, UnaryOp.RECIPROCAL})


def body_cycles(body: Expr, lanes: int) -> float:
    """Cycles of one element of ``body`` in vectors of ``lanes``: arithmetic or the bytes it reads, whichever is more."""
    read = sum(n.dtype.itemsize for n in _nodes(body) if isinstance(n, Load))
    return max(arithmetic_cycles(body, lanes), memory_cycles(read))


def memory_cycles(moved: int) -> float:
    """Cycles of moving so many bytes in order, out of the second-level cache."""
    return moved / _L2_BYTES_PER_CYCLE


def exchange_cycles(size: float, target: Target) -> float:
    """Cycles in which a core receives what others made of ``size`` bytes that all made together: it comes no faster out of their
    caches than from memory (a Xeon: 13 to 20 GB/s)."""
    return size * (1 - 1 / target.cores) / target.memory_bytes


def alone_cycles(read: float, written: float, elements: int, target: Target) -> float:
    """Cycles in which one core alone would receive the bytes ``read`` and the lines of those ``written`` for each of ``elements``.
    What is little was made by one core too."""
    return exchange_cycles(read + written, target) if read * elements >= LEAST_SHARED_BYTES else 0.0


def arithmetic_cycles(body: Expr, lanes: int, along: Var | None = None) -> float:
    """Cycles of one element of ``body`` in vectors of ``lanes``, its operands at hand; with ``along``, only of what changes with
    it."""
    return sum(_cycles(n) for n in _nodes(body) if along is None or along in variables(n)) / lanes


def _nodes(body: Expr) -> set[Expr]:
    """The values that ``body`` consists of: what stands in indices and conditions does not count."""
    seen: set[Expr] = set()
    stack = [body]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        match node:
            case Load():
                pass
            case Select(then=then, otherwise=otherwise):
                stack += (then, otherwise)
            case _:
                stack.extend(node.children())
    return seen


def _cycles(node: Expr) -> float:
    match node:
        case Const() | Var() | Cast() | Load():
            return 0.0
        case Unary(op=op):
            return _OPERATION_CYCLES if op in _CHEAP else _DIVISION_CYCLES if op in _ROOTS else _FUNCTION_CYCLES
        case Binary(op=BinaryOp.POW | BinaryOp.ATAN2):
            return 2 * _FUNCTION_CYCLES
        case Binary(op=BinaryOp.DIV):
            return _DIVISION_CYCLES
        case Binary(op=BinaryOp.FLOOR_DIV | BinaryOp.FLOOR_MOD, rhs=Const(value=value)) if _is_power_of_two(value):
            return _OPERATION_CYCLES
        case Binary(op=BinaryOp.FLOOR_DIV | BinaryOp.FLOOR_MOD):
            return _DIVISION_CYCLES
    return _OPERATION_CYCLES


def _is_power_of_two(value: Scalar) -> bool:
    return isinstance(value, int) and value > 0 and value & (value - 1) == 0


def count(extent: Dim) -> int:
    """``extent``, or a guess."""
    return extent if isinstance(extent, int) else _GUESSED_EXTENT


def stage_cycles(stage: KernelStage, lanes: int) -> float:
    """Cycles of all of ``stage``, whose unknown extents count as small."""
    total = body_cycles(stage.body, lanes) + stage.tensor.dtype.itemsize / _L2_BYTES_PER_CYCLE / 2
    for axis in stage.compute.all_axes:
        total *= count(axis.extent)
    return total


@dataclass(frozen=True)
class TaskLoops:
    """Loops outside of what a kernel computes at one place of its outer axes.

    Attributes:
        steps: the splits they need.
        parallel: loops whose tiles are tasks.
        serial: loops inside a task.
    """

    steps: Schedule
    parallel: tuple[str, ...]
    serial: tuple[str, ...]

    def of_elements(self, axis: str, size: int) -> TaskLoops:
        """The same loops, counted in elements where ``axis`` stood for tiles of ``size`` of them."""

        def name(loop: str) -> str:
            own, _, factor = loop.partition(".")
            return f"{axis}.{int(factor or 1) * size}" if own == axis else loop

        splits = (s for s in self.steps if isinstance(s, Split))
        steps = tuple(replace(s, factor=s.factor * size) if s.axis == axis else s for s in splits)
        return TaskLoops(steps, tuple(map(name, self.parallel)), tuple(map(name, self.serial)))


def wanted_tasks(cycles: float, target: Target, per_core: int = TASKS_PER_CORE) -> int:
    """How many tasks so many cycles are worth; as many for every core where there is more than one each."""
    wanted = min(int(cycles // LEAST_CYCLES_OF_TASK), per_core * target.cores)
    return wanted - wanted % target.cores if wanted > target.cores else wanted


def asked_tasks(
    knobs: Knobs, cycles: float, target: Target, per_core: int = TASKS_PER_CORE, most: int | None = None
) -> int:
    """How many tasks so many cycles are worth, or as many as the knob "tasks" says: one, or some for each core, up to ``most``."""
    found = max(1, wanted_tasks(cycles, target, per_core))
    options = (1, *(n * target.cores for n in _TASKS_PER_CORE_ASKED))
    return knobs.choice("tasks", sorted({found, *(n for n in options if most is None or n <= most)}), found)


def task_loops(
    stage: str, axes: Sequence[Axis], cycles: float, target: Target, knobs: Knobs, per_core: int = TASKS_PER_CORE
) -> TaskLoops:
    """Loops over ``axes`` (outermost first), each place of which takes ``cycles``, cut into tasks worth launching: at most
    ``per_core`` for each core, or as many as the knob "tasks" says.

    Axes of unknown extent are cut so that a task has enough work, or that of the knob "cycles of a task"; the run decides how many
    there are.
    """
    if not axes:
        return TaskLoops((), (), ())
    below = [cycles]  # of one step of each axis
    for axis in reversed(axes[1:]):
        below.insert(0, below[0] * count(axis.extent))
    total = below[0] * count(axes[0].extent)
    least = LEAST_CYCLES_OF_TASK
    if all(isinstance(a.extent, int) for a in axes):
        wanted = asked_tasks(knobs, total, target, per_core, math.prod(count(a.extent) for a in axes))
    else:
        wanted = wanted_tasks(total, target, per_core)
        least = knobs.choice("cycles of a task", _CYCLES_OF_TASK_ASKED, least)
    if any(not isinstance(a.extent, int) for a in axes[1:]):
        wanted = max(wanted, target.cores)
    steps: list[Step] = []
    parallel: list[str] = []
    for i, axis in enumerate(axes):
        size = _tile(axis.extent, below[i], wanted, least)
        rest = tuple(a.name for a in axes[i:])
        if size == 0:
            return TaskLoops(tuple(steps), tuple(parallel), rest)
        if size > 1:
            steps.append(Split(stage, axis.name, size))
            return TaskLoops(tuple(steps), (*parallel, f"{axis.name}.{size}"), rest)
        parallel.append(axis.name)
        if isinstance(axis.extent, int):
            wanted = -(-wanted // axis.extent)
    return TaskLoops(tuple(steps), tuple(parallel), ())


def _tile(extent: Dim, cycles: float, wanted: int, least: float) -> int:
    """Steps of an axis in one task; 0 when the tasks are large enough already. Of an unknown extent what takes ``least`` cycles."""
    if not isinstance(extent, int):
        return max(1, round(least / max(cycles, 1e-3)))
    if wanted <= 1 or extent == 1:
        return 0 if wanted <= 1 else 1
    return -(-extent // min(wanted, extent))
