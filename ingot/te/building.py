"""From a schedule to loops, and to code that runs.

::

    add = te.build(s, [A, B], target="host")
    c = add(a, b)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler_service.compiler.by_hand import compile_staged
from compiler_service.compiler.loop_ir.ir import Function as LoopFunction
from compiler_service.compiler.schedule.lower import lower as lower_kernel
from compiler_service.compiler.schedule.staging.memory import placed_in_memory
from compiler_service.compiler.tensor_expr.tensor import Tensor
from ingot.artifact import Artifact, chosen_target
from ingot.model import load
from ingot.te.scheduling import Schedule
from ingot.te.tensors import is_placeholder
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import dim_symbols


def lower(schedule: Schedule, args: Sequence[Tensor], target: str = "host", name: str = "main") -> LoopFunction:
    """The loop program of a schedule with one stage at the root.

    Raises:
        IngotError: INVALID_ARGUMENT, it has several, or ``args`` lack one.
    """
    arguments = _arguments(schedule, args)
    kernels = schedule.program.kernels()
    if len(kernels) != 1:
        names = ", ".join(k.stage.name for k in kernels)
        raise IngotError(ErrorCode.INVALID_ARGUMENT, "several nests", expected="one stage at the root", received=names)
    (kernel,) = kernels
    machine = chosen_target(target)
    values = [schedule.program.values[a] for a in arguments]
    symbols = sorted(dim_symbols(d for t in (*values, kernel.output) for d in t.shape))
    return lower_kernel(name, kernel.output, values, symbols, placed_in_memory(kernel, machine), machine)


class Function:
    """Compiled code, called with arrays."""

    def __init__(self, artifact: Artifact, outputs: tuple[str, ...], threads: int | None = None) -> None:
        self.artifact = artifact
        self._model = load(artifact, threads=threads or 1)
        self._names = tuple(spec.name for spec in self._model.inputs)
        self._outputs = outputs

    def __call__(self, *arrays: Any) -> Any:
        """The results for one array per argument."""
        feeds = dict(zip(self._names, map(np.asarray, arrays), strict=True))
        found = self._model.run(feeds)
        return found[self._outputs[0]] if len(self._outputs) == 1 else tuple(found[o] for o in self._outputs)


def build(
    schedule: Schedule, args: Sequence[Tensor], target: str = "host", name: str = "main", threads: int | None = None
) -> Function:
    """Compile a schedule; ``args`` are its placeholders in the order in which the function takes them."""
    arguments = _arguments(schedule, args)
    artifact = compile_staged(schedule.program, arguments, name, chosen_target(target))
    return Function(Artifact.of(artifact), schedule.program.outputs, threads)


def _arguments(schedule: Schedule, args: Sequence[Tensor]) -> tuple[Tensor, ...]:
    given = tuple(a for a in args if is_placeholder(a))
    read = {t for t in schedule.program.values if is_placeholder(t)}
    missing = sorted(t.name for t in read - set(given))
    if missing:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the arguments lack a tensor that is read",
            expected=", ".join(missing),
            received=", ".join(a.name for a in given) or "none",
        )
    return tuple(a for a in given if a in read)
