"""A trial: code to run and to time, what it runs on, and what came of it. Who runs it, here or on another machine, is a Measurer."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Protocol, Self

from shared_ir.digest import canonical_json, sha256_hex
from shared_ir.machine.target import Target


@dataclass(frozen=True)
class TrialLaunch:
    """One kernel, called once for all of its tasks, on one thread.

    Attributes:
        symbol: what the object exports, of type ``ingot_kernel_function`` (``codegen/native/module.h``).
        buffers: numbers of the buffers of the trial, in the order in which the kernel takes them.
        symbols: values of its int64 parameters.
        scratch: bytes of scratch memory of a thread.
    """

    symbol: str
    buffers: tuple[int, ...]
    symbols: tuple[int, ...]
    tasks: int
    scratch: int


@dataclass(frozen=True)
class Content:
    """What a buffer holds before a trial; equal contents have equal digests, so that none is sent twice."""

    digest: str
    data: bytes

    @classmethod
    def of(cls, data: bytes) -> Self:
        return cls(sha256_hex(data), data)


@dataclass(frozen=True)
class TrialBuffer:
    """Memory of a trial, at a 64-byte boundary.

    Attributes:
        size: in bytes.
        content: what it holds at first; None: zeros.
        copies: how many of it are gone through in turn: as many as make it come from where it comes from in the model, since
            weights that were last read an inference ago are in no near cache.
        is_result: whether what it holds in the end is handed back.
    """

    size: int
    content: Content | None = None
    copies: int = 1
    is_result: bool = False


@dataclass(frozen=True)
class Trial:
    """A candidate, compiled.

    Attributes:
        code: ELF objects for ``target``, one for each of ``launches``, which exports its symbol.
        launches: in the order in which they run, one after the other.
    """

    target: Target
    code: tuple[bytes, ...]
    launches: tuple[TrialLaunch, ...]
    buffers: tuple[TrialBuffer, ...]

    @cached_property
    def digest(self) -> str:
        """Equal for trials that run the same on the same."""
        buffers = [(b.size, b.content and b.content.digest, b.copies, b.is_result) for b in self.buffers]
        described = [
            str(self.target),
            [sha256_hex(data) for data in self.code],
            [astuple(o) for o in self.launches],
            buffers,
        ]
        return sha256_hex(canonical_json(described))


class OutcomeKind(enum.StrEnum):
    """How a trial ended; all but the first are reasons not to take the candidate, and results like it."""

    MEASURED = "measured"
    WRONG = "wrong"
    """It computes something else than the default schedule."""
    CRASHED = "crashed"
    LATE = "late"
    """It ran longer than its limit."""
    REFUSED = "refused"
    """The schedule does not fit, or no code can be made of it."""


@dataclass(frozen=True)
class TrialTiming:
    """Seconds of one run, of several rounds."""

    rounds: tuple[float, ...]

    @property
    def seconds(self) -> float:
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, which one interrupted round does not change, in seconds."""
        if len(self.rounds) < 4:
            return max(self.rounds) - min(self.rounds)
        low, _, high = statistics.quantiles(self.rounds, n=4)
        return (high - low) / 2

    @property
    def least(self) -> float:
        """Of all rounds. What disturbs a machine makes rounds longer, never shorter."""
        return min(self.rounds)


@dataclass(frozen=True)
class Outcome:
    """What came of one trial.

    Attributes:
        timing: None unless it was measured.
        results: what the result buffers hold after the first run, in their order; none where the same trial ran just before, with others.
        reason: a sentence, where it was not measured.
    """

    kind: OutcomeKind
    timing: TrialTiming | None = None
    results: tuple[bytes, ...] = ()
    reason: str = ""


class Measurer(Protocol):
    """A machine that runs trials, one at a time. Code that has not been tried must not run in the compiler's process: it has one of its
    own, with limits."""

    @property
    def machine(self) -> str:
        """What measures, for people."""

    @property
    def size(self) -> int:
        """How many calls are measured at once."""

    def run(self, trials: Sequence[Trial], seconds: float) -> tuple[Outcome, ...]:
        """Each of ``trials`` warmed up and timed in rounds that take turns, so that what disturbs the machine disturbs all of them
        alike, until spreads are small or ``seconds`` are spent. A crash or a time-out is an outcome.

        Raises:
            IngotError: DEVICE_TIMEOUT, the machine is lost and ran none of them: they may be run by another one.
        """

    def close(self) -> None:
        """Give the machine back."""
