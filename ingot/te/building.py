"""From a schedule to loops, and to code that runs.

::

    add = te.build(s, [A, B], target="host")
    c = add(a, b)
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import overload

from compiler_service.compiler.by_hand import StagedFunction
from compiler_service.compiler.schedule.staging.lowered import LoweredKernel
from compiler_service.compiler.tensor_expr.tensor import Tensor
from ingot.arguments import require_kind, require_threads
from ingot.artifact import chosen_target
from ingot.functions import CompiledFunction, CompiledModule, Form
from ingot.ir.loops import LoopFunction
from ingot.ir.programs import LoopCall, LoopProgram
from ingot.te.scheduling import Schedule
from ingot.te.tensors import is_placeholder
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target


def lower(schedule: Schedule, args: Sequence[Tensor], target: str | Target = "host", name: str = "main") -> LoopProgram:
    """The loops of a schedule: a function for each nest, in the order in which a call runs them. See :class:`ingot.ir.LoopProgram`.

    Args:
        args: the placeholders that it reads, in the order in which the program takes them, as :func:`build` takes them.
        target: as :func:`ingot.compile` takes it: an instruction that a stage is summed by must be of this machine.
        name: of the program.

    Raises:
        IngotError: INVALID_ARGUMENT, ``args`` lack a tensor that is read, or the target lacks an instruction; INVALID_TARGET.
    """
    require_kind(schedule, Schedule, "schedule", "te.schedule(T)")
    require_kind(name, str, "name", "a name such as 'add'")
    return _program(schedule, schedule._lowered(chosen_target(target)), _arguments(schedule, args), name)


def _program(
    schedule: Schedule, lowered: Sequence[LoweredKernel], arguments: Sequence[Tensor], name: str
) -> LoopProgram:
    names = _Names()
    values = tuple(names.of(schedule._program.values[a].name) for a in arguments)
    functions: dict[str, LoopFunction] = {}
    calls = []
    for own in lowered:
        buffers = tuple(names.of(t.name) for t in (*own.kernel.arguments, own.kernel.output))
        functions[buffers[-1]] = LoopFunction(replace(own.function, name=buffers[-1]))
        calls.append(LoopCall(buffers[-1], buffers))
    results = tuple(map(names.of, schedule._program.outputs))
    return LoopProgram(name, values, results, tuple(calls), functions)


class _Names:
    """Names of values as identifiers, each its own."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}

    def of(self, name: str) -> str:
        if name not in self._of:
            wanted = re.sub(r"\W", "_", name)
            wanted = wanted if wanted and not wanted[0].isdigit() else f"_{wanted}"
            others = itertools.chain((wanted,), (f"{wanted}_{number}" for number in itertools.count(1)))
            self._of[name] = next(other for other in others if other not in self._of.values())
        return self._of[name]


@overload
def build(
    schedule: Schedule, args: Sequence[Tensor], target: str | Target = ..., name: str = ..., threads: int = ...
) -> CompiledFunction: ...
@overload
def build(
    schedule: Mapping[str, tuple[Schedule, Sequence[Tensor]]], *, target: str | Target = ..., threads: int = ...
) -> CompiledModule: ...
def build(
    schedule: Schedule | Mapping[str, tuple[Schedule, Sequence[Tensor]]],
    args: Sequence[Tensor] = (),
    target: str | Target = "host",
    name: str = "main",
    threads: int = 1,
) -> CompiledFunction | CompiledModule:
    """Compile a schedule, or several: ``te.build({"add": (s, [A, B]), "mul": (t, [A, B])})["add"]``.

    Args:
        schedule: one, or pairs of a schedule and its ``args`` by the names of the functions.
        args: the placeholders that it reads, in the order in which the function takes them; tensors that it computes may stand
            among them, as in other languages of this kind, and are results.
        target: as :func:`ingot.compile` takes it. A function for another machine can be saved and looked at, not called.
        name: of the function, an identifier.
        threads: that share the tasks of parallel loops.

    Raises:
        IngotError: INVALID_ARGUMENT, ``args`` lack a tensor that is read or name one twice, no argument shows what a symbol is, a name
            is no identifier, the schedule does not fit, or reads at a position from data that is not proven to be inside;
            INVALID_TARGET.
    """
    require_threads(threads)
    if isinstance(schedule, Schedule):
        return _function(schedule, args, chosen_target(target), name, threads)
    machine, named = chosen_target(target), schedule if isinstance(schedule, Mapping) else {"": schedule}
    for own in named.values():
        if not isinstance(own, tuple) or len(own) != 2 or not isinstance(own[0], Schedule):
            raise _misuse(
                "what is built is no schedule", "te.schedule(T), args; or {name: (te.schedule(T), args)}", own
            )
    return CompiledModule({key: _function(s, own, machine, key, threads) for key, (s, own) in named.items()})


def _misuse(message: str, expected: str, received: object) -> IngotError:
    return IngotError(ErrorCode.INVALID_ARGUMENT, message, expected=expected, received=repr(received)[:80])


def _function(schedule: Schedule, args: Sequence[Tensor], target: Target, name: str, threads: int) -> CompiledFunction:
    require_kind(name, str, "name", "a name such as 'add'")
    if not name.isidentifier():
        expected = "a name such as 'add'"
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT, "the name of a function is no identifier", expected=expected, received=name
        )
    arguments = _arguments(schedule, args)
    lowered = schedule._lowered(target)
    staged = StagedFunction.of(schedule._program, lowered, arguments, name, target)
    loops = _program(schedule, lowered, arguments, name)

    def inspection(form: Form) -> str:
        return str(loops) if form == "loops" else staged.text(form)

    return CompiledFunction(staged.compiled(), threads, inspection)


def _arguments(schedule: Schedule, args: Sequence[Tensor]) -> tuple[Tensor, ...]:
    if isinstance(args, Tensor) or not all(isinstance(a, Tensor) for a in args):
        raise _misuse("the arguments are no list of tensors", "[A, B], as te.placeholder made them", args)
    given = tuple(a for a in args if is_placeholder(a))
    if len(set(given)) < len(given):
        raise _misuse("a tensor is named twice among the arguments", "each once", [a.name for a in given])
    read = {t for t in schedule._program.values if is_placeholder(t)}
    missing = sorted(t.name for t in read - set(given))
    if missing:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the arguments lack a tensor that is read",
            expected=", ".join(missing),
            received=", ".join(a.name for a in given) or "none",
        )
    return tuple(a for a in given if a in read)
