"""What every measured engine is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.inputs import Array, Shape


@dataclass(frozen=True)
class LoadRequest:
    """A model to make ready.

    Attributes:
        shapes: of every input.
        dynamic: compile for whatever shapes the model allows, rather than for ``shapes`` alone.
        threads: that one inference may use.
    """

    model: Path
    shapes: Mapping[str, Shape]
    dynamic: bool
    threads: int


class Engine(Protocol):
    """Loads one model in its life and runs it, in float32 unless it says otherwise."""

    def load(self, request: LoadRequest) -> dict[str, Any]:
        """Make the model ready; facts worth reporting as JSON values, ``version`` among them."""
        ...

    def prepare(self, feeds: Mapping[str, Array]) -> None:
        """Keep the inputs of all later runs, in the form that the engine takes at the least cost."""
        ...

    def run(self) -> None:
        """One inference on the prepared inputs; whatever the engine allocates for it counts."""
        ...

    def outputs(self) -> dict[str, Array]:
        """Outputs by name, of a run on the prepared inputs."""
        ...
