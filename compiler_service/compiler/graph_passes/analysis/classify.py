"""What kind of operator a node is, read off its tensor expression rather than from a list of names."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler_service.compiler.graph_passes.analysis.known import known_values
from compiler_service.compiler.graph_passes.analysis.values import operand
from compiler_service.compiler.tensor_expr.registry import OPERATORS, infer
from compiler_service.compiler.tensor_expr.tensor import Compute, Load, Placeholder, Tensor, loads
from shared_ir.errors import IngotError
from shared_ir.expr import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Reinterpret,
    Select,
    Unary,
    UnaryOp,
    Var,
    substitute,
    walk,
)
from shared_ir.expr.dim import Dim
from shared_ir.expr.simplify import simplify
from shared_ir.graph.ir import Node, Value


class OperatorKind(enum.StrEnum):
    ELEMENTWISE = (
        "elementwise"  # every element of the result depends on the operands' elements at its own (broadcast) place
    )
    INJECTIVE = "injective"  # no reduction: data movement, and what depends on the position
    REDUCTION = "reduction"  # some element is computed by a loop
    OPAQUE = "opaque"  # no tensor expression, or control flow


class AccessPattern(enum.StrEnum):
    """How the result reads one operand."""

    IDENTITY = "identity"  # at its own place, same shape
    BROADCAST = "broadcast"  # at its own place, with axes missing or of extent 1
    INDEXED = "indexed"  # anywhere
    UNUSED = "unused"


@dataclass(frozen=True)
class Classification:
    """What is known about a node.

    Attributes:
        kind: see :class:`OperatorKind`.
        accesses: how each input of the node is read.
        heavy: an element costs much more than a load and a few additions.
        free: an element costs a load: nothing is calculated but the place to load from.
        down: a reduction of whole vectors: the last axis of what it reads is that of the result.
        named: nothing says how elements are computed: no definition, or one that gives types alone.
    """

    kind: OperatorKind
    accesses: tuple[AccessPattern, ...]
    heavy: bool = False
    free: bool = False
    down: bool = False
    named: bool = False

    def access(self, node: Node, value: Value) -> AccessPattern:
        """How ``node`` reads ``value``: the least orderly of its uses."""
        found = [a for v, a in zip(node.inputs, self.accesses, strict=True) if v == value]
        return max(found, key=_DISORDER.__getitem__, default=AccessPattern.UNUSED)


_DISORDER = {AccessPattern.UNUSED: 0, AccessPattern.IDENTITY: 1, AccessPattern.BROADCAST: 2, AccessPattern.INDEXED: 3}
_HEAVY_BINARY = frozenset({BinaryOp.DIV, BinaryOp.POW, BinaryOp.ATAN2, BinaryOp.TRUNC_DIV, BinaryOp.TRUNC_MOD})
_LIGHT_UNARY = frozenset(
    {UnaryOp.NEG, UnaryOp.NOT, UnaryOp.BIT_NOT, UnaryOp.ABS, UnaryOp.FLOOR, UnaryOp.CEIL, UnaryOp.ROUND, UnaryOp.TRUNC}
    | {UnaryOp.IS_NAN, UnaryOp.IS_INF}
)


def classify(node: Node, known: Mapping[Value, np.ndarray]) -> Classification:
    """The kind of ``node`` and its accesses; ``known`` as from :func:`known_values`."""
    if node.subgraphs:
        return Classification(OperatorKind.OPAQUE, (AccessPattern.INDEXED,) * len(node.inputs))
    operands = tuple(None if v is None else operand(v, known.get(v)) for v in node.inputs)
    try:
        tensors = infer(node.op, operands, node.attributes)
    except IngotError:
        indexed = (AccessPattern.INDEXED,) * len(node.inputs)
        return Classification(OperatorKind.OPAQUE, indexed, named=node.op not in OPERATORS)
    if any(_is_typed_alone(t, operands) for t in tensors):
        return Classification(OperatorKind.OPAQUE, (AccessPattern.INDEXED,) * len(node.inputs), named=True)
    outputs = [t for t, v in zip(tensors, node.outputs, strict=False) if t is not None and v is not None]
    stages = list(dict.fromkeys(s for t in outputs for s in computes(t)))
    heavy = any(_is_heavy(s) for s in stages)
    reducing = [s for s in stages if isinstance(s.op, Compute) and s.op.reduction]
    if reducing:
        read = {t.name for s in stages for t in s.producers}
        return Classification(
            OperatorKind.REDUCTION, tuple(_indexed(v, read) for v in node.inputs), heavy, down=_is_down(reducing)
        )
    accesses = _accesses(node, outputs)
    free = not any(_calculates(s) for s in stages)
    orderly = len(outputs) == 1 and AccessPattern.IDENTITY in accesses and AccessPattern.INDEXED not in accesses
    positional = any(_reads_position(s) for s in stages)
    kind = OperatorKind.ELEMENTWISE if orderly and not positional else OperatorKind.INJECTIVE
    return Classification(kind, accesses, heavy, free)


def _is_typed_alone(result: Tensor | None, operands: Sequence[Tensor | None]) -> bool:
    return (
        result is not None
        and isinstance(result.op, Placeholder)
        and result.value is None
        and all(result is not x for x in operands)
    )


def _indexed(value: Value | None, read: set[str]) -> AccessPattern:
    return AccessPattern.INDEXED if value is not None and value.name in read else AccessPattern.UNUSED


def computes(tensor: Tensor) -> Iterator[Tensor]:
    """``tensor`` and everything it is computed from, without the placeholders."""
    seen: set[Tensor] = set()
    stack = [tensor]
    while stack:
        item = stack.pop()
        if item in seen or not isinstance(item.op, Compute):
            continue
        seen.add(item)
        yield item
        stack.extend(item.producers)


def _is_heavy(stage: Tensor) -> bool:
    assert isinstance(stage.op, Compute)
    for e in _walk_outside_indices(stage.op.body):
        if isinstance(e, Unary) and e.op not in _LIGHT_UNARY:
            return True
        if isinstance(e, Binary) and e.op in _HEAVY_BINARY:
            return True
    return False


def _is_down(reducing: Sequence[Tensor]) -> bool:
    """Whether it is one reduction, over other axes than the last of all that it reads."""
    (first, *others) = reducing
    assert isinstance(first.op, Compute)
    if others or not first.op.axes:
        return False
    last = first.op.axes[-1].var
    return all(ld.indices and ld.indices[-1] == last for ld in loads(first.op.body))


def _calculates(stage: Tensor) -> bool:
    """Whether an element takes arithmetic; choosing between loads and converting them does not count."""
    assert isinstance(stage.op, Compute)
    body = stage.op.body
    stack = [body]
    while stack:
        node = stack.pop()
        if isinstance(node, (Unary, Binary)) and _reads(node):
            return True
        if isinstance(node, (Select, Cast, Reinterpret)):
            stack.extend(node.children())
    return False


def _reads(expr: Expr) -> bool:
    """Whether ``expr`` depends on more than places and sizes."""
    return any(isinstance(e, Load) for e in walk(expr))


def _reads_position(stage: Tensor) -> bool:
    """Whether the body uses a loop variable other than to index a tensor."""
    assert isinstance(stage.op, Compute)
    own = {a.var for a in stage.op.all_axes}
    return any(isinstance(e, Var) and e in own for e in _walk_outside_indices(stage.op.body))


def _walk_outside_indices(body: Expr) -> Iterator[Expr]:
    stack = [body]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if not isinstance(node, Load):
            stack.extend(node.children())


def _accesses(node: Node, outputs: list[Tensor]) -> tuple[AccessPattern, ...]:
    found: dict[str, AccessPattern] = {}
    for tensor in outputs:
        for name, access in _leaf_accesses(tensor):
            found[name] = max(found.get(name, AccessPattern.UNUSED), access, key=_DISORDER.__getitem__)
    return tuple(AccessPattern.UNUSED if v is None else found.get(v.name, AccessPattern.UNUSED) for v in node.inputs)


def _leaf_accesses(tensor: Tensor) -> Iterator[tuple[str, AccessPattern]]:
    if not isinstance(tensor.op, Compute):
        yield tensor.name, AccessPattern.IDENTITY
        return
    axes = tuple(a.var for a in tensor.op.axes)
    for leaf, indices in leaf_loads(tensor, axes):
        yield leaf.name, _access(leaf.shape, indices, tensor.shape, axes)


def leaf_loads(tensor: Tensor, indices: tuple[Expr, ...]) -> Iterator[tuple[Tensor, tuple[Expr, ...]]]:
    """Every placeholder element that ``tensor[indices]`` reads, through the computes in between."""
    assert isinstance(tensor.op, Compute)
    places: dict[Var, Expr] = {a.var: i for a, i in zip(tensor.op.axes, indices, strict=True)}
    for load in dict.fromkeys(loads(tensor.op.body)):
        inner = tuple(substitute(i, places) for i in load.indices)
        if isinstance(load.tensor.op, Compute):
            yield from leaf_loads(load.tensor, inner)
        else:
            yield load.tensor, inner


def _access(
    shape: tuple[Dim, ...], indices: tuple[Expr, ...], full: tuple[Dim, ...], axes: tuple[Var, ...]
) -> AccessPattern:
    skipped = len(full) - len(shape)
    if skipped < 0:
        return AccessPattern.INDEXED
    for index, axis, extent in zip(indices, axes[skipped:], shape, strict=True):
        place = index if isinstance(index, (Const, Var)) else simplify(index)
        if place != axis and not (extent == 1 and place == Const(0)):
            return AccessPattern.INDEXED
    return AccessPattern.IDENTITY if shape == full else AccessPattern.BROADCAST


def overwritable_inputs(group: Node) -> tuple[Value, ...]:
    """Inputs of a fused group that its kernel reads only at the place it is about to write.

    Empty unless the group is a chain or DAG of operators without reductions, with one output.
    """
    (body,) = group.subgraphs
    known = known_values(body)
    reached: dict[Value, set[Value]] = {v: {v} for v in body.inputs}
    spoilt: set[Value] = set()
    for node in body.nodes:
        found = classify(node, known)
        if found.kind in (OperatorKind.REDUCTION, OperatorKind.OPAQUE):
            return ()
        sources: set[Value] = set()
        for value, access in zip(node.inputs, found.accesses, strict=True):
            behind = reached.get(value, set()) if value is not None else set()
            if access in (AccessPattern.BROADCAST, AccessPattern.INDEXED):
                spoilt |= behind
            sources |= behind
        reached.update((v, sources) for v in node.results)
    order = dict(zip(body.inputs, group.inputs, strict=True))
    return tuple(v for inner, v in order.items() if v is not None and inner not in spoilt)
