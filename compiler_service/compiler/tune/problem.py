"""A scheduling problem: what a tuner needs to know of it, whether it is a kernel of a model or a program of ``ingot.te``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, Self

from compiler_service.compiler.backends.face import ObjectMaker, SourceCode
from compiler_service.compiler.codegen.emit.kernel import scratch_size
from compiler_service.compiler.loop_ir.ir import Function
from compiler_service.compiler.schedule.language.knobs import Knobs, Values
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.tune.measuring.trial import Trial, TrialLaunch
from compiler_service.compiler.tune.records.record import candidate_digest
from shared_ir.expr.dim import evaluate, product


@dataclass(frozen=True)
class Candidate:
    """A point of a space, and the schedules that it stands for: one for a kernel, one for each nest of a program.

    Attributes:
        rule: the name of the rule that gave them.
        values: the answers that are not the model's.
        program: what a problem needs to make code of them.
    """

    rule: str
    values: Values
    schedules: tuple[Schedule, ...]
    program: Any = field(default=None, compare=False, repr=False)

    @cached_property
    def digest(self) -> str:
        """Equal for candidates of one problem that compute in the same way, whatever answers led to them."""
        return candidate_digest(self.schedules, self.rule, self.values)


@dataclass(frozen=True)
class CodeLayout:
    """What the code of one launch is called with.

    Attributes:
        symbol: that its object exports.
        sizes: bytes of its buffers, in their order.
        symbols: values of its int64 parameters.
        scratch: bytes of scratch memory.
    """

    symbol: str
    sizes: tuple[int, ...]
    symbols: tuple[int, ...]
    tasks: int
    scratch: int

    @classmethod
    def of(cls, symbol: str, function: Function, extents: Mapping[str, int]) -> Self:
        """That of a loop function, whose symbols are ``extents``."""
        sizes = (evaluate(product(b.shape), extents) * b.dtype.itemsize for b in function.buffers)
        symbols = tuple(extents[s.name] for s in function.symbols)
        return cls(symbol, tuple(sizes), symbols, evaluate(function.tasks, extents), scratch_size(function))

    def launch(self, buffers: tuple[int, ...]) -> TrialLaunch:
        """With these buffers of a trial."""
        return TrialLaunch(self.symbol, buffers, self.symbols, self.tasks, self.scratch)


@dataclass(frozen=True)
class LoweredCandidate:
    """A candidate as the text of its code, one for each launch."""

    candidate: Candidate
    layouts: tuple[CodeLayout, ...]
    sources: tuple[SourceCode, ...]

    def submit(self, maker: ObjectMaker) -> tuple[Future[bytes], ...]:
        """Its objects, to come."""
        return tuple(maker.submit(own.symbol, code) for own, code in zip(self.layouts, self.sources, strict=True))


@dataclass(frozen=True)
class BuiltCandidate:
    """A candidate as objects, one for each launch."""

    candidate: Candidate
    layouts: tuple[CodeLayout, ...]
    code: tuple[bytes, ...]


class SchedulingProblem(Protocol):
    """What is to be scheduled.

    Attributes:
        text: what it computes, equal for problems that differ only in names.
        standing: what else decides how long the default schedule takes, which all shares are relative to; empty where that follows from
            the text, the target and the version of the compiler.
        label: for people.
        extents: what its symbols are while it is measured.
    """

    @property
    def text(self) -> str: ...
    @property
    def standing(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def extents(self) -> Mapping[str, int]: ...

    def candidate(self, knobs: Knobs) -> Candidate:
        """The point that ``knobs`` answer.

        Raises:
            IngotError: the answers do not fit together.
        """

    def lowered(self, candidate: Candidate) -> LoweredCandidate:
        """
        Raises:
            IngotError: a step does not fit.
        """

    def trial(self, built: BuiltCandidate, most_copied: int) -> Trial:
        """What is run; buffers that come from far memory in the model have copies up to ``most_copied`` bytes."""

    def disagreement(self, expected: Sequence[bytes], found: Sequence[bytes], candidate: Candidate) -> str:
        """How results differ, as a sentence; empty where they are the same but for rounding."""

    def fault(self, results: Sequence[bytes]) -> str:
        """Why nothing could be compared with the ``results`` of the default schedule, as a sentence; empty where it can."""
