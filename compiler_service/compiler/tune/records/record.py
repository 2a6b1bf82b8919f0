"""A trial as it is remembered: what was computed, by which candidate, for which target, and what came of it."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from compiler_service.compiler.schedule.default import METHODS, RULES, methods_of
from compiler_service.compiler.schedule.language.knobs import Values
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.records import to_json
from compiler_service.compiler.tune.measuring.trial import OutcomeKind
from shared_ir.digest import canonical_json, sha256_hex

_NUMBER = re.compile(r"(?<![\w%.])\d+(\.\d+)?(e[+-]?\d+)?(?!\w)")
"""A literal of the text of a kernel, and no part of a name (``float32``, ``d0``) or of a tensor (``%1``)."""
_SCHEDULED = frozenset(row.name for row in (*RULES, *METHODS))
"""Rules of which a schedule says all that code follows from."""
_DIGITS = 32
_MOST_SIZE = 2**63 - 1
"""What larger numbers, which are constants, count for."""
MOST_TIME = 253402300800.0
"""Seconds from the epoch to the year 10000: no record is from then."""
_LEAST_SIZE = 0.5
"""What 0 counts for, where sizes are compared by how many times one is the other."""


@dataclass(frozen=True)
class Workload:
    """What is to be computed.

    Attributes:
        digest: of the text that tells kernels apart (:attr:`compiler_service.compiler.program.kernels.Kernel.key`): the definition,
            printed, and which arguments are constant; and of what else its default schedule hangs on, where that does not follow.
        family: of the same text with every number replaced: equal for workloads that differ in sizes.
        sizes: the whole numbers of the text in their order, and then the extents that symbols had when it was measured.
        label: for people: the operators.
    """

    digest: str
    family: str
    sizes: tuple[int, ...]
    label: str

    @classmethod
    def of(cls, text: str, label: str, extents: Sequence[int] = (), standing: str = "") -> Self:
        """The workload of a kernel with this ``text``; ``extents`` of its symbols, in their order.

        What ``standing`` says besides (:attr:`compiler_service.compiler.tune.problem.SchedulingProblem.standing`) tells workloads apart,
        and no families. Numbers with a fraction or an exponent, such as the epsilon of a normalisation, are no sizes.
        """
        whole = [min(int(n[0]), _MOST_SIZE) for n in _NUMBER.finditer(text) if n[1] is None and n[2] is None]
        family = _NUMBER.sub("#", text)
        exact = f"{text}\n{standing}" if standing else text
        return cls(kernel_digest(exact), kernel_digest(family), (*whole, *extents), label)


def kernel_digest(text: str) -> str:
    """Digest of a kernel's tensor expressions: equal for kernels that differ only in names."""
    return sha256_hex(text.encode())


def distance(one: Workload, other: Workload) -> float:
    """How far the sizes of two workloads of one family are apart: the sum of ``|log2(a / b)|``, so that twice as large in one extent
    is as far as half as large; infinite where there are not as many."""
    if len(one.sizes) != len(other.sizes) or one.family != other.family:
        return math.inf
    pairs = zip(one.sizes, other.sizes, strict=True)
    return sum(abs(math.log2(max(a, _LEAST_SIZE)) - math.log2(max(b, _LEAST_SIZE))) for a, b in pairs)


def time_after(latest: float) -> float:
    """The time of a record that is written now and counts for later than one of ``latest``, though the clock that made that one may
    have been ahead of this one: what was decided last is what holds."""
    return min(MOST_TIME, max(time.time(), math.nextafter(latest, math.inf)))


def candidate_digest(schedules: Sequence[Schedule], rule: str, values: Values) -> str:
    """Names what is tried: the schedule alone where it is that of a rule, since several values of knobs may come to one; else also what
    made the kernels that the schedules are of."""
    steps = [to_json(schedule) for schedule in schedules]
    said = steps if rule in _SCHEDULED and len(steps) == 1 else [rule, dict(values), steps]
    return sha256_hex(canonical_json(said))[:_DIGITS]


@dataclass(frozen=True)
class TrialRecord:
    """One trial.

    Attributes:
        workload: digest, family, sizes and label as :class:`Workload` has them.
        target: canonical text, caches and features included.
        machine: that measured it, for people: its cpu, the version of LLVM.
        compiler: version of the compiler that made the code.
        methods: which rounding more than plain sums might be used for the default schedule that it was compared with.
        rule: that made the schedules; what it asked is in ``values``, as far as it was answered otherwise than by the model of the target.
        schedules: one for a kernel of a model, one for each nest of a program; none where none came of the values.
        seconds: median time of one run; ``spread`` of its rounds, in seconds. Both are 0 unless the outcome is ``measured``.
        default_seconds: of the default schedule in the same rounds, with its ``default_spread``; 0 where it was not measured beside it.
        confirmed: measured in turns with the default schedule, twice, and faster each time by more than both spreads.
        settled: the tuner has left the task, of which this is the best candidate that was confirmed, or the default schedule.
        output: sha256 of the results, which equal those of the default schedule; empty where nobody looked.
        time: when, in seconds since the epoch.
        others: fields of a later version, by name; they are kept.
    """

    workload: str
    family: str
    sizes: tuple[int, ...]
    label: str
    target: str
    machine: str
    compiler: str
    methods: tuple[str, ...]
    rule: str
    values: Values
    schedules: tuple[Schedule, ...]
    outcome: OutcomeKind
    seconds: float = 0.0
    spread: float = 0.0
    default_seconds: float = 0.0
    default_spread: float = 0.0
    confirmed: bool = False
    settled: bool = False
    output: str = ""
    time: float = 0.0
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def about(self) -> Workload:
        return Workload(self.workload, self.family, self.sizes, self.label)

    @cached_property
    def candidate(self) -> str:
        """Its :func:`candidate_digest`."""
        return candidate_digest(self.schedules, self.rule, self.values)

    @property
    def share(self) -> float:
        """Its time as a part of that of the default schedule, which was measured beside it; infinite where one of them was not."""
        is_compared = self.outcome is OutcomeKind.MEASURED and self.default_seconds > 0
        return self.seconds / self.default_seconds if is_compared else math.inf

    @property
    def used_methods(self) -> frozenset[str]:
        """Which rounding more than plain sums its schedules take."""
        return frozenset().union(*map(methods_of, self.schedules))
