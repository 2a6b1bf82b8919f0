"""Products of quantized operands as products of bytes, for processors that have an instruction for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from compiler_service.compiler.graph_passes.precision.byte_products import dequantized_product_rules
from compiler_service.compiler.graph_passes.precision.integer_products import integer_product_rules
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.limits import among
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from compiler_service.compiler.graph_passes.rewriting.rewrite import rewrite
from shared_ir.dtype import DType
from shared_ir.graph.ir import Graph


@dataclass(frozen=True)
class MultiplyBytes(Pass):
    """Comes before constants are dequantized, while weights are bytes still; ``data`` is the type of bytes that the target takes."""

    name: ClassVar[str] = "multiply-bytes"
    level: ClassVar[int] = 2
    needs: ClassVar[Facts] = frozenset({GraphFact.FLOATS_WIDENED})
    gives: ClassVar[Facts] = frozenset({GraphFact.BYTES_MULTIPLIED})
    forbids: ClassVar[Facts] = frozenset({GraphFact.WEIGHTS_DEQUANTIZED, GraphFact.CHANNELS_LAST, GraphFact.GROUPED})

    data: DType = field(default=DType.UINT8, metadata=among(DType.UINT8, DType.INT8))

    def run(self, graph: Graph) -> Graph:
        return rewrite(graph, (*dequantized_product_rules(self.data), *integer_product_rules(self.data)))
