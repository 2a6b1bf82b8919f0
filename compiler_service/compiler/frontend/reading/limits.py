"""What an untrusted model may cost before it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim, dims_text, evaluate_alike
from shared_ir.types import TensorType

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class FrontendLimits:
    """Upper bounds; every one refuses with LIMIT_EXCEEDED.

    Sizes are in bytes. A symbolic size counts as if every symbol were 1.
    """

    model_bytes: int = 2 * GIB  # protobuf itself stops there
    external_bytes: int = 32 * GIB
    nodes: int = 200_000  # after inlining functions
    operands: int = 1 << 14  # of one node
    graph_entries: int = 1_000_000  # nodes, initializers, inputs, outputs and value infos of the main graph
    dim: int = 1 << 31
    rank: int = 16
    tensor_bytes: int = 16 * GIB
    total_tensor_bytes: int = 512 * GIB  # of all values together, dead or alive
    nesting: int = 12  # graphs in graphs, functions in functions
    name_length: int = 4096


@dataclass
class ImportBudget:
    """What one import has used up of its :class:`FrontendLimits`."""

    limits: FrontendLimits
    nodes: int = 0
    tensor_bytes: int = 0

    def spend_node(self, operands: int = 0) -> None:
        """Count a node.

        Raises:
            IngotError: LIMIT_EXCEEDED.
        """
        self.nodes += 1
        if operands > self.limits.operands:
            raise exceeded("a node has too many operands", f"at most {self.limits.operands}", str(operands))
        if self.nodes > self.limits.nodes:
            raise exceeded("the model has too many nodes", f"at most {self.limits.nodes}", "more, functions inlined")

    def spend_tensor(self, type: TensorType, name: str) -> None:
        """Count a tensor of ``type``.

        Raises:
            IngotError: LIMIT_EXCEEDED naming the tensor.
        """
        self.check_rank(type.shape, name)
        elements = self._least_elements(type.shape, name)
        size = elements * type.dtype.itemsize
        if size > self.limits.tensor_bytes:
            raise exceeded(
                "a tensor of the model is too large",
                f"at most {self.limits.tensor_bytes} bytes",
                f"{type}: at least {size} bytes",
                tensor=name,
            )
        self.tensor_bytes += size
        if self.tensor_bytes > self.limits.total_tensor_bytes:
            raise exceeded(
                "the tensors of the model are too large together",
                f"at most {self.limits.total_tensor_bytes} bytes",
                f"more, counted up to {name!r}",
                tensor=name,
            )

    def check_rank(self, shape: Sequence[Dim], name: str) -> None:
        if len(shape) > self.limits.rank:
            raise exceeded(
                "a tensor has too many axes", f"at most {self.limits.rank}", f"rank {len(shape)}", tensor=name
            )

    def _least_elements(self, shape: Sequence[Dim], name: str) -> int:
        total = 1
        for dim in shape:
            extent = _least(dim)
            if extent is None or extent > self.limits.dim:
                raise exceeded("a dim is too large", f"at most {self.limits.dim}", f"[{dims_text(shape)}]", tensor=name)
            total *= max(1, extent)  # numpy bounds the other dims of an empty array too
        return total


def _least(dim: Dim) -> int | None:
    """``dim`` where every symbol is 1; None where that is beyond int64."""
    if isinstance(dim, int):
        return dim
    found = evaluate_alike(dim, 1)
    return None if found is None else max(1, found)


def exceeded(message: str, expected: str, received: str, *, tensor: str = "", field: str = "") -> IngotError:
    return IngotError(
        ErrorCode.LIMIT_EXCEEDED,
        message,
        tensor=tensor,
        field=field,
        expected=expected,
        received=received,
        remedy="Make the model smaller, or ask the operator of the service to raise the limit.",
    )
