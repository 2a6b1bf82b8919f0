"""What the schedule language asks of an algorithm: a step that puts stages in the place of a sum, or that lowers a kernel in its own way.

An algorithm is a folder of ``schedule/algorithms``, with such a step and a rule, and one row of ``schedule/default.py``. Nothing else
knows its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from compiler_service.compiler.loop_ir.ir import Function
from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.expr.dim import Dim
from shared_ir.machine.target import Target


class Transform(ABC):
    """What becomes of a constant argument at compile time."""

    @abstractmethod
    def shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Shape of the argument as the kernel reads it."""

    @abstractmethod
    def apply(self, array: np.ndarray) -> np.ndarray:
        """The argument as the kernel reads it."""

    def itemsize(self, itemsize: int) -> int:
        """Bytes of an element as the kernel reads it, of elements of ``itemsize`` bytes."""
        return itemsize


@dataclass(frozen=True)
class Rounding:
    """How far results may be from those of a plain sum of products; see :mod:`accuracy` for what the errors are relative to."""

    algorithm: str
    error_bound: float
    error_typical: float


@dataclass(frozen=True, slots=True)
class AlgorithmStep(ABC):
    """Put other stages in the place of the sum ``stage``, and transform its constant argument ``weight`` for them."""

    name: ClassVar[str]
    """In JSON and in text."""

    stage: str
    weight: str

    @abstractmethod
    def replaced(self, state: ScheduleState, stage: KernelStage, weight: Tensor) -> ScheduleState:
        """``state`` with the stages of the algorithm.

        Raises:
            IngotError: INVALID_ARGUMENT, ``stage`` is not what the algorithm computes.
        """

    @abstractmethod
    def transform(self, weight: Tensor) -> Transform | None:
        """What becomes of ``weight`` at compile time; None where the kernel does it."""

    def rounding(self, weight: Tensor) -> Rounding | None:
        """Errors beyond those of a plain sum; None where there are none."""
        return None


@dataclass(frozen=True, slots=True)
class NestStep(ABC):
    """Lower the kernel whose last sum is ``stage`` by a nest of the algorithm's own."""

    name: ClassVar[str]

    stage: str

    @abstractmethod
    def function(
        self, name: str, state: ScheduleState, arguments: Sequence[Tensor], symbols: Sequence[str], target: Target
    ) -> Function:
        """The loop program.

        Raises:
            IngotError: INVALID_ARGUMENT, the kernel of ``state`` is not what the algorithm computes.
        """
