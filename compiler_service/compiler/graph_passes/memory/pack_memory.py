"""Placing blocks with lifetimes into one arena."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import gcd

from compiler_service.compiler.graph_passes.analysis.sizes import estimate
from compiler_service.compiler.graph_passes.memory.memory_units import Powers, Units, bound_sizes, covers, exact_symbols
from shared_ir.expr import Expr, lift, maximum
from shared_ir.expr.dim import Dim, as_dim
from shared_ir.expr.simplify import unbounded
from shared_ir.plan.program import ALIGNMENT_BYTES

FEWEST_TIMES_SMALLER = 16
"""Blocks this many times smaller than the largest one of a larger unit are counted in that unit."""


MOST_GROWTH_BY_UNITS = 1.1
"""How much larger blocks may get by rounding them up to whole alignments per unit."""

BYTES_OF_PAGE = 4096
"""Bytes after which a core takes a load for one of what it has just stored, until it has compared all of the address."""

PAGED = 16 * BYTES_OF_PAGE
"""Blocks of so many bytes start at whole pages: a sweep that reads one and writes another at the same pace, a line ahead in its
page, would wait at every line (Zen 4: a layer normalisation takes a quarter more)."""


@dataclass(frozen=True)
class MemoryBlock:
    """``size`` bytes that are in use from step ``start`` to step ``end``, both included."""

    size: Dim
    start: int
    end: int

    def conflicts(self, other: MemoryBlock) -> bool:
        return self.start <= other.end and other.start <= self.end


@dataclass(frozen=True)
class Packing:
    """Byte offsets of the blocks, in their order, and the bytes that all of them take."""

    offsets: tuple[Dim, ...]
    size: Dim


def pack(blocks: Sequence[MemoryBlock]) -> Packing:
    """Offsets for ``blocks`` such that no two that are in use at once overlap, whatever the symbols stand for.

    Sizes are bounded by multiples of a few symbolic units (see :mod:`memory_units`); each unit has a region of the arena in
    which its blocks are packed like constant sizes (greedy by size, best fit). Sizes that have no such bound share slots
    that are as large as their largest block.
    """
    found = bound_sizes([b.size for b in blocks])
    offsets: dict[int, Dim] = {}
    if found is None:
        constant = {i: b.size for i, b in enumerate(blocks) if isinstance(b.size, int)}
        end = _place(blocks, constant, lift(1), 0, offsets)
        end = _share(blocks, [i for i in range(len(blocks)) if i not in offsets], end, offsets)
        return Packing(tuple(offsets[i] for i in range(len(blocks))), end)
    units, bounds = found
    regions: dict[Powers, dict[int, int]] = {}
    for i, bound in enumerate(bounds):
        regions.setdefault(bound.powers, {})[i] = bound.count
    base: Dim = 0
    for powers, counts in sorted(_merge_small(regions, units).items()):
        base = _place(blocks, counts, units.expression(powers), base, offsets)
    return Packing(tuple(offsets[i] for i in range(len(blocks))), base)


def _merge_small(regions: dict[Powers, dict[int, int]], units: Units) -> dict[Powers, dict[int, int]]:
    """Regions of small blocks are dissolved into one of a larger unit, where they share memory with the rest."""
    exact = exact_symbols(units)
    merged = {p: dict(c) for p, c in regions.items()}
    for powers in sorted(regions, key=lambda p: sum(n for _, n in p)):
        largest = max(merged[powers].values())
        hosts = [p for p in merged if p != powers and covers(p, powers, exact)]
        hosts = [p for p in hosts if max(merged[p].values()) >= FEWEST_TIMES_SMALLER * largest]
        if hosts:
            host = min(hosts, key=lambda p: (sum(n for _, n in p), p))
            merged[host].update(merged.pop(powers))
    return merged


def _place(
    blocks: Sequence[MemoryBlock], counts: dict[int, int], unit: Expr, base: Dim, offsets: dict[int, Dim]
) -> Dim:
    """Greedy by size, best fit; ``counts`` maps blocks to bytes per ``unit``. Returns the end of the region."""
    granule, lines = _granule(tuple(counts.values()), unit)
    placed = _Placed([blocks[i] for i in counts])
    top = 0
    for i in sorted(counts, key=lambda i: (-counts[i], blocks[i].start, i)):
        size = _granules(counts[i], granule, unit)
        offset = _best_fit(placed.conflicting(blocks[i]), size)
        placed.add(offset, size, blocks[i])
        offsets[i] = as_dim(base + lift(offset) * lines)
        top = max(top, offset + size)
    return as_dim(base + lift(top) * lines)


class _Placed:
    """Offsets and sizes by the time that they are taken. Most blocks live for a few steps: who asks for those at one time does
    not look at all of them.

    Times are the steps at which a block begins. A tree of spans of them keeps each block where it fills a whole span
    (de Berg et al., "Computational Geometry", 10.3: segment trees).
    """

    def __init__(self, blocks: Iterable[MemoryBlock]) -> None:
        self._starts = sorted({b.start for b in blocks})
        self._spans: list[list[tuple[int, int]]] = [[] for _ in range(2 * len(self._starts))]
        self._begun: list[tuple[int, int, int]] = []  # start, offset, size, in order

    def add(self, offset: int, size: int, block: MemoryBlock) -> None:
        insort(self._begun, (block.start, offset, size))
        low = bisect_left(self._starts, block.start) + len(self._starts)
        high = bisect_right(self._starts, block.end) + len(self._starts)
        while low < high:
            if low & 1:
                self._spans[low].append((offset, size))
                low += 1
            if high & 1:
                high -= 1
                self._spans[high].append((offset, size))
            low, high = low // 2, high // 2

    def conflicting(self, block: MemoryBlock) -> list[tuple[int, int]]:
        """Offset and size of those in use together with ``block``, in order."""
        first = bisect_left(self._begun, (block.start + 1,))
        last = bisect_left(self._begun, (block.end + 1,))
        found = [(offset, size) for _, offset, size in self._begun[first:last]]
        span = bisect_left(self._starts, block.start) + len(self._starts)
        while span:
            found += self._spans[span]
            span //= 2
        return sorted(found)


def _granule(counts: Sequence[int], unit: Expr) -> tuple[int, Expr]:
    """``(g, bytes)``: what to count blocks in. ``g`` bytes per unit take ``bytes``, a multiple of the alignment.

    Whole alignments per unit, unless rounding the blocks up to that wastes much: then the least common granule of the
    blocks, itself rounded up once the unit is known.
    """
    whole = sum(-(-c // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for c in counts)
    if unit == lift(1) or whole <= MOST_GROWTH_BY_UNITS * sum(counts):
        return ALIGNMENT_BYTES, unit * ALIGNMENT_BYTES
    granule = gcd(*counts)
    return granule, (unit * granule + (ALIGNMENT_BYTES - 1)) // ALIGNMENT_BYTES * ALIGNMENT_BYTES


def _granules(size: int, granule: int, unit: Expr) -> int:
    """How many a block takes: whole pages where it is large."""
    multiple = BYTES_OF_PAGE // ALIGNMENT_BYTES if unit == lift(1) and size >= PAGED else 1
    return -(-size // (granule * multiple)) * multiple


def _best_fit(taken: Iterable[tuple[int, int]], size: int) -> int:
    """The smallest gap between the ``taken`` (offset, size) that holds ``size``, else the end."""
    best: tuple[int, int] | None = None
    end = 0
    for offset, length in taken:
        gap = offset - end
        if gap >= size and (best is None or gap < best[0]):
            best = gap, end
        end = max(end, offset + length)
    return end if best is None else best[1]


@dataclass
class _Slot:
    size: Dim
    hint: int
    blocks: list[MemoryBlock] = field(default_factory=list)


def _share(blocks: Sequence[MemoryBlock], chosen: Sequence[int], base: Dim, offsets: dict[int, Dim]) -> Dim:
    """Blocks share slots; the offset of a slot is the sum of the slots before it. Returns the end of the region."""
    hints = {i: estimate(blocks[i].size) for i in chosen}
    slots: list[_Slot] = []
    where: dict[int, _Slot] = {}
    for i in sorted(chosen, key=lambda i: (-hints[i], blocks[i].start, i)):
        block = blocks[i]
        free = [s for s in slots if not any(block.conflicts(b) for b in s.blocks)]
        slot = min(free, key=lambda s: (not _at_least(s.size, block.size), s.hint), default=None)
        if slot is None:
            slot = _Slot(block.size, hints[i])
            slots.append(slot)
        elif not _at_least(slot.size, block.size):
            slot.size = as_dim(maximum(lift(slot.size), lift(block.size)))
        slot.blocks.append(block)
        where[i] = slot
    starts: dict[int, Dim] = {}
    for slot in slots:
        starts[id(slot)] = base
        base = as_dim(base + _align(slot.size))
    offsets.update((i, starts[id(slot)]) for i, slot in where.items())
    return base


def _align(size: Dim) -> Dim:
    return as_dim((size + (ALIGNMENT_BYTES - 1)) // ALIGNMENT_BYTES * ALIGNMENT_BYTES)


def _at_least(large: Dim, small: Dim) -> bool:
    """Whether ``large >= small`` for every value of the symbols, as far as the simplifier can tell."""
    low, _ = unbounded().interval(lift(large) - lift(small))
    return low is not None and low >= 0
