"""What :func:`ingot.te.tune` tunes: a template of a user's, or the generator for some tensors, and what its trials run on."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler_service.compiler.schedule.language.knobs import NO_VALUES, Knobs, Values
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.tune.bounded import SECONDS_OF_TEMPLATE, BoundedTemplate, within
from compiler_service.compiler.tune.measuring.contents import drawn
from compiler_service.compiler.tune.measuring.roles import positions
from compiler_service.compiler.tune.programs import ProgramProblem
from compiler_service.compiler.tune.sketches.sketch import sketch
from ingot.te.scheduling import Schedule
from ingot.te.templates import Template
from ingot.te.tensors import Tensor, is_placeholder
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim, dim_symbols, dim_text, evaluate
from shared_ir.machine.target import Target

_EXTENT = 64
"""Elements along an axis whose length only a call knows, while it is measured."""
_MOST_BYTES = 3 << 30
"""Of arguments and results: who measures holds what it was sent, and copies, within 8 GiB."""


@dataclass(frozen=True)
class TunedSpace:
    """What is searched.

    Attributes:
        make: what makes programs by knobs, with a limit where it is a template of a user's.
        schedule: what makes the schedule with given answers.
        given: the placeholders that a call is given.
    """

    problem: ProgramProblem
    make: BoundedTemplate[StagedProgram] | Callable[[Knobs], StagedProgram]
    schedule: Callable[[Values], Schedule]
    given: tuple[Tensor, ...]

    @classmethod
    def of(
        cls,
        what: Template | Tensor | Sequence[Tensor],
        args: Sequence[Any],
        target: Target,
        symbols: Mapping[str, int],
        arrays: Sequence[np.ndarray] | None,
    ) -> TunedSpace:
        """As :func:`ingot.te.tune` takes them. Raises IngotError."""
        make, schedule, rule = _space(what, args, target)
        default = schedule(NO_VALUES)
        given = tuple(a for a in args if isinstance(a, Tensor) and is_placeholder(a))
        read = _read(default, given)
        sizes = {name: symbols.get(name, _EXTENT) for name in sorted(_symbols(default))}
        _require_small(default, sizes)
        used = positions(t for t, value in default._program.values.items() if value.name in default._program.outputs)
        numbers = _numbers(read, given, sizes, arrays, used)
        return cls(ProgramProblem(make, rule, target, numbers, sizes), make, schedule, given)


def _space(
    what: Template | Tensor | Sequence[Tensor], args: Sequence[Any], target: Target
) -> tuple[BoundedTemplate[StagedProgram] | Callable[[Knobs], StagedProgram], Callable[[Values], Schedule], str]:
    """What makes programs by knobs, what makes the schedule with given answers, and the name of it."""
    if isinstance(what, Template):
        template, name = what, f"template {what.name}"
        bounded = BoundedTemplate(lambda knobs: template(knobs, *args)._program, f"the {name}")
        once = lambda values: within(SECONDS_OF_TEMPLATE, lambda: template(Knobs(values), *args), f"the {name}")
        return bounded, once, name
    outputs = (what,) if isinstance(what, Tensor) else tuple(what)
    plain = Schedule(*outputs)._program

    def generated(values: Values) -> Schedule:
        found = Schedule(*outputs)
        found._commit(sketch(plain, target, Knobs(values)))
        return found

    return lambda knobs: sketch(plain, target, knobs), generated, "sketches"


def _require_small(schedule: Schedule, sizes: Mapping[str, int]) -> None:
    """Raises IngotError INVALID_ARGUMENT where a tensor has an axis of less than no elements, or what a call is given and gives is too
    large to be measured."""
    total, program = 0, schedule._program
    for tensor, value in program.values.items():
        shape = [_extent(d, tensor, sizes) for d in tensor.shape]
        is_memory = is_placeholder(tensor) or value.name in program.outputs
        total += math.prod(shape) * tensor.dtype.itemsize if is_memory else 0
        if total > _MOST_BYTES:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "that is too large to be measured",
                field="symbols" if sizes else "args",
                expected=f"tensors of at most {_MOST_BYTES >> 20} MiB in all",
                received=f"{tensor.name} of {shape}"[:80],
                remedy="Tune it for smaller sizes.",
            )


def _extent(dim: Dim, tensor: Tensor, sizes: Mapping[str, int]) -> int:
    try:
        extent = evaluate(dim, sizes)
    except IngotError:  # no int64 holds it
        extent = 1 << 63
    if extent < 0:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"an axis of {tensor.name} has less than no elements",
            field="symbols",
            expected="sizes with which each axis has some",
            received=f"{dim_text(dim)} = {extent}"[:80],
        )
    return extent


def _read(schedule: Schedule, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The placeholders that are read, all of which must be ``given``."""
    read = tuple(t for t in schedule._program.values if is_placeholder(t))
    missing = [t.name for t in read if t not in given]
    if missing:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the arguments lack a tensor that is read",
            expected=", ".join(missing),
            received=", ".join(t.name for t in given) or "none",
        )
    return read


def _symbols(schedule: Schedule) -> set[str]:
    return set(dim_symbols(d for t in schedule._program.values for d in t.shape))


def _numbers(
    read: tuple[Tensor, ...],
    given: tuple[Tensor, ...],
    sizes: Mapping[str, int],
    arrays: Sequence[np.ndarray] | None,
    used: Collection[Tensor],
) -> dict[Tensor, np.ndarray]:
    found = {
        t: drawn(tuple(evaluate(d, sizes) for d in t.shape), t.dtype, number, is_position=t in used)
        for number, t in enumerate(read)
    }
    if arrays is None:
        return found
    if not isinstance(arrays, list | tuple) or len(arrays) != len(given):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the arrays do not fit",
            field="arrays",
            expected=f"a list of {len(given)}, one for each placeholder",
            received=str(len(arrays)) if isinstance(arrays, list | tuple) else repr(arrays)[:80],
        )
    arrays = [np.asarray(a) for a in arrays]
    for tensor, array in zip(given, arrays, strict=True):
        wanted = found.get(tensor)
        if wanted is not None and (array.shape, array.dtype) != (wanted.shape, wanted.dtype):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"the array of {tensor.name} does not fit",
                expected=f"{wanted.dtype}{list(wanted.shape)}",
                received=f"{array.dtype}{list(array.shape)}",
            )
    return {t: a for t, a in zip(given, arrays, strict=True) if t in found}
