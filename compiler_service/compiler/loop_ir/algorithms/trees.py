"""The loop function that walks down decision trees: several walks side by side, so that none waits for its own loads.

A walk is a chain of loads that depend on each other, and where it turns nobody can predict. Steps are therefore free of branches,
and `_WALKS_AT_ONCE` of them take turns: of as many trees as are given together, and of several rows where those are fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from compiler_service.compiler.loop_ir.algorithms.compact import CompactCell, load, loop, with_cell
from compiler_service.compiler.loop_ir.ir import Block, Buffer, If, Statement, Store
from compiler_service.compiler.tensor_expr.operators.sequential import RECORD
from compiler_service.compiler.tensor_expr.scalar import clamped, is_nan
from shared_ir.dtype import DType
from shared_ir.expr import Expr, Var, cast, equal, lift, logical_and, logical_or, minimum, not_equal, reinterpret
from shared_ir.expr.dim import Dim, as_dim

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_WALKS_AT_ONCE = 8
"""As many as there are registers for: a step takes twenty cycles or more to answer, and about two to execute."""

_LEVELS_PER_LOOK = 4
"""Steps between two looks at whether all walks have ended."""

_WALKS_OF_TASK = 512
"""Walks that are worth a task: some microseconds."""


@dataclass(frozen=True)
class Walks:
    """The operands of ``ingot.TreeLeaves``, see :func:`tensor_expr.operators.sequential.tree_leaves`."""

    x: Buffer
    roots: Buffer
    records: Buffer
    steps: Buffer
    out: Buffer
    is_missing_tested: bool

    @property
    def trees_together(self) -> int:
        (roots,), (groups,) = self.roots.shape, self.steps.shape
        assert isinstance(roots, int)
        assert isinstance(groups, int)
        return roots // groups

    @property
    def rows_together(self) -> int:
        return max(1, _WALKS_AT_ONCE // self.trees_together)

    def stay_inside(self, roots: Array, words: Array) -> bool:
        """Whether walks from ``roots`` through the records ``words`` meet records and columns that are there, whatever the rows hold."""
        columns = self.x.shape[1]
        nodes, rest = divmod(len(words), RECORD)
        if rest or not nodes:
            return False
        records = words.reshape(nodes, RECORD)
        column, following = (records[:, i].astype(np.int64) for i in (0, 2))
        is_nan_passed = column % 2 == 1 if self.is_missing_tested else np.zeros(nodes, np.bool_)
        bounds = np.ascontiguousarray(records[:, 1]).view(np.float64 if words.dtype.itemsize == 8 else np.float32)
        reached = following + RECORD * (~np.isnan(bounds) | is_nan_passed)  # nothing else is at most NaN
        starts = np.concatenate((roots.astype(np.int64), following, reached))
        column = column // 2 if self.is_missing_tested else column
        return bool(
            ((starts >= 0) & (starts < len(words)) & (starts % RECORD == 0)).all()
            and (column >= 0).all()
            and (not isinstance(columns, int) or (column < columns).all())
        )

    def step(self, node: Expr, row: Expr) -> Expr:
        """The record that follows ``node``; leaves follow themselves."""
        feature = cast(load(self.records, node), DType.INT64)
        column, columns = feature // 2 if self.is_missing_tested else feature, self.x.shape[1]
        value = load(self.x, row, column if isinstance(columns, int) else clamped(column, columns))
        holds = value <= reinterpret(load(self.records, node + 1), self.x.dtype)
        if self.is_missing_tested:
            holds = logical_or(holds, logical_and(is_nan(value), equal(feature % 2, 1)))
        return cast(load(self.records, node + 2), DType.INT64) + cast(holds, DType.INT64) * RECORD


def walk_trees(walks: Walks, task: Var) -> tuple[Dim, Statement]:
    """One task for every few groups of trees; all rows go down one group before the next, whose records are in the cache then."""
    (groups,), rows = walks.steps.shape, walks.out.shape[0]
    assert isinstance(groups, int)
    groups_in_task = 1
    if isinstance(rows, int):
        groups_in_task = min(groups, max(1, _WALKS_OF_TASK // max(1, rows * walks.trees_together)))
    tasks = -(-groups // groups_in_task)
    blocks = as_dim((lift(rows) + (walks.rows_together - 1)) // walks.rows_together)

    def group(number: Expr) -> Statement:
        return loop("block", blocks, lambda block: _walk(walks, number, block))

    if groups_in_task == 1:
        return tasks, group(task)
    last = lift(groups - 1)
    return tasks, loop("group", groups_in_task, lambda g: group(minimum(task * groups_in_task + g, last)))


def _walk(walks: Walks, group: Expr, block: Expr) -> Statement:
    """``_WALKS_AT_ONCE`` walks to their ends. Those that there are no trees or rows for repeat the last."""
    trees, rows = (lift(extent) - 1 for extent in (walks.out.shape[1], walks.out.shape[0]))
    own = [group * walks.trees_together + i for i in range(walks.trees_together)]
    across = [minimum(block * walks.rows_together + i, rows) for i in range(walks.rows_together)]
    starts = [(row, tree) for tree in own for row in across]

    def descend(nodes: Sequence[CompactCell], moved: CompactCell) -> Statement:
        steps = cast(load(walks.steps, group), DType.INT64)
        turns = (steps + (_LEVELS_PER_LOOK - 1)) // _LEVELS_PER_LOOK

        def level() -> Statement:
            return Block(tuple(n.set(walks.step(n.value, row)) for n, (row, _) in zip(nodes, starts, strict=True)))

        def look() -> Statement:
            ahead = [cast(load(walks.records, n.value + 2), DType.INT64) for n in nodes]
            going = [not_equal(after, n.value) for after, n in zip(ahead, nodes, strict=True)]
            return moved.set(reduce(logical_or, going))

        def several(turn: Var) -> Statement:
            some = minimum(steps - turn * _LEVELS_PER_LOOK, _LEVELS_PER_LOOK)
            return If(moved.value, Block((loop("level", some, lambda _: level()), look())))

        found = [
            Store(walks.out, (row, minimum(tree, trees)), cast(load(walks.records, n.value + 3), DType.INT32))
            for n, (row, tree) in zip(nodes, starts, strict=True)
        ]
        return Block((loop("turn", turns, several), *found))

    initial = [cast(load(walks.roots, tree), DType.INT64) for _, tree in starts]
    return _with_cells(
        "node", initial, lambda nodes: with_cell("moved", lift(True, DType.BOOL), lambda m: descend(nodes, m))
    )


def _with_cells(name: str, initial: Sequence[Expr], body: Callable[[Sequence[CompactCell]], Statement]) -> Statement:
    def following(cells: tuple[CompactCell, ...]) -> Statement:
        if len(cells) == len(initial):
            return body(cells)
        return with_cell(f"{name}{len(cells)}", initial[len(cells)], lambda cell: following((*cells, cell)))

    return following(())
