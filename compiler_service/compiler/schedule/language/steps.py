"""The schedule language: a schedule is a tuple of frozen steps, and nothing else.

The same tuple is the search point of the tuner, the tuning record (JSON) and the debug print. Loops are named after the axis
they step over: ``oc.64`` advances axis ``oc`` by 64 elements, ``oc`` by one. Every stage starts with one loop per axis, in order,
reduction axes last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

ROOT = ""
"""In place of a loop: outside of all loops of the consumer, inside the task."""


@dataclass(frozen=True, slots=True)
class Split:
    """Tile ``axis`` by ``factor`` elements: the tiles go around the largest ones that are smaller.

    before: ``for i in n``
    after:  ``for i.F in n by F: for i in F``   (what is left over runs in tail nests of its own)
    """

    stage: str
    axis: str
    factor: int


@dataclass(frozen=True, slots=True)
class Reorder:
    """Put all loops of ``stage`` in the given order; the loops of one axis keep their nesting (larger steps outside)."""

    stage: str
    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FuseLoops:
    """Make one loop, ``outer.inner.fused``, of two that stand one inside the other. Tiles must cover their axis without a rest.

    before: ``for i in n: for j in m``
    after:  ``for f in n * m: i = f // m; j = f % m``
    """

    stage: str
    outer: str
    inner: str


@dataclass(frozen=True, slots=True)
class Unroll:
    """Replicate the body of a loop of constant extent."""

    stage: str
    loop: str


@dataclass(frozen=True, slots=True)
class Guard:
    """Run the last tile of ``loop`` in full too, and ask of each element whether it is wanted: there is no tail code.

    Stages attached inside are computed for the whole tile, so they must be defined behind the end.
    """

    stage: str
    loop: str


@dataclass(frozen=True, slots=True)
class Vectorize:
    """Run a loop as one vector operation. On a reduction axis the lanes accumulate apart and are combined at the end."""

    stage: str
    loop: str


@dataclass(frozen=True, slots=True)
class Overlap:
    """The last tile of ``loop`` starts early enough to be full, so that no tail is left: a few elements are computed twice.

    The kernel must not write over what it reads.
    """

    stage: str
    loop: str


@dataclass(frozen=True, slots=True)
class Peel:
    """Elements near the ends of an axis, where conditions of the stages computed inside may fail, are walked one by one; the
    tiles of ``loop`` between them overlap and ask nothing.

    For extents that are not known: where they are, loops are cut after tiling, at no cost.
    """

    stage: str
    loop: str


@dataclass(frozen=True, slots=True)
class Parallel:
    """Make the outermost loops of the output stage the tasks of the kernel."""

    stage: str
    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inline:
    """Compute ``stage`` where it is read (``compute_inline``). It must not be a reduction."""

    stage: str


@dataclass(frozen=True, slots=True)
class ComputeAt:
    """Compute the part of ``stage`` that is needed inside ``loop`` of ``consumer``, just before it is read.

    ``loop`` may be :data:`ROOT`. ``scope`` is ``stack`` (register tiles, a few vectors) or ``scratch`` (memory of the thread).
    """

    stage: str
    consumer: str
    loop: str
    scope: str = "stack"


@dataclass(frozen=True, slots=True)
class Stagger:
    """Go through the rows of a tile once, some ``rows`` in a turn: stages computed in its ``loop`` are a turn behind what they
    read, and sweep over their rows side by side (:mod:`compiler_service.compiler.schedule.lowering.stagger`)."""

    stage: str
    loop: str
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Recompute:
    """Compute every reduction where it is read, anew for each element that reads it; other stages must be inlined before.

    before: ``T[i] = f(R[g(i)])`` where ``R[j] = sum over k of h(j, k)``
    after:  ``T[i] = f(R.at[i])`` where ``R.at[i] = sum over k of h(g(i), k)``, computed inside the innermost loop that ``g`` needs

    It fits every kernel, since nothing is kept but single elements, and repeats work without bound.
    """


@dataclass(frozen=True, slots=True)
class CacheWrite:
    """Accumulate apart from the output: ``stage`` becomes ``stage.acc`` and an output stage that copies it.

    before: ``T[i] += f(i, k)``
    after:  ``T.acc[i] += f(i, k); T[i] = T.acc[i]``
    """

    stage: str


@dataclass(frozen=True, slots=True)
class CacheRead:
    """Read ``tensor`` through a copy, stage ``tensor.local``, with the axes of ``tensor`` in the order ``axes``.

    With ``stage`` and ``along`` only what that stage reads along that axis of its own; whatever else is read of the tensor may lie far
    away (a product of a tensor with itself).
    """

    tensor: str
    axes: tuple[int, ...]
    stage: str = ""
    along: str = ""


@dataclass(frozen=True, slots=True)
class Alias:
    """Keep ``stage`` in the memory of the output, which must read it at its own index only."""

    stage: str


@dataclass(frozen=True, slots=True)
class Pack:
    """Store a constant argument in another order, at compile time.

    Each entry ``(axis, divisor, modulus)`` is one dim of the packed array, outermost first, indexed by
    ``(index[axis] // divisor) % modulus`` (``modulus`` 0: no modulo). Padding is zero. ``prefetch`` bytes ahead of what is
    read in this order are asked of memory too (0: nothing).
    """

    tensor: str
    order: tuple[tuple[int, int, int], ...]
    prefetch: int = 0


@dataclass(frozen=True, slots=True)
class PrefetchTile:
    """While ``stage`` reads a tile of the argument ``tensor``, ask memory for what follows it there, at each turn of ``loop``.

    A tile of a packed constant is all that the reduction reads of it; of other arguments it is the rows that the register tile
    covers. What follows may lie behind the end of the argument. ``sweeps`` are the axes of ``stage`` along which the same tile is
    read again, outermost first: (axis, extent within a task, what one turn covers). Each sweep asks for an equal part of what
    follows, so that it arrives evenly over all of them.
    """

    stage: str
    loop: str
    tensor: str
    sweeps: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class FetchNext:
    """At each turn of ``loop``, ask memory for what will be read of the argument ``tensor`` when ``axis`` is ``distance``
    further; it may lie behind the end of the argument.

    ``stage`` reads it itself, or ``reader`` does, which is computed inside for the same ``axis``. ``sweeps``: see
    :class:`PrefetchTile`; each asks for an equal part of what ``reader`` reads of the packed ``tensor`` in one step of ``axis``.
    """

    stage: str
    loop: str
    tensor: str
    axis: str
    distance: int
    reader: str = ""
    sweeps: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SkipPadding:
    """Leave out the turns of ``loop``, over a reduced axis of ``stage``, in which all that the sum of products reads of ``padded``
    lies behind an end of its data along ``axis``: they would add zeros.

    ``padded`` is a stage ``select(0 <= axis - before < extent and .., data, 0)``.
    """

    stage: str
    loop: str
    padded: str
    axis: str


PlainStep: TypeAlias = (
    Split
    | Reorder
    | FuseLoops
    | Unroll
    | Guard
    | Vectorize
    | Overlap
    | Peel
    | Parallel
    | Inline
    | ComputeAt
    | Recompute
    | Stagger
    | CacheWrite
    | CacheRead
    | Alias
    | Pack
    | PrefetchTile
    | FetchNext
    | SkipPadding
)
"""Steps that name no algorithm."""

PLAIN_STEPS: Mapping[str, type[PlainStep]] = MappingProxyType(
    {
        "split": Split,
        "reorder": Reorder,
        "fuse": FuseLoops,
        "unroll": Unroll,
        "guard": Guard,
        "vectorize": Vectorize,
        "overlap": Overlap,
        "peel": Peel,
        "parallel": Parallel,
        "compute_inline": Inline,
        "compute_at": ComputeAt,
        "recompute": Recompute,
        "stagger": Stagger,
        "cache_write": CacheWrite,
        "cache_read": CacheRead,
        "alias": Alias,
        "pack": Pack,
        "prefetch": PrefetchTile,
        "fetch_next": FetchNext,
        "skip_padding": SkipPadding,
    }
)
"""By their names in JSON and in text."""
