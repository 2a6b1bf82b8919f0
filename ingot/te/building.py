"""From a schedule to loops, and to code that runs.

::

    add = te.build(s, [A, B], target="host")
    c = add(a, b)
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from compiler_service.compiler.by_hand import compile_staged
from compiler_service.compiler.tensor_expr.tensor import Tensor
from ingot.artifact import Artifact, chosen_target
from ingot.ir.loops import LoopFunction
from ingot.ir.programs import LoopCall, LoopProgram
from ingot.model import load
from ingot.te.scheduling import Schedule
from ingot.te.tensors import is_placeholder
from shared_ir.errors import ErrorCode, IngotError


def lower(schedule: Schedule, args: Sequence[Tensor], target: str = "host", name: str = "main") -> LoopProgram:
    """The loops of a schedule: a function for each nest, in the order in which a call runs them. See :class:`ingot.ir.LoopProgram`.

    Raises:
        IngotError: INVALID_ARGUMENT, ``args`` lack a tensor that is read.
    """
    arguments = _arguments(schedule, args)
    names = _Names()
    values = tuple(names.of(schedule.program.values[a].name) for a in arguments)
    functions: dict[str, LoopFunction] = {}
    calls = []
    for lowered in schedule.lowered(chosen_target(target)):
        kernel = lowered.kernel
        buffers = tuple(names.of(t.name) for t in (*kernel.arguments, kernel.output))
        functions[buffers[-1]] = LoopFunction(replace(lowered.function, name=buffers[-1]))
        calls.append(LoopCall(buffers[-1], buffers))
    results = tuple(map(names.of, schedule.program.outputs))
    return LoopProgram(name, values, results, tuple(calls), functions)


class _Names:
    """Names of values as identifiers, each its own."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}

    def of(self, name: str) -> str:
        if name not in self._of:
            wanted = re.sub(r"\W", "_", name)
            wanted = f"_{wanted}" if wanted[:1].isdigit() else wanted
            others = itertools.chain((wanted,), (f"{wanted}_{number}" for number in itertools.count(1)))
            self._of[name] = next(other for other in others if other not in self._of.values())
        return self._of[name]


class CompiledFunction:
    """Compiled code, called with one array for each argument; from any number of threads.

    Attributes:
        artifact: what can be saved, and loaded as a model: :meth:`ingot.Artifact.save`, :func:`ingot.load`.
    """

    def __init__(self, artifact: Artifact, arguments: tuple[str, ...], outputs: tuple[str, ...], threads: int) -> None:
        self.artifact = artifact
        self._arguments, self._outputs = arguments, outputs
        self._model = load(artifact, threads=threads)

    def __call__(self, *arrays: Any) -> Any:
        """The results for ``arrays``: numpy arrays, or whatever gives its memory by the buffer protocol or DLPack.

        Returns an array, or a tuple of arrays where the schedule has several outputs.

        Raises:
            IngotError: INVALID_ARGUMENT, an array is missing, or of another element type, rank or extent; or an extent for which
                the function would read outside of a tensor.
        """
        if len(arrays) != len(self._arguments):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"the function takes {len(self._arguments)} arguments",
                expected=", ".join(self._arguments),
                received=f"{len(arrays)} arrays",
            )
        found = self._model.run(dict(zip(self._arguments, map(_array, arrays), strict=True)))
        results = tuple(found[name] for name in self._outputs)
        return results if len(results) > 1 else results[0]


def _array(given: Any) -> np.ndarray[Any, Any]:
    if isinstance(given, np.ndarray):
        return given
    return np.from_dlpack(given) if hasattr(given, "__dlpack__") else np.asarray(given)


def build(
    schedule: Schedule, args: Sequence[Tensor], target: str = "host", name: str = "main", threads: int = 1
) -> CompiledFunction:
    """Compile a schedule for this machine.

    Args:
        args: the placeholders that it reads, in the order in which the function takes them; tensors that it computes may stand
            among them, as in other languages of this kind, and are results.
        target: as :func:`ingot.compile` takes it; one that this machine can run.
        name: of the artifact.
        threads: that share the tasks of parallel loops.

    Raises:
        IngotError: INVALID_ARGUMENT, ``args`` lack a tensor that is read, or the schedule does not fit.
    """
    arguments = _arguments(schedule, args)
    machine = chosen_target(target)
    artifact = Artifact.of(compile_staged(schedule.program, schedule.lowered(machine), arguments, name, machine))
    names = tuple(schedule.program.values[a].name for a in arguments)
    return CompiledFunction(artifact, names, schedule.program.outputs, threads)


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
