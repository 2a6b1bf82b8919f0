"""The form of a node between the protobuf and the graph IR, on which adapters work."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

AttributeValue = Any
"""int | float | str | DType | TensorType | np.ndarray | onnx.GraphProto | tuple of these: an attribute not yet in the IR."""

STANDARD_DOMAIN = ""
_STANDARD_NAMES = ("", "ai.onnx")
INTERNAL_DOMAIN = "ingot"
"""Of operators that nodes of a model become, and that no model holds."""


def domain_name(domain: str) -> str:
    """The domain as the importer keys it: ``ai.onnx`` is the empty one."""
    return STANDARD_DOMAIN if domain in _STANDARD_NAMES else domain


@dataclass(frozen=True)
class SourceNode:
    """One ONNX node: names are ONNX names, ``""`` an absent input or output.

    ``attributes`` are Python values with the defaults of the operator's form at ``opset`` filled in. ``result_rank`` is how many
    axes the model says that the first output has, where it does.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, AttributeValue] = field(default_factory=dict)
    domain: str = STANDARD_DOMAIN
    name: str = ""
    opset: int = 0
    overload: str = ""
    result_rank: int | None = None

    @property
    def qualified(self) -> str:
        """The operator as the graph IR names it: ``Conv``, ``com.microsoft.Gelu``."""
        return f"{self.domain}.{self.op}" if self.domain else self.op

    @property
    def title(self) -> str:
        """The ONNX name; for a node without one, its first output."""
        return self.name or next((o for o in self.outputs if o), "")

    def __str__(self) -> str:
        return f"{self.title or '(unnamed)'} ({self.qualified})"

    def input(self, index: int) -> str:
        return self.inputs[index] if index < len(self.inputs) else ""

    def sibling(self, op: str, inputs: tuple[str, ...], output: str, **attributes: AttributeValue) -> SourceNode:
        """A node of the standard domain that an adapter puts beside this one."""
        return SourceNode(op, inputs, (output,), attributes, name=self.name, opset=self.opset)

    def with_(self, **changes: Any) -> Self:
        return replace(self, **changes)

    def without(self, *attributes: str) -> dict[str, AttributeValue]:
        """The attributes but for those named."""
        return {k: v for k, v in self.attributes.items() if k not in attributes}
