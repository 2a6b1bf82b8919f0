"""Placing blocks with lifetimes into one arena: exact offsets where sizes compare, shared slots where they do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shared_ir.dim import Dim, as_dim, dim_symbols, evaluate
from shared_ir.expr import Expr, lift, maximum
from shared_ir.plan import ALIGNMENT
from shared_ir.simplify import Monomial, Simplifier

HINT = 64
"""The value that stands for every symbol where sizes are compared to choose between legal layouts."""


@dataclass(frozen=True)
class Block:
    """``size`` bytes that are in use from step ``start`` to step ``end``, both included."""

    size: Dim
    start: int
    end: int

    def conflicts(self, other: Block) -> bool:
        return self.start <= other.end and other.start <= self.end


@dataclass(frozen=True)
class Packing:
    """Byte offsets of the blocks, in their order, and the bytes that all of them take."""

    offsets: tuple[Dim, ...]
    size: Dim


def align(size: Dim) -> Dim:
    """``size`` rounded up to a multiple of the arena's alignment."""
    return as_dim((size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT)


def pack(blocks: Sequence[Block]) -> Packing:
    """Offsets for ``blocks`` such that no two that are in use at once overlap, whatever the symbols stand for.

    Constant sizes are packed first (greedy by size, best fit). Sizes ``c * m`` with one common symbolic factor ``m`` (often
    the batch) are packed the same way in units of ``m``. Anything else shares slots as large as their largest block.
    """
    factors = [_factor(b.size) for b in blocks]
    offsets: dict[int, Dim] = {}
    constant = [i for i, f in enumerate(factors) if f == ()]
    symbolic = [i for i, f in enumerate(factors) if f != ()]
    base = _place(blocks, constant, 0, offsets)
    if symbolic and factors[symbolic[0]] is not None and len({factors[i] for i in symbolic}) == 1:
        base = _place(blocks, symbolic, base, offsets)
    else:
        base = _share(blocks, symbolic, base, offsets)
    return Packing(tuple(offsets[i] for i in range(len(blocks))), base)


def _factor(size: Dim) -> Monomial | None:
    """``m`` when ``size == c * m`` with ``c > 0``; ``()`` for a constant, ``None`` for a sum."""
    if isinstance(size, int):
        return ()
    polynomial = Simplifier({}).polynomial(size)
    if len(polynomial) != 1:
        return None
    ((monomial, coefficient),) = polynomial.items()
    return monomial if coefficient > 0 else None


def _coefficient(size: Dim) -> int:
    if isinstance(size, int):
        return size
    ((_, coefficient),) = Simplifier({}).polynomial(size).items()
    return coefficient


def _place(blocks: Sequence[Block], chosen: Sequence[int], base: Dim, offsets: dict[int, Dim]) -> Dim:
    """Greedy by size, best fit, in units of the common factor of the sizes. Returns the end of the region."""
    if not chosen:
        return base
    unit: Expr = lift(1)
    for atom in _factor(blocks[chosen[0]].size) or ():
        unit = unit * atom
    placed: list[tuple[int, int, Block]] = []  # offset, size, block
    top = 0
    for i in sorted(chosen, key=lambda i: (-_coefficient(blocks[i].size), blocks[i].start, i)):
        size = -(-_coefficient(blocks[i].size) // ALIGNMENT) * ALIGNMENT
        taken = sorted((o, s) for o, s, b in placed if b.conflicts(blocks[i]))
        offset = _best_fit(taken, size)
        placed.append((offset, size, blocks[i]))
        offsets[i] = as_dim(base + lift(offset) * unit)
        top = max(top, offset + size)
    return as_dim(base + lift(top) * unit)


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
    blocks: list[Block] = field(default_factory=list)


def _share(blocks: Sequence[Block], chosen: Sequence[int], base: Dim, offsets: dict[int, Dim]) -> Dim:
    """Blocks share slots; the offset of a slot is the sum of the slots before it. Returns the end of the region."""
    hints = {i: evaluate(blocks[i].size, _hints(blocks[i].size)) for i in chosen}
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
        base = as_dim(base + align(slot.size))
    offsets.update((i, starts[id(slot)]) for i, slot in where.items())
    return base


def _hints(size: Dim) -> Mapping[str, int]:
    return dict.fromkeys(dim_symbols([size]), HINT)


def _at_least(large: Dim, small: Dim) -> bool:
    """Whether ``large >= small`` for every value of the symbols, as far as the simplifier can tell."""
    low, _ = Simplifier({}).interval(lift(large) - lift(small))
    return low is not None and low >= 0
