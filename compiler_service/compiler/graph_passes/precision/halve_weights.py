"""Weights that lose nothing as halves are stored as halves where memory is what a product waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.limits import among, at_least
from compiler_service.compiler.graph_passes.rewriting.operands import FEW_ROWS, has_few_rows
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, Site, rewrite, rule
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import HALVES, DType
from shared_ir.graph.ir import Graph, Node

_PROBED_ELEMENTS = 1 << 12
"""Elements that are tried first: weights that were trained in float32 are told apart by them."""


@dataclass(frozen=True)
class HalveWeights(Pass):
    """``x @ w -> x @ Cast(half(w))`` where every element of ``w`` is a float16, or every one a bfloat16.

    Products of few rows read each weight for a few multiplications, and wait for memory: half as many bytes are half as much
    waiting. Language models that were trained in halves come with such weights, be they written as float32. With many rows
    the conversions would cost what they save.

    Attributes:
        dtypes: that the target widens in an instruction or two.
        most_rows: of a product; one whose rows only the run knows is taken to have few.
        least_bytes: of weights that do not stay in a cache.
    """

    name: ClassVar[str] = "halve-weights"
    level: ClassVar[int] = 3
    needs: ClassVar[Facts] = frozenset({GraphFact.FLOATS_WIDENED, GraphFact.CONSTANTS_FOLDED})
    gives: ClassVar[Facts] = frozenset({GraphFact.WEIGHTS_HALVED})
    forbids: ClassVar[Facts] = frozenset({GraphFact.GROUPED})

    dtypes: tuple[DType, ...] = field(default=HALVES, metadata=among(*HALVES))
    most_rows: int = field(default=FEW_ROWS, metadata=at_least(0))
    least_bytes: int = field(default=1 << 16, metadata=at_least(0))

    def run(self, graph: Graph) -> Graph:
        return rewrite(graph, (rule("MatMul Gemm", self._halved),))

    def _halved(self, node: Node, site: Site) -> Replacement:
        data, weight, *others = node.inputs
        array = site.array(weight)
        if data is None or weight is None or array is None or weight.dtype is not DType.FLOAT32:
            return None
        if array.nbytes < self.least_bytes or not has_few_rows(node, self.most_rows):
            return None
        half = as_half(array, self.dtypes)
        if half is None:
            return None
        wide = site.node("Cast", site.constant(half, weight.name), to=DType.FLOAT32, output=weight.name)
        return site.write(node.op, (data, wide, *others), node.attributes, title=node.name)


def as_half(array: np.ndarray, dtypes: Sequence[DType]) -> np.ndarray | None:
    """float32 as the first of ``dtypes`` that has every number of it; None where none has."""
    for dtype in dtypes:
        if _survives(array.reshape(-1)[:_PROBED_ELEMENTS], dtype) and _survives(array, dtype):
            return array.astype(storage_dtype(dtype))
    return None


def _survives(array: np.ndarray, dtype: DType) -> bool:
    with np.errstate(over="ignore"):
        return bool((array.astype(storage_dtype(dtype)).astype(np.float32) == array).all())
