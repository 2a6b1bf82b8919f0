"""Branches of ``If``: one that cannot run for the shapes at hand does not refuse the model, only the runs that take it.

Exporters write one branch per configuration (a sampling rate, a batch size of one); with pinned shapes some of them are ill-typed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler_service.compiler.frontend.importing.context import Context
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.problems import Problems
from compiler_service.compiler.frontend.importing.scope import Binding, GraphDraft
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import DEFINE_OP, Attribute, Graph, Node, Value
from shared_ir.types import TensorType


class DynamicTypeError(IngotError):
    """A type that depends on the way the run takes: legal ONNX, which this compiler refuses wherever it stands."""


@dataclass(frozen=True)
class Arm:
    """A branch as it was imported; ``refusal`` says why it cannot run."""

    taken: bool
    """The condition under which it runs."""

    graph: Graph
    outputs: tuple[Binding, ...]
    refusal: IngotError | None = None


@dataclass
class _Trial:
    """Keeps the first node that cannot be typed; everything else is reported as it is elsewhere."""

    outer: Problems
    refusal: IngotError | None = None

    def report(self, error: IngotError, node: SourceNode) -> None:
        if error.code is not ErrorCode.TYPE_MISMATCH or isinstance(error, DynamicTypeError):
            self.outer.report(error, node)
        elif self.refusal is None:
            self.refusal = error


def import_arm(body: Callable[[], tuple[Graph, tuple[Binding, ...]]], taken: bool, context: Context) -> Arm:
    """The branch that ``body`` imports."""
    outer = context.problems
    trial = context.problems = _Trial(outer)
    try:
        graph, outputs = body()
    finally:
        context.problems = outer
    return Arm(taken, graph, outputs, trial.refusal)


def only_arm(arms: Sequence[Arm]) -> Arm | None:
    """The one that can run; ``None`` when all can.

    Raises:
        IngotError: why the first cannot, when none can.
    """
    able = [arm for arm in arms if arm.refusal is None]
    if not able and arms[0].refusal is not None:
        raise arms[0].refusal
    return able[0] if len(able) < len(arms) else None


def take(arm: Arm, condition: Binding, why: IngotError, node: SourceNode, draft: GraphDraft, context: Context) -> None:
    """The nodes of ``arm`` in place of the node, after one that ends the run where the condition asks for the other."""
    if isinstance(condition, Value):
        reason = str(replace(why, remedy="")).rstrip(".")
        other, needed = ("else_branch", "true") if arm.taken else ("then_branch", "false")
        message = (
            f"node '{node.title}': its {other} cannot run for the shapes that the model was compiled for ({reason}), "
            f"so the condition must be {needed}"
        )
        _require(condition, arm.taken, message, node, draft, context)
    draft.nodes.extend(arm.graph.nodes)
    draft.constants.update(arm.graph.constants)


def _require(
    condition: Value, wanted: bool, message: str, node: SourceNode, draft: GraphDraft, context: Context
) -> None:
    """The run reads the condition, and ends with ``message`` unless it is ``wanted``."""
    numbers = context.value(f"{node.title}_number", TensorType(DType.INT64, condition.shape))
    draft.nodes.append(Node("Cast", (condition,), (numbers,), {"to": DType.INT64}, node.title))
    vector = context.value(f"{node.title}_condition", TensorType(DType.INT64, (1,)))
    shape = Value(context.names.fresh(f"{node.title}_one"), TensorType(DType.INT64, (1,)))
    draft.constants[shape] = np.array([1], np.int64)
    context.known.add_constant(shape, draft.constants[shape])
    draft.nodes.append(Node("Reshape", (numbers, shape), (vector,), {}, node.title))
    symbols = (context.symbols.fresh(f"{node.title}_taken"),)
    checked = context.value(f"{node.title}_checked", vector.type)
    attributes: dict[str, Attribute] = {"symbols": symbols, "expected": int(wanted), "message": message}
    draft.nodes.append(Node(DEFINE_OP, (vector,), (checked,), attributes, node.title))
