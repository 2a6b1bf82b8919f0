"""A scheduling problem: what a tuner needs to know of it, whether it is a kernel of a model or a program of ``ingot.te``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from compiler_service.compiler.backends.face import ObjectMaker, SourceCode
from compiler_service.compiler.loop_ir.ir import Function
from compiler_service.compiler.schedule.language.knobs import Knobs, Values
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.tune.measuring.trial import Trial
from compiler_service.compiler.tune.records.record import candidate_digest


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
class LoweredCandidate:
    """A candidate as loops and as the text of its code, one of each for a launch."""

    candidate: Candidate
    functions: tuple[Function, ...]
    sources: tuple[SourceCode, ...]
    symbols: tuple[str, ...]

    def submit(self, maker: ObjectMaker) -> tuple[Future[bytes], ...]:
        """Its objects, to come."""
        return tuple(maker.submit(s, source) for s, source in zip(self.symbols, self.sources, strict=True))


class SchedulingProblem(Protocol):
    """What is to be scheduled.

    Attributes:
        text: what it computes, equal for problems that differ only in names.
        label: for people.
        extents: what its symbols are while it is measured.
    """

    @property
    def text(self) -> str: ...
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

    def trial(self, lowered: LoweredCandidate, code: Sequence[bytes], most_copied: int) -> Trial:
        """What is run; buffers that come from far memory in the model have copies up to ``most_copied`` bytes."""

    def disagreement(self, expected: Sequence[bytes], found: Sequence[bytes], candidate: Candidate) -> str:
        """How results differ, as a sentence; empty where they are the same but for rounding."""
