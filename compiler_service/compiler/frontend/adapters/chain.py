"""Writing several nodes in place of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import AttributeValue, SourceNode
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import DEFINE_OP


@dataclass
class Chain:
    """Nodes that stand for ``node``, in order."""

    node: SourceNode
    operands: Operands
    nodes: list[SourceNode] = field(default_factory=list)

    def add(self, op: str, *inputs: str, output: str = "", **attributes: AttributeValue) -> str:
        """The name of the first output of a new node; ``ingot.X`` is an operator that only this compiler has."""
        domain, _, name = op.rpartition(".")
        output = output or self._fresh(name.lower())
        self.nodes.append(SourceNode(name, inputs, (output,), attributes, domain, self.node.name, self.node.opset))
        return output

    def add_many(self, op: str, inputs: Sequence[str], count: int, **attributes: AttributeValue) -> tuple[str, ...]:
        """The names of the first ``count`` outputs of a new node of the standard domain."""
        outputs = tuple(self._fresh(f"{op.lower()}_{index}") for index in range(count))
        self.nodes.append(SourceNode(op, tuple(inputs), outputs, attributes, "", self.node.name, self.node.opset))
        return outputs

    def require(self, vector: str, expected: int, message: str) -> None:
        """The run ends with ``message`` unless the one element of the int64 ``vector`` is ``expected``."""
        symbols = (self.operands.context.symbols.fresh(f"{self.node.title}_required"),)
        self.add(DEFINE_OP, vector, symbols=symbols, expected=expected, message=message)

    def attribute(self, name: str, default: AttributeValue = None) -> Any:
        """An attribute of the node."""
        return self.node.attributes.get(name, default)

    def required(self, name: str) -> Any:
        """An attribute of the node.

        Raises:
            IngotError: INVALID_MODEL, there is none, or it is empty.
        """
        found = self.attribute(name)
        if found is None or found == ():
            raise IngotError(
                ErrorCode.INVALID_MODEL,
                f"{self.node.op} lacks the attribute {name}",
                node=str(self.node),
                field=name,
                expected=name,
                received="nothing",
                remedy="Run onnx.checker on the model, and correct the node.",
            )
        return found

    def rows(self, name: str, count: int) -> np.ndarray:
        """The list of floats ``name`` as float32 ``[count, ...]``.

        Raises:
            IngotError: UNSUPPORTED_ATTRIBUTE, it cannot be divided into so many rows.
        """
        own = np.array(self.required(name), np.float32)
        if count < 1 or len(own) % count:
            raise self.operands.unsupported(name, f"numbers for each of {count}", f"{len(own)} numbers")
        return own.reshape(count, -1)

    def constant(self, label: str, values: np.ndarray | Sequence[float] | float, dtype: type = np.float32) -> str:
        return self.operands.constant(label, np.asarray(values, dtype=dtype))

    def as_output(self, value: str, index: int = 0) -> None:
        """Make ``value`` output ``index`` of the node, if it is asked for."""
        wanted = self.node.outputs[index] if index < len(self.node.outputs) else ""
        if wanted:
            self.add("Identity", value, output=wanted)

    def _fresh(self, label: str) -> str:
        return self.operands.fresh(f"{label}_{len(self.nodes)}")
