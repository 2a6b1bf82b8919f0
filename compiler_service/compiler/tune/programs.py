"""Trials of staged programs: what a call of a schedule computes, as code for a measurer, with memory for all that it reads and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler_service.compiler.backends.face import Backend, ObjectMaker
from compiler_service.compiler.backends.table import backend_of
from compiler_service.compiler.codegen.emit.kernel import scratch_size
from compiler_service.compiler.loop_ir.ir import Function
from compiler_service.compiler.schedule.staging.lowered import LoweredKernel, Lowerings
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.tensor_expr.tensor import Tensor
from compiler_service.compiler.tune.measuring.trial import Content, Launch, Trial, TrialBuffer
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import evaluate, product
from shared_ir.machine.target import Target

_SEED = 20_08
"""Of the numbers that arguments are filled with."""
_SYMBOL = "kernel"
"""What each object exports; each is loaded by itself."""
_ROUNDINGS = 256
"""Roundings of the largest result by which results of one computation may differ."""
_MOST_TEXT = 1 << 20
"""Bytes of the text of a kernel: longer ones take LLVM more than a second."""


@dataclass
class ProgramTrials:
    """Makes trials of schedules of one program, which all compute the same from the same numbers.

    Attributes:
        target: that they run on.
        arguments: what each argument holds, by the tensors that the program was made of.
        symbols: values of the symbols of extents.
    """

    target: Target
    arguments: Mapping[Tensor, np.ndarray]
    symbols: Mapping[str, int]
    maker: ObjectMaker
    _lowerings: Lowerings = field(default_factory=Lowerings)
    _objects: dict[str, bytes] = field(default_factory=dict)
    _contents: dict[Tensor, Content] = field(default_factory=dict)

    def of(self, program: StagedProgram) -> Trial:
        """The trial of ``program``.

        Raises:
            IngotError: INVALID_ARGUMENT, the schedule does not fit; what the code generator says; COMPILER_FAULT.
        """
        kernels = self._lowerings.of(program, self.target)
        backend = backend_of(self.target)
        numbers: dict[str, int] = {}
        buffers: list[TrialBuffer] = []
        for tensor, value in program.values.items():
            if tensor in self.arguments:
                numbers[value.name] = len(buffers)
                buffers.append(TrialBuffer(self.arguments[tensor].nbytes, self._content(tensor)))
        for kernel in kernels:
            value = kernel.kernel.stage.value
            numbers[value.name] = len(buffers)
            buffers.append(TrialBuffer(self._size(value), is_result=value.name in program.outputs))
        code, launches = [], []
        for kernel in kernels:
            function, data = self._compiled(kernel, backend)
            named = (*kernel.kernel.arguments, kernel.kernel.output)
            code.append(data)
            launches.append(self._launch(function, tuple(numbers[t.name] for t in named)))
        return Trial(self.target, tuple(code), tuple(launches), tuple(buffers))

    def results(self, program: StagedProgram, found: Sequence[bytes]) -> dict[str, np.ndarray]:
        """The results of a trial of ``program`` by name, from what its outcome has."""
        names = [k.stage.name for k in program.kernels() if k.stage.name in program.outputs]
        values = {name: program.stage(name).value for name in names}
        return {
            name: np.frombuffer(data, _numpy_type(values[name])).reshape(
                [evaluate(d, self.symbols) for d in values[name].shape]
            )
            for name, data in zip(names, found, strict=True)
        }

    def _launch(self, function: Function, buffers: tuple[int, ...]) -> Launch:
        symbols = tuple(self.symbols[s.name] for s in function.symbols)
        tasks = evaluate(function.tasks, self.symbols)
        return Launch(_SYMBOL, buffers, symbols, tasks, scratch_size(function))

    def _size(self, tensor: Tensor) -> int:
        return max(1, evaluate(product(tensor.shape), self.symbols) * tensor.dtype.itemsize)

    def _content(self, tensor: Tensor) -> Content:
        if tensor not in self._contents:
            self._contents[tensor] = Content.of(np.ascontiguousarray(self.arguments[tensor]).tobytes())
        return self._contents[tensor]

    def _compiled(self, kernel: LoweredKernel, backend: Backend) -> tuple[Function, bytes]:
        """Its loops and their object; equal loops are compiled once."""
        function = backend.loop_pipeline.run(kernel.function, verifies=False)
        source = backend.kernel(function, self.target, _SYMBOL)
        if len(source.text) > _MOST_TEXT:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"schedule: {kernel.kernel.stage.name} is repeated too often to be compiled in a second",
                expected=f"at most {_MOST_TEXT >> 20} MiB of code",
                received=f"{len(source.text) >> 20} MiB",
                remedy="Unroll fewer loops.",
            )
        if source.text not in self._objects:
            self._objects[source.text] = self.maker.submit(_SYMBOL, source).result()
        return function, self._objects[source.text]


def drawn_numbers(tensors: Sequence[Tensor], symbols: Mapping[str, int]) -> dict[Tensor, np.ndarray]:
    """Numbers for arguments: floats between -1 and 1, small whole numbers, either of two truth values.

    Raises:
        IngotError: UNSUPPORTED_DTYPE, numpy has no such type.
    """
    numbers = np.random.default_rng(_SEED)
    found = {}
    for tensor in tensors:
        shape, kind = [evaluate(d, symbols) for d in tensor.shape], _numpy_type(tensor)
        if tensor.dtype.is_float:
            found[tensor] = numbers.uniform(-1, 1, shape).astype(kind)
        else:
            found[tensor] = numbers.integers(0, 2 if tensor.dtype.itemsize == 1 else 4, shape).astype(kind)
    return found


def _numpy_type(tensor: Tensor) -> np.dtype[np.generic]:
    try:
        return tensor.dtype.numpy
    except TypeError as error:
        raise IngotError(
            ErrorCode.UNSUPPORTED_DTYPE,
            f"{tensor.name} cannot be measured: {error}",
            expected="a type that numpy has",
            received=tensor.dtype,
            remedy="Compute in float32, and cast where it is read.",
        ) from error


def differs(found: np.ndarray, wanted: np.ndarray) -> str:
    """How ``found`` is another result than ``wanted``, beyond the rounding of sums in another order; empty where it is not.

    Floats may be as far apart as a few hundred roundings of the largest of them; infinities and NaN must stand at the same places.
    """
    if not np.issubdtype(wanted.dtype, np.floating) and wanted.dtype.kind != "V":
        count = int((found != wanted).sum())
        return f"{count} of {wanted.size} elements differ" if count else ""
    here, there = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(there)
    if not np.array_equal(np.where(finite, 0.0, here), np.where(finite, 0.0, there), equal_nan=True):
        return "infinities or NaN stand at other places"
    scale = float(np.abs(there[finite]).max(initial=0.0)) or 1.0
    error = float(np.abs(here[finite] - there[finite]).max(initial=0.0)) / scale
    limit = _ROUNDINGS * (np.finfo(wanted.dtype).eps if wanted.dtype.kind == "f" else 2.0**-7)
    return f"an element is off by {error:.1e} of the largest, more than {limit:.1e}" if not error <= limit else ""
