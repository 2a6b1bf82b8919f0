"""Staged programs as scheduling problems: what a template or the generator makes of them, as code, with memory for all that a call
reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np

from compiler_service.compiler.backends.face import ObjectMaker, SourceCode
from compiler_service.compiler.backends.table import backend_of
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.staging.instructions import check_instructions
from compiler_service.compiler.schedule.staging.lowered import LoweredKernel, Lowerings
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.tensor_expr.tensor import Tensor
from compiler_service.compiler.tensor_expr.text import print_tensors
from compiler_service.compiler.tune.measuring.contents import NO_NUMBER, disagreement, proves_something
from compiler_service.compiler.tune.measuring.roles import is_exact
from compiler_service.compiler.tune.measuring.trial import Content, Trial, TrialBuffer
from compiler_service.compiler.tune.problem import BuiltCandidate, Candidate, CodeLayout, LoweredCandidate
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import evaluate, product
from shared_ir.machine.target import Target

MakeProgram: TypeAlias = Callable[[Knobs], StagedProgram]
"""A template of programs; all that it makes have the same results. Raises IngotError where answers do not fit together."""

_SYMBOL = "kernel"
"""What each object exports; each is loaded by itself."""
_MOST_TEXT = 1 << 20
"""Bytes of the text of a kernel: longer ones take LLVM more than a second."""
_MOST_KEPT = 512
"""Objects that are kept, to be used by candidates that have a nest in common."""


@dataclass(frozen=True)
class LoweredProgram(LoweredCandidate):
    """A candidate as loops and code, nest by nest; nests that candidates have in common are compiled once.

    Attributes:
        kept: objects by the text of their code.
    """

    kept: dict[str, Future[bytes]] = field(default_factory=dict, compare=False, repr=False)

    def submit(self, maker: ObjectMaker) -> tuple[Future[bytes], ...]:
        for source in self.sources:
            if source.text not in self.kept:
                self.kept[source.text] = maker.submit(_SYMBOL, source)
        found = tuple(self.kept[source.text] for source in self.sources)
        while len(self.kept) > _MOST_KEPT:
            del self.kept[next(iter(self.kept))]
        return found


class ProgramProblem:
    """A program that ``make`` makes; implements :class:`~compiler_service.compiler.tune.problem.SchedulingProblem`.

    Args:
        make: the template, or the generator; ``rule``: its name.
        arrays: what arguments hold, by the tensors that programs are made of.
        extents: values of all symbols.
    """

    def __init__(
        self,
        make: MakeProgram,
        rule: str,
        target: Target,
        arrays: Mapping[Tensor, np.ndarray],
        extents: Mapping[str, int],
    ) -> None:
        self._make, self._rule, self._target = make, rule, target
        self._arrays, self._extents = arrays, dict(extents)
        self._plain = make(Knobs())
        self._lowerings = Lowerings()
        self._lowered: list[LoweredKernel] = []
        self._kept: dict[str, Future[bytes]] = {}
        self._contents: dict[str, Content] = {}

    @property
    def text(self) -> str:
        """The definitions, and what schedules them."""
        results = (t for t, v in self._plain.values.items() if v.name in self._plain.outputs)
        return "\n".join((self._rule, *map(print_tensors, results)))

    @cached_property
    def standing(self) -> str:
        """The default candidate, which a template may have another one of tomorrow, or with other arguments, and the extents: shares of
        the time of one say nothing of another one's."""
        sizes = ", ".join(f"{name} = {extent}" for name, extent in self._extents.items())
        return f"default {self.candidate(Knobs()).digest} with {sizes or 'no symbols'}"

    @property
    def label(self) -> str:
        return f"{', '.join(self._plain.outputs)} by {self._rule}"

    @property
    def extents(self) -> Mapping[str, int]:
        return self._extents

    def candidate(self, knobs: Knobs) -> Candidate:
        program = self._make(knobs)
        return Candidate(self._rule, knobs.values, tuple(k.schedule for k in program.kernels()), program)

    def lowered(self, candidate: Candidate) -> LoweredCandidate:
        backend, program = backend_of(self._target), candidate.program
        kernels = self._lowerings.of(program, self._target)
        layouts, sources = list[CodeLayout](), list[SourceCode]()
        for kernel in kernels:
            check_instructions(kernel, self._target)
            function = backend.loop_pipeline.run(kernel.function, verifies=True)
            source = backend.kernel(function, self._target, _SYMBOL)
            _require_short(kernel, source)
            layouts.append(CodeLayout.of(_SYMBOL, function, self._extents))
            sources.append(source)
        return LoweredProgram(candidate, tuple(layouts), tuple(sources), self._kept)

    def trial(self, built: BuiltCandidate, most_copied: int) -> Trial:
        program: StagedProgram = built.candidate.program
        numbers: dict[str, int] = {}
        buffers: list[TrialBuffer] = []
        for tensor, array in self._arrays.items():
            if tensor in program.values:
                numbers[program.values[tensor].name] = len(buffers)
                buffers.append(TrialBuffer(array.nbytes, self._content(tensor.name, array)))
        kernels = program.kernels()
        for kernel in kernels:
            name = kernel.stage.name
            numbers[name] = len(buffers)
            buffers.append(TrialBuffer(self._size(kernel.stage.value), is_result=name in program.outputs))
        launches = (
            layout.launch(tuple(numbers[t.name] for t in (*kernel.arguments, kernel.output)))
            for kernel, layout in zip(kernels, built.layouts, strict=True)
        )
        return Trial(self._target, built.code, tuple(launches), tuple(buffers))

    def disagreement(self, expected: Sequence[bytes], found: Sequence[bytes], candidate: Candidate) -> str:
        if len(expected) != len(found):
            return f"it has {len(found)} results in place of {len(expected)}"
        program: StagedProgram = candidate.program
        kinds = [k.stage.value.dtype for k in program.kernels() if k.stage.name in program.outputs]
        if kinds != [t.dtype for t in self._results]:
            return f"it gives {', '.join(kinds)} in place of {', '.join(t.dtype for t in self._results)}"
        exact = map(is_exact, self._results)
        triples = zip(expected, found, kinds, exact, strict=True)
        return next(filter(None, (disagreement(a, b, dtype, is_exact=e) for a, b, dtype, e in triples)), "")

    def fault(self, results: Sequence[bytes]) -> str:
        kinds = (t.dtype for t in self._results)
        return "" if all(map(proves_something, results, kinds)) else NO_NUMBER

    @cached_property
    def _results(self) -> tuple[Tensor, ...]:
        """The definitions of the results, in the order in which a call has them."""
        program = self._plain
        definitions = {value.name: tensor for tensor, value in program.values.items()}
        return tuple(definitions[k.stage.name] for k in program.kernels() if k.stage.name in program.outputs)

    def _size(self, tensor: Tensor) -> int:
        return evaluate(product(tensor.shape), self._extents) * tensor.dtype.itemsize

    def _content(self, name: str, array: np.ndarray) -> Content:
        if name not in self._contents:
            self._contents[name] = Content.of(np.ascontiguousarray(array).tobytes())
        return self._contents[name]


def _require_short(kernel: LoweredKernel, source: SourceCode) -> None:
    if len(source.text) > _MOST_TEXT:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"schedule: {kernel.kernel.stage.name} is repeated too often to be compiled in a second",
            expected=f"at most {_MOST_TEXT >> 20} MiB of code",
            received=f"{len(source.text) >> 10} KiB",
            remedy="Unroll fewer loops.",
        )
