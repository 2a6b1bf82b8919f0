"""Kernels of a model as scheduling problems."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import numpy as np

from compiler_service.compiler.backends.table import backend_of
from compiler_service.compiler.program.kernels import Kernel
from compiler_service.compiler.schedule.default import methods_of, open_schedule
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.packing import Preparation
from compiler_service.compiler.schedule.model.analysis import KernelView
from compiler_service.compiler.tensor_expr.tensor import Tensor
from compiler_service.compiler.tune.measuring.contents import NO_NUMBER, disagreement, drawn, proves_something
from compiler_service.compiler.tune.measuring.roles import is_exact, positions
from compiler_service.compiler.tune.measuring.trial import Content, Trial, TrialBuffer
from compiler_service.compiler.tune.problem import BuiltCandidate, Candidate, CodeLayout, LoweredCandidate
from shared_ir.expr.dim import evaluate
from shared_ir.machine.target import Target

_MEASURED_BATCH = 1
"""Elements along a symbolic first axis of an input, while a kernel is measured."""
_MEASURED_EXTENT = 64
"""Elements along any other symbolic axis, while a kernel is measured."""
_MOST_COPIES = 64
"""Largest number of copies of a buffer."""


class KernelProblem:
    """One kernel of a model; implements :class:`SchedulingProblem`.

    Args:
        methods: those that round more than plain sums and that may be used.
        weights: bytes of all constants of the model: what does not fit the second cache level beside them is read from behind it.
    """

    def __init__(self, kernel: Kernel, target: Target, methods: Collection[str], weights: int) -> None:
        self._kernel, self._target, self._methods, self._weights = kernel, target, methods, weights
        self._prepared: dict[tuple[int, Preparation], Content] = {}
        self._view: KernelView | None = None

    @property
    def text(self) -> str:
        return self._kernel.key

    @property
    def standing(self) -> str:
        """Nothing: its default schedule and its extents follow from the definition."""
        return ""

    @property
    def label(self) -> str:
        return self._kernel.definition.label

    @cached_property
    def extents(self) -> Mapping[str, int]:
        """One row of the batch, and a guess for everything else that is not known."""
        definition = self._kernel.definition
        first = {str(a.shape[0]) for a in definition.arguments if a.rank > 1}
        names = [f"d{i}" for i in range(len(definition.parameters))]
        return {name: _MEASURED_BATCH if name in first else _MEASURED_EXTENT for name in names}

    def candidate(self, knobs: Knobs) -> Candidate:
        if self._view is None:
            self._view = KernelView.of(self._kernel.definition.output, self._kernel.constants)
        chosen = open_schedule(self._view.answered_by(knobs), self._target, self._methods)
        return Candidate(chosen.rule, knobs.values, (chosen.schedule,))

    def lowered(self, candidate: Candidate) -> LoweredCandidate:
        backend, name = backend_of(self._target), self._kernel.name
        nest = self._kernel.lower(candidate.schedules[0], self._target)
        self._kernel.required_extents(nest)  # proves that it stays inside of its memory
        function = backend.loop_pipeline.run(nest, verifies=True)
        layout = CodeLayout.of(name, function, self.extents)
        return LoweredCandidate(candidate, (layout,), (backend.kernel(function, self._target, name),))

    def trial(self, built: BuiltCandidate, most_copied: int) -> Trial:
        (layout,) = built.layouts
        preparations = self._kernel.preparations(built.candidate.schedules[0])
        *sizes, result = layout.sizes
        buffers = [
            self._argument(number, size, preparation, most_copied)
            for number, (size, preparation) in enumerate(zip(sizes, preparations, strict=True))
        ]
        buffers.append(TrialBuffer(result, is_result=True))
        return Trial(self._target, built.code, (layout.launch(tuple(range(len(buffers)))),), tuple(buffers))

    def disagreement(self, expected: Sequence[bytes], found: Sequence[bytes], candidate: Candidate) -> str:
        output = self._kernel.definition.output
        pairs = zip(expected, found, strict=True)
        return next(filter(None, (disagreement(a, b, output.dtype, is_exact=self._is_exact) for a, b in pairs)), "")

    def fault(self, results: Sequence[bytes]) -> str:
        output = self._kernel.definition.output
        return "" if all(proves_something(r, output.dtype) for r in results) else NO_NUMBER

    @cached_property
    def _is_exact(self) -> bool:
        return is_exact(self._kernel.definition.output)

    @cached_property
    def _positions(self) -> frozenset[Tensor]:
        return positions([self._kernel.definition.output])

    def rounds_more(self, candidate: Candidate) -> bool:
        """Whether it is computed by a method that rounds more than plain sums."""
        return bool(methods_of(candidate.schedules[0]))

    def _argument(self, number: int, size: int, preparation: Preparation, most_copied: int) -> TrialBuffer:
        key = number, preparation
        if key not in self._prepared:
            self._prepared[key] = Content.of(self._elements(number, preparation).tobytes())
        return TrialBuffer(size, self._prepared[key], self._copies(number, size, most_copied))

    def _elements(self, number: int, preparation: Preparation) -> np.ndarray:
        tensor = self._kernel.definition.arguments[number]
        known = self._kernel.elements[number] if self._kernel.constant[number] and self._kernel.elements else ()
        if known:
            return np.ascontiguousarray(preparation.apply(known[0], tensor))
        shape = tuple(evaluate(extent, self.extents) for extent in tensor.shape)
        numbers = drawn(shape, tensor.dtype, number, is_position=tensor in self._positions)
        return np.ascontiguousarray(preparation.apply(numbers, tensor))

    def _copies(self, number: int, size: int, most_copied: int) -> int:
        """Weights come from where an inference has left them; activations were written by the kernel before."""
        if not self._kernel.constant[number] or self._weights <= self._target.l2 or not size:
            return 1
        return max(1, min(_MOST_COPIES, math.ceil(min(self._weights, most_copied) / size)))
