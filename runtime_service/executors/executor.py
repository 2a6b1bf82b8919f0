"""What every executor is: something that runs one inference at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from runtime_service.arrays import Array
from runtime_service.executors.objects import Objects
from runtime_service.executors.stop import Stop


@dataclass(frozen=True)
class LaunchProfile:
    """One launch of a plan, measured.

    Attributes:
        label: what the launch computes.
        kernel: name of the native function.
        seconds: median over the repeats.
        flops, bytes: work, and memory moved at least once, for the sizes that were run.
        nodes: names of the ONNX nodes.
    """

    label: str
    kernel: str
    seconds: float
    flops: int
    bytes: int
    nodes: tuple[str, ...]


class Executor(Protocol):
    """Runs one inference at a time."""

    def run(
        self,
        inputs: Sequence[Array],
        objects: Objects | None = None,
        stop: Stop | None = None,
        into: Sequence[Array] | None = None,
    ) -> list[Array]:
        """``inputs`` in the order of the plan, of the right dtype and rank, C-contiguous and aligned; what is behind the numbers
        of strings, sequences and optionals is in ``objects``. ``into``: arrays of this kind that the outputs are written to.

        Raises:
            IngotError: INVALID_ARGUMENT, the extents of inputs or of ``into`` do not fit the model; RESOURCE_EXHAUSTED; CANCELLED, by
                ``stop``.
        """
        ...

    def rest(self) -> None:
        """Free threads and memory of the code until the next run, which takes them again; nothing may run meanwhile."""
        ...

    def close(self) -> None:
        """Free threads and memory; nothing may run any more."""
        ...
