"""What a cost model is told of a loop function: numbers that tell fast loops from slow ones, always as many and in the same order.

In the manner of Ansor (Zheng et al., OSDI 2020, appendix B), but of a whole function instead of each of its statements: operations by
kind, lanes, copies, what is read and written of the buffers that matter most, allocations, branches, tasks. In place of Ansor's curve of
arithmetic intensity stands what caches of several sizes would have to bring from behind them, as the loops stand. Numbers that span orders
of magnitude are given as ``log2(1 + x)``.

Functions are looked at as lowering yields them: the loop passes make ten times as many statements of them, which say the same. They may be
looked at behind the passes too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler_service.compiler.loop_ir.ir import Buffer, BufferScope, ForKind, Function
from compiler_service.compiler.tune.cost.nest import LoopNode, LoopTree, MemoryAccess, OperationKind, loop_tree

CACHE_BYTES = tuple(1 << n for n in (10, 12, 14, 15, 16, 18, 19, 20, 21, 22, 25))
"""Sizes of caches whose traffic is a feature."""
BUFFERS = 5
"""Buffers that are told of one by one: those of which the most bytes are read and written."""
LEVELS = 6
"""Loops around the hot one that are told of one by one, from the inside."""

_OF_WORK: Mapping[str, str] = {
    **{f"{kind} elements": f"results of the kind {kind!r}, in all lanes of all tasks" for kind in OperationKind},
    "instructions": "operations of all kinds but those of indices, a vector counted once",
    "elements": "the same, each lane counted",
    "lanes": "elements for each instruction",
    "instructions of a task": "the same divided by the tasks",
    "tasks": "pieces of the work that threads share",
    "turns": "turns of all loops that are neither unrolled nor vectors",
    "code": "instructions in the text, copies of unrolled loops counted",
    "statements": "in the text, before anything is unrolled",
    "branches": "conditions in the text",
    "branches taken": "how often a condition is come by",
    "prefetches": "cache lines that are asked for ahead",
    "serial loops": "in the text",
    "unrolled loops": "in the text",
    "vector loops": "in the text",
    "depth": "loops around the innermost statement",
}
_OF_ACCESSES: Mapping[str, str] = {
    "contiguous loads": "instructions that read a vector of neighbours",
    "spread loads": "instructions that read lanes which are no neighbours",
    "single loads": "instructions that read one element, for all lanes where there are any",
    "contiguous stores": "instructions that write a vector of neighbours",
    "spread stores": "instructions that write lanes which are no neighbours",
    "single stores": "instructions that write one element",
    "masked": "instructions that leave lanes out",
    "stack accesses": "reads and writes of what a task keeps in registers or on its stack; not counted above",
    "bytes accessed": "by all of the above but the last",
    "bytes touched": "distinct bytes of all buffers but those of the stack",
    "lines touched": "bytes of the cache lines that these lie in",
    "stack bytes": "allocated on the stack",
    "largest stack": "bytes of the largest buffer on it",
    "stack buffers": "allocated there",
    "scratch bytes": "allocated as memory of the thread",
    "largest scratch": "bytes of the largest of these",
    "scratch buffers": "allocated there",
}
_OF_HOT: Mapping[str, str] = {
    "share": "its part of all instructions and accesses, not as a logarithm",
    "turns": "turns of it in all tasks",
    "body": "operations in one turn",
    "loads": "reads in one turn, those of the stack left out",
    "stores": "writes in one turn, those of the stack left out",
    "stack": "reads and writes of the stack in one turn",
    "work of an access": "operations for each read or write in it",
    "copies": "of its innermost statement, because of loops in it that are unrolled",
    "lanes": "elements for each operation",
    "bytes": "cache lines that one run of it touches, in bytes",
}
"""Of the serial loop without another one in it in which the most is done."""
_OF_BUFFER: Mapping[str, str] = {
    "bytes read": "by all loads",
    "bytes written": "by all stores",
    "bytes touched": "distinct ones",
    "lines touched": "bytes of the cache lines that these lie in",
    "reuse": "bytes accessed for each that is distinct",
    "bytes of hot": "cache lines that one run of the hot loop touches, in bytes; 0 where it touches none",
    "lane stride": "elements from one lane to the next of the access that runs most often",
    "turn stride": "elements from one turn of the innermost serial loop to the next, of the same access",
    "private": "1 of a buffer that the function makes, not as a logarithm",
}
_OF_LEVEL: Mapping[str, str] = {
    "extent": "turns of a run",
    "bytes": "cache lines that one run of it touches, in bytes",
    "instructions": "operations of one run of it for each kilobyte of these",
}

FEATURES: Mapping[str, str] = {
    **_OF_WORK,
    **_OF_ACCESSES,
    **{f"traffic {size >> 10} KiB": "bytes brought into a cache of this size" for size in CACHE_BYTES},
    **{f"intensity {size >> 10} KiB": "elements computed for each of these bytes" for size in CACHE_BYTES},
    **{f"hot {name}": meaning for name, meaning in _OF_HOT.items()},
    **{f"level {n} {name}": meaning for n in range(LEVELS) for name, meaning in _OF_LEVEL.items()},
    **{f"buffer {n} {name}": meaning for n in range(BUFFERS) for name, meaning in _OF_BUFFER.items()},
}
"""The features in their order, and what each says. Of loops around the hot one (``level``) 0 is the hot one itself, of buffers the one
that is accessed most."""
NAMES: Sequence[str] = tuple(FEATURES)
_AS_THEY_ARE = frozenset({"hot share", *(f"buffer {n} private" for n in range(BUFFERS))})


def loop_features(function: Function, sizes: Mapping[str, int]) -> np.ndarray:
    """float32[len(FEATURES)] of ``function`` where its symbols have these ``sizes``; names of variables and buffers change nothing."""
    tree = loop_tree(function, sizes)
    hot = _hot(tree.root)
    found = {
        **dict(_work(tree)),
        **_accesses(tree),
        **_traffic(tree),
        **{f"hot {name}": value for name, value in _of_hot(tree, hot).items()},
        **dict(_levels(tree, hot)),
        **dict(_buffers(tree, hot)),
    }
    values = [found.get(name, 0.0) for name in NAMES]
    logs = [v if name in _AS_THEY_ARE else math.log2(1 + v) for name, v in zip(NAMES, values, strict=True)]
    return np.array(logs, np.float32)


def _work(tree: LoopTree) -> Iterator[tuple[str, float]]:
    nodes = list(tree.root.walk())
    for kind in OperationKind:
        yield f"{kind} elements", sum(node.elements[kind] for node in nodes)
    instructions, elements = sum(map(_instructions, nodes)), sum(_elements(node) for node in nodes)
    yield "instructions", instructions
    yield "elements", elements
    yield "lanes", elements / max(1.0, instructions)
    yield "tasks", tree.root.extent
    yield "instructions of a task", instructions / max(1, tree.root.extent)
    yield "turns", sum(node.trips for node in nodes)
    yield "code", sum(_instructions(node) / max(1.0, node.trips) for node in nodes)
    yield "statements", tree.statements
    yield "branches", tree.branches
    yield "branches taken", sum(node.branches for node in nodes)
    yield "prefetches", sum(node.prefetches for node in nodes)
    for name, loop in (("serial", ForKind.SERIAL), ("unrolled", ForKind.UNROLLED), ("vector", ForKind.VECTORIZED)):
        yield f"{name} loops", tree.loops.get(loop, 0)
    yield "depth", tree.depth


_NOT_ADDED = (OperationKind.FUSED, OperationKind.INDEX)
"""Counted already, or done by the addresses of accesses."""


def _instructions(node: LoopNode) -> float:
    return sum(count for kind, count in node.operations.items() if kind not in _NOT_ADDED)


def _elements(node: LoopNode) -> float:
    return sum(count for kind, count in node.elements.items() if kind not in _NOT_ADDED)


def _accesses(tree: LoopTree) -> dict[str, float]:
    found = dict.fromkeys(_OF_ACCESSES, 0.0)
    for access in tree.root.all_accesses():
        if access.buffer.scope is BufferScope.STACK:
            found["stack accesses"] += access.instances
            continue
        how = "single" if access.lanes == 1 else "contiguous" if access.lane_stride == 1 else "spread"
        found[f"{how} {'stores' if access.is_store else 'loads'}"] += access.instances
        found["masked"] += access.instances * access.is_masked
        found["bytes accessed"] += access.bytes
    memory = [pair for buffer, pair in tree.root.footprints.items() if buffer.scope is not BufferScope.STACK]
    found["bytes touched"], found["lines touched"] = (sum(pair[i] for pair in memory) for i in range(2))
    for scope, sizes in tree.allocated.items():
        found[f"{scope} bytes"], found[f"largest {scope}"] = sum(sizes), max(sizes, default=0.0)
        found[f"{scope} buffers"] = len(sizes)
    return found


def _traffic(tree: LoopTree) -> dict[str, float]:
    elements = sum(_elements(node) for node in tree.root.walk())
    found: dict[str, float] = {}
    for size, brought in zip(CACHE_BYTES, tree.root.traffic(CACHE_BYTES), strict=True):
        found[f"traffic {size >> 10} KiB"] = brought
        found[f"intensity {size >> 10} KiB"] = elements / max(1.0, brought)
    return found


@dataclass(frozen=True)
class _Inside:
    """What is done in a loop and those in it, of all trips."""

    operations: float
    elements: float
    accesses: tuple[MemoryAccess, ...]

    @property
    def all(self) -> float:
        return self.operations + sum(a.instances for a in self.accesses)


def _inside(node: LoopNode) -> _Inside:
    nodes = list(node.walk())
    return _Inside(sum(map(_instructions, nodes)), sum(map(_elements, nodes)), tuple(node.all_accesses()))


def _hot(root: LoopNode) -> LoopNode:
    """The loop without another one in it in which the most is done; the first of equals."""
    return max((node for node in root.walk() if not node.inner), key=lambda node: _inside(node).all)


def _of_hot(tree: LoopTree, hot: LoopNode) -> dict[str, float]:
    own, whole, turns = _inside(hot), _inside(tree.root), max(1.0, hot.trips)
    memory = [a for a in own.accesses if a.buffer.scope is not BufferScope.STACK]
    accesses = sum(a.instances for a in own.accesses)
    stack = accesses - sum(a.instances for a in memory)
    return {
        "share": own.all / max(1.0, whole.all),
        "turns": hot.trips,
        "body": own.operations / turns,
        "loads": sum(a.instances for a in memory if not a.is_store) / turns,
        "stores": sum(a.instances for a in memory if a.is_store) / turns,
        "stack": stack / turns,
        "work of an access": own.operations / max(1.0, accesses - stack),
        "copies": hot.copies,
        "lanes": own.elements / max(1.0, own.operations),
        "bytes": hot.working_set,
    }


def _around(root: LoopNode, hot: LoopNode) -> list[LoopNode]:
    """``hot`` and the loops around it, from the inside."""
    levels = [node for node in root.walk() if hot.scope.loops[: len(node.scope.loops)] == node.scope.loops]
    return levels[::-1]


def _levels(tree: LoopTree, hot: LoopNode) -> Iterator[tuple[str, float]]:
    for n, node in enumerate(_around(tree.root, hot)[:LEVELS]):
        runs = max(1.0, node.trips / max(1, node.extent))
        yield f"level {n} extent", node.extent
        yield f"level {n} bytes", node.working_set
        yield f"level {n} instructions", _inside(node).operations / runs / max(1.0, node.working_set / 1024)


def _buffers(tree: LoopTree, hot: LoopNode) -> Iterator[tuple[str, float]]:
    of_buffer: dict[Buffer, list[MemoryAccess]] = {}
    for access in tree.root.all_accesses():
        if access.buffer.scope is not BufferScope.STACK:
            of_buffer.setdefault(access.buffer, []).append(access)
    ranked = sorted(of_buffer.items(), key=lambda pair: -sum(a.bytes for a in pair[1]))
    for n, (buffer, accesses) in enumerate(ranked[:BUFFERS]):
        touched, lines = tree.root.footprints[buffer]
        most = max(accesses, key=lambda a: a.instances)
        serial = [loop.depth for loop in most.scope.loops if loop.kind is ForKind.SERIAL][-1]
        own = {
            "bytes read": sum(a.bytes for a in accesses if not a.is_store),
            "bytes written": sum(a.bytes for a in accesses if a.is_store),
            "bytes touched": touched,
            "lines touched": lines,
            "reuse": sum(a.bytes for a in accesses) / max(1.0, touched),
            "bytes of hot": hot.footprints.get(buffer, (0.0, 0.0))[1],
            "lane stride": most.lane_stride,
            "turn stride": most.stride(serial, serial + 1),
            "private": float(buffer.scope is not BufferScope.ARGUMENT),
        }
        yield from ((f"buffer {n} {name}", value) for name, value in own.items())
