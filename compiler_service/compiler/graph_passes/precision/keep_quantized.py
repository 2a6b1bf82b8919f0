"""Weights of bytes stay bytes in memory where a product waits for memory, though what they are multiplied by is float."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.limits import at_least
from compiler_service.compiler.graph_passes.rewriting.operands import FEW_ROWS, has_few_rows, permutation
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, Site, rewrite, rule
from compiler_service.compiler.tensor_expr.operators.conversion import KEPT_QUANTIZED
from shared_ir.dtype import DType
from shared_ir.expr.dim import numbers_of
from shared_ir.graph.ir import Graph, Node, Value


@dataclass(frozen=True)
class KeepQuantized(Pass):
    """``x @ DequantizeLinear(w) -> x @ ingot.Dequantize(w)``, which is not folded: the product reads bytes and scales them.

    Language models are quantised so, with one scale for some rows of a column: it is memory that they wait for, of which a byte
    takes a quarter. A Transpose between the two is one of the bytes. Comes before constants are folded, and behind what makes
    products of bytes of those whose data is quantised too.

    Attributes:
        most_rows: of a product, see :class:`HalveWeights`.
        least_elements: of weights that do not stay in a cache.
    """

    name: ClassVar[str] = "keep-quantized"
    level: ClassVar[int] = 3
    needs: ClassVar[Facts] = frozenset({GraphFact.BYTES_MULTIPLIED})
    forbids: ClassVar[Facts] = frozenset({GraphFact.WEIGHTS_DEQUANTIZED, GraphFact.GROUPED})

    most_rows: int = field(default=FEW_ROWS, metadata=at_least(0))
    least_elements: int = field(default=1 << 16, metadata=at_least(0))

    def run(self, graph: Graph) -> Graph:
        return rewrite(graph, (rule("MatMul Gemm", self._kept),))

    def _kept(self, node: Node, site: Site) -> Replacement:
        data, weight, *bias = node.operands
        source, is_turned = weight, int_attribute(node, "transB") == 1
        transpose = site.producer(weight, "Transpose")
        if transpose is not None and permutation(transpose) == (1, 0):
            source, is_turned = transpose.operands[0], not is_turned
        scaled = site.producer(source, "DequantizeLinear")
        if scaled is None or site.producer(data, "DequantizeLinear") is not None or not self._is_worth(node, scaled):
            return None
        operands = scaled.operands
        if not _are_constant(operands, site) or weight.dtype is not DType.FLOAT32:
            return None
        attributes = {k: v for k, v in scaled.attributes.items() if k in ("axis", "block_size")}
        if is_turned:
            operands = tuple(_turned(v, site) for v in operands)
            attributes["axis"] = 1 - int_attribute(scaled, "axis", 1) % 2
        kept = site.write(KEPT_QUANTIZED, operands, attributes, title=scaled.name, output=weight.name)
        others = {k: v for k, v in node.attributes.items() if k != "transB"}
        return site.write(node.op, (data, kept, *bias), others, title=node.name)

    def _is_worth(self, product: Node, scaled: Node) -> bool:
        weight = scaled.operands[0]
        sizes = numbers_of(weight.shape)
        is_byte = weight.dtype.is_integer and weight.dtype.bits <= 8 and weight.type.rank == 2
        return (
            is_byte
            and sizes is not None
            and math.prod(sizes) >= self.least_elements
            and has_few_rows(product, self.most_rows)
        )


def _are_constant(values: Sequence[Value], site: Site) -> bool:
    """Whether all of ``values`` are, or will be folded to, constants: 4-bit codes are unpacked by operators."""
    seen: set[Value] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        node = site.producer(value)
        if node is None and site.array(value) is None:
            return False
        if node is None or value in seen:
            continue
        if node.subgraphs or not node.operands:
            return False
        seen.add(value)
        stack.extend(node.operands)
    return True


def _turned(value: Value, site: Site) -> Value:
    """A parameter of two axes with these exchanged; one number for the tensor or for each index of an axis as it is."""
    return value if value.type.rank < 2 else site.transpose(value, (1, 0))
