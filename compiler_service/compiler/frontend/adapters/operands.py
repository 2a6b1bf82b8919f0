"""What an adapter may ask about the inputs of a node, and the constants it may add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from compiler_service.compiler.frontend.importing.context import Context
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.scope import Frame, GraphDraft
from compiler_service.compiler.frontend.reading.source import NEWEST_OPSET
from compiler_service.compiler.frontend.standard.schemas import find_schema
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim
from shared_ir.graph.ir import Value


@dataclass(frozen=True)
class Operands:
    """The surroundings of one node while it is adapted."""

    context: Context
    frame: Frame
    draft: GraphDraft
    node: SourceNode

    def shape(self, name: str) -> tuple[Dim, ...]:
        """Shape of the value called ``name``."""
        found = self.frame.lookup(name)
        if not isinstance(found, Value):
            raise IngotError(ErrorCode.INVALID_MODEL, f"{self.node.op} lacks an input", node=str(self.node))
        return found.shape

    def dtype(self, name: str) -> DType:
        """Element type of the value called ``name``."""
        found = self.frame.lookup(name)
        if not isinstance(found, Value):
            raise IngotError(ErrorCode.INVALID_MODEL, f"{self.node.op} lacks an input", node=str(self.node))
        return found.dtype

    def array(self, attribute: onnx.TensorProto) -> np.ndarray:
        """The elements of an attribute that is a tensor."""
        return self.context.array(attribute, self.node.title)

    def rank(self, name: str) -> int:
        return len(self.shape(name))

    def is_known(self, name: str) -> bool:
        """Whether the elements of the value called ``name`` are numbers or arithmetic on dims; of an absent one, too."""
        found = self.frame.lookup(name) if name else None
        return not isinstance(found, Value) or self.context.known.get(found) is not None

    def integers(self, name: str) -> tuple[int, ...] | None:
        """The elements of the value called ``name`` where they are known integers."""
        found = self.frame.lookup(name)
        elements = self.context.known.get(found) if isinstance(found, Value) else None
        if elements is None or not all(isinstance(e, int) for e in elements.reshape(-1).tolist()):
            return None
        return tuple(elements.reshape(-1).tolist())

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """The elements of the value called ``name`` where they are known numbers."""
        found = self.frame.lookup(name)
        elements = self.context.known.get(found) if isinstance(found, Value) else None
        if elements is None or not all(isinstance(e, int | float) for e in elements.reshape(-1).tolist()):
            return None
        return tuple(float(e) for e in elements.reshape(-1).tolist())

    def whole_numbers(self, name: str) -> tuple[int, ...] | None:
        """The elements of the value called ``name`` where they are known and whole; opset 1 has lengths in the type of the data."""
        numbers = self.numbers(name)
        if numbers is None or not all(n.is_integer() for n in numbers):
            return None
        return tuple(int(n) for n in numbers)

    def int64s(self, label: str, values: Sequence[int]) -> str:
        """A new 1-D int64 constant; the name to read it by."""
        return self.constant(label, np.array(values, dtype=np.int64))

    def constant(self, label: str, array: np.ndarray) -> str:
        """A new constant; the name to read it by."""
        name = self.fresh(label)
        self.context.constant(name, array, self.frame, self.draft)
        return name

    def like(self, label: str, value: float, name: str) -> str:
        """A new scalar constant of the element type of the value called ``name``."""
        found = self.frame.lookup(name)
        dtype = found.dtype.numpy if isinstance(found, Value) else np.dtype(np.float32)
        return self.constant(label, np.array(value, dtype=dtype))

    def fresh(self, label: str) -> str:
        """A name that no value of the model has."""
        base = f"{self.node.title}/{label}"
        name, count = base, 0
        while self.frame.is_defined(name):
            count += 1
            name = f"{base}_{count}"
        return name

    def unsupported(self, attribute: str, expected: str, received: str) -> IngotError:
        """The error for a form of the node that has no equivalent."""
        node = self.node
        form = f"{node.op} of opset {node.opset}" if not node.domain else node.op
        latest = find_schema(node.op, node.domain, NEWEST_OPSET)
        newer = ", or with a newer opset" if latest is not None and latest.since_version > node.opset else ""
        return IngotError(
            ErrorCode.UNSUPPORTED_ATTRIBUTE,
            f"{form} with this {attribute} is not supported",
            node=str(node),
            field=attribute,
            expected=expected,
            received=received,
            remedy=f"Export the model with what is expected{newer}.",
        )
