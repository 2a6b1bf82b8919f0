"""The step ``attend``: a nest of its own for attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from compiler_service.compiler.loop_ir.ir import Function
from compiler_service.compiler.schedule.algorithms.attention.match import match_attention
from compiler_service.compiler.schedule.algorithms.attention.nest import attention_function
from compiler_service.compiler.schedule.language.algorithm import NestStep
from compiler_service.compiler.schedule.language.state import ScheduleState, misfit
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.machine.target import Target


@dataclass(frozen=True, slots=True)
class Attend(NestStep):
    """Compute the attention that ends in the product ``stage`` a block of keys at a time, with a running maximum.

    before: ``M = max of s; L = sum of exp(s - M); T = sum of exp(s - M) / L * v``
    after:  per block: ``M' = max(M, max of s); L = L * exp(M - M') + sum of exp(s - M')``, T likewise; in the end ``T / L``
            (online softmax, Milakov and Gimelshein 2018; tiled as in FlashAttention, Dao et al. 2022)

    ``rows`` queries by ``keys`` keys are a block. ``scores`` and ``values`` are the register tiles of the two products: rows,
    vectors. A task does ``units`` times a block of rows of one head.
    """

    name: ClassVar[str] = "attend"

    rows: int
    keys: int
    scores: tuple[int, int]
    values: tuple[int, int]
    units: int = 1

    def function(
        self, name: str, state: ScheduleState, arguments: Sequence[Tensor], symbols: Sequence[str], target: Target
    ) -> Function:
        attention = match_attention(state)
        if attention is None or attention.mixed.name != self.stage:
            raise misfit("not attention", received=self.stage)
        return attention_function(name, attention, self, state, arguments, symbols, target)
