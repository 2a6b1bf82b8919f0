"""What a batcher is given, and what it tells: options, executions, results."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from runtime_service.arrays import Array
from runtime_service.batching.rows import Arrays
from runtime_service.executors.resources import UNBOUNDED, Resources
from runtime_service.executors.stop import Stop


class ReleaseReason(enum.StrEnum):
    """Why a batch was released from the queue."""

    FULL = "full"  # max_batch_size rows were waiting
    PREFERRED = "preferred"  # as many rows were waiting as a preferred size
    DELAY = "delay"  # the oldest request had waited max_queue_delay
    IDLE = "idle"  # an instance was free and no delay is configured
    CLOSING = "closing"  # the version is being unloaded
    UNBATCHED = "unbatched"  # the model has no batch dim, or batching is off


class Runner(Protocol):
    """One instance of a model: runs one batch at a time."""

    def run(self, inputs: Arrays, /, stop: Stop | None = None) -> dict[str, Array]: ...


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """Bounds of a batcher.

    Attributes:
        max_batch_size: rows of one execution; larger requests are computed in pieces. 0 turns merging off.
        max_queue_delay: how long the oldest request may wait for company while an instance is free, in seconds.
        max_queue_size: waiting requests of one priority beyond which new ones are refused.
        resources: of an instance; what a request that is computed in pieces gives may take as much as one run.
        preferred_batch_sizes: rows for which an execution does not wait any longer, ascending.
        priority_levels: from 1, which goes before all others, to this; 0 where requests have no priority.
        default_priority_level: of requests that name none.
    """

    max_batch_size: int = 0
    max_queue_delay: float = 0.0
    max_queue_size: int = 512
    resources: Resources = UNBOUNDED
    preferred_batch_sizes: tuple[int, ...] = ()
    priority_levels: int = 0
    default_priority_level: int = 0


@dataclass(frozen=True, slots=True)
class Execution:
    """What one run of an instance took. Times in seconds; ``rows`` is 0 for models without a batch dim; ``began`` is on the clock of the
    batcher."""

    requests: int
    rows: int
    merge_time: float
    compute_time: float
    split_time: float
    reason: ReleaseReason
    began: float = 0.0
    cpu_time: float = 0.0
    """Of the thread that computed it, without what it waited for others."""

    def after(self, first: Execution | None) -> Execution:
        """Of one request: both together, where it was computed in pieces."""
        if first is None:
            return self
        return Execution(
            1,
            first.rows + self.rows,
            first.merge_time + self.merge_time,
            first.compute_time + self.compute_time,
            first.split_time + self.split_time,
            self.reason,
            first.began,
            first.cpu_time + self.cpu_time,
        )


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The rows of one caller, and what they took. ``queue_time`` in seconds."""

    outputs: dict[str, Array]
    queue_time: float
    execution: Execution


class BatchObserver(Protocol):
    """Is told of every execution and of every change of the queue length."""

    def executed(self, execution: Execution, /) -> None: ...

    def pending(self, requests: int, /) -> None: ...
