"""Kernels against the roofs of the machine (the roofline model: Williams, Waterman, Patterson, CACM 52(4), 2009).

A launch cannot take less than its arithmetic at the peak of fused multiply-adds, nor less than its bytes at the bandwidth of
the level of the memory hierarchy that they fit in; the later of both is its bound. Bytes are those moved at least once. A
kernel by Winograd's or Strassen's method counts the operations of the direct one, so its arithmetic can pass 100 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.peaks import Peaks
from runtime_service.executors.executor import LaunchProfile

COMPUTE = "compute"


@dataclass(frozen=True)
class KernelBound:
    """All launches of one kernel in one run of a model.

    Attributes:
        seconds: of all launches.
        flops, bytes: of all launches.
        level: that one launch's bytes fit in.
        compute_seconds, memory_seconds: the least that arithmetic and traffic allow.
    """

    kernel: str
    label: str
    nodes: tuple[str, ...]
    launches: int
    seconds: float
    flops: int
    bytes: int
    level: str
    compute_seconds: float
    memory_seconds: float

    @property
    def bound(self) -> str:
        """``compute``, or the level whose bandwidth keeps the kernel from being faster."""
        return COMPUTE if self.compute_seconds >= self.memory_seconds else self.level

    @property
    def least_seconds(self) -> float:
        return max(self.compute_seconds, self.memory_seconds)

    @property
    def reached(self) -> float:
        """Share of the bound: 1 is as fast as the machine can."""
        return self.least_seconds / self.seconds if self.seconds else 0.0

    @property
    def lost_seconds(self) -> float:
        return max(0.0, self.seconds - self.least_seconds)

    @property
    def flops_per_second(self) -> float:
        return self.flops / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes if self.bytes else 0.0


def bounds(profile: Sequence[LaunchProfile], peaks: Peaks) -> tuple[KernelBound, ...]:
    """One entry per kernel and size of launch that the run comes by, the one that loses the most time first."""
    alike: dict[tuple[str, int, int], list[LaunchProfile]] = {}
    for launch in (item for item in profile if item.seconds):
        alike.setdefault((launch.kernel, launch.flops, launch.bytes), []).append(launch)
    found = [_bound(launches, peaks) for launches in alike.values()]
    return tuple(sorted(found, key=lambda k: -k.lost_seconds))


def _bound(launches: Sequence[LaunchProfile], peaks: Peaks) -> KernelBound:
    first, count = launches[0], len(launches)
    level, seconds = peaks.level(first.bytes), sum(launch.seconds for launch in launches)
    memory_seconds = first.bytes * count / peaks.bandwidth[level].roof
    return KernelBound(
        kernel=first.kernel,
        label=first.label,
        nodes=first.nodes,
        launches=count,
        seconds=seconds,
        flops=first.flops * count,
        bytes=first.bytes * count,
        level=level,
        compute_seconds=first.flops * count / peaks.flops,
        # NOTE: no traffic beats the bandwidth; who seems to did not touch all of an operand (a gather, an embedding), or writes
        # over what it reads: its bytes are counted twice, but half as many lie in the caches
        memory_seconds=min(memory_seconds, seconds),
    )


@dataclass(frozen=True)
class Share:
    """The kernels of one bound: their part of a run and how close to the bound they come together."""

    bound: str
    seconds: float
    least_seconds: float

    @property
    def reached(self) -> float:
        return self.least_seconds / self.seconds if self.seconds else 0.0


def shares(kernels: Sequence[KernelBound]) -> tuple[Share, ...]:
    """Totals by bound, the longest first."""
    found: dict[str, list[KernelBound]] = {}
    for kernel in kernels:
        found.setdefault(kernel.bound, []).append(kernel)
    totals = [Share(b, sum(k.seconds for k in ks), sum(k.least_seconds for k in ks)) for b, ks in found.items()]
    return tuple(sorted(totals, key=lambda s: -s.seconds))
