"""The schedule language: a schedule is a tuple of frozen steps, and nothing else.

The same tuple is the search point of the tuner, the tuning record (JSON) and the debug print. Loops are named after the axis
they step over: ``oc.64`` advances axis ``oc`` by 64 elements, ``oc`` by one. Every stage starts with one loop per axis, in order,
reduction axes last.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias

from shared_ir.errors import ErrorCode, IngotError

ROOT = ""
"""In place of a loop: outside of all loops of the consumer, inside the task."""


@dataclass(frozen=True, slots=True)
class Split:
    """Tile the innermost loop of ``axis`` by ``factor`` elements.

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
    """Read ``tensor`` through a copy, stage ``tensor.local``, with the axes of ``tensor`` in the order ``axes``."""

    tensor: str
    axes: tuple[int, ...]


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
class Prefetch:
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
    :class:`Prefetch`; each asks for an equal part of what ``reader`` reads of the packed ``tensor`` in one step of ``axis``.
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


@dataclass(frozen=True, slots=True)
class Winograd:
    """Compute the convolution ``stage`` by minimal filtering in tiles of ``tile`` x ``tile`` outputs.

    before: ``stage[oh, ow, oc] = sum data[plane.., oh * stride + kh, ow * stride + kw, c] * weight[..]``
    after:  the stages of :class:`WinogradStages`; the constant ``weight``, whose axes
            oc, t.., c, kh, kw are at the positions ``axes``, is transformed at compile time to ``[p, q, oc, t.. c]``, which a
            later ``Pack`` of it lays out. Where ``chunk`` is not 0, the kernel transforms it on the way, and sums so many
            channels at a time. A window along one axis has -1 in place of its other axis; its tiles are ``tile`` outputs long.
    """

    stage: str
    weight: str
    axes: tuple[int, ...]
    tile: int
    chunk: int = 0
    stride: int = 1


@dataclass(frozen=True, slots=True)
class Attend:
    """Compute the attention that ends in the product ``stage`` a block of keys at a time, with a running maximum.

    before: ``M = max of s; L = sum of exp(s - M); T = sum of exp(s - M) / L * v``
    after:  per block: ``M' = max(M, max of s); L = L * exp(M - M') + sum of exp(s - M')``, T likewise; in the end ``T / L``
            (online softmax, Milakov and Gimelshein 2018; tiled as in FlashAttention, Dao et al. 2022)

    ``rows`` queries by ``keys`` keys are a block. ``scores`` and ``values`` are the register tiles of the two products: rows,
    vectors. A task does ``units`` times a block of rows of one head.
    """

    stage: str
    rows: int
    keys: int
    scores: tuple[int, int]
    values: tuple[int, int]
    units: int = 1


@dataclass(frozen=True, slots=True)
class Diagonals:
    """Compute the grouped convolution ``stage`` by the diagonals of its groups' matrices.

    before: ``stage[.., oc] = sum data[.., oc // g * g + ic] * weight[oc, ic, ..]``
    after:  the stages of :class:`DiagonalStages`; the constant ``weight`` is turned at
            compile time to ``[r, i, ..]``, which a later ``Pack`` of it lays out.
    """

    stage: str
    weight: str


@dataclass(frozen=True, slots=True)
class DotBytes:
    """Compute ``stage``, a sum of products of bytes, by dot products of four bytes.

    before: ``stage[.., n] = sum over k of cast(data[.., k]) * cast(weight[.., k, n])``
    after:  ``stage[.., n] = sum over w of dot4(data.words[.., w], weight.words[.., w, n])``, see
            :mod:`stages`; data that is padded on the way is padded in words, and the constant
            ``weight``, whose index ``axis`` is k, is put together at compile time, for a later ``Pack`` to lay out.
    """

    stage: str
    weight: str
    axis: int


@dataclass(frozen=True, slots=True)
class Fold:
    """Compute the product ``stage`` with ``parts`` steps of its sums side by side.

    before: ``stage[.., n] = sum over k of data[.., k] * weight``
    after:  the stages of :class:`FoldedStages`; the constant ``weight`` is laid out at compile
            time as ``[k // parts, n * parts + k % parts]``; its axis ``columns`` is ``n``. ``parts`` divides the extent of ``k``.
    """

    stage: str
    weight: str
    parts: int
    columns: int


@dataclass(frozen=True, slots=True)
class Strassen:
    """Compute the product ``stage`` by seven products of half as many rows, columns and steps.

    before: ``stage[.., m, n] = sum over k of data[.., m, k] * weight``
    after:  the stages of :class:`StrassenStages`; of the constant ``weight``, whose axis
            ``columns`` is ``n``, sums of quarters ``[p, n, k]`` are formed at compile time, which a later ``Pack`` of it lays out.
            Twice ``block`` divides the number of columns.
    """

    stage: str
    weight: str
    columns: int
    block: int


WithWeights: TypeAlias = Winograd | Diagonals | DotBytes | Fold | Strassen
"""Steps that put stages in the place of a sum, and transform its constant ``weight`` for them."""

Step: TypeAlias = (
    Split
    | Reorder
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
    | Prefetch
    | FetchNext
    | SkipPadding
    | Attend
    | WithWeights
)
Schedule: TypeAlias = tuple[Step, ...]

_STEPS: dict[str, type[Any]] = {
    "split": Split,
    "reorder": Reorder,
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
    "prefetch": Prefetch,
    "fetch_next": FetchNext,
    "skip_padding": SkipPadding,
    "winograd": Winograd,
    "attend": Attend,
    "diagonals": Diagonals,
    "dot_bytes": DotBytes,
    "fold": Fold,
    "strassen": Strassen,
}
_NAMES = {cls: name for name, cls in _STEPS.items()}


def to_json(schedule: Schedule) -> list[dict[str, Any]]:
    """JSON form of a schedule: one object a step, ``step`` first."""
    return [{"step": _NAMES[type(s)], **asdict(s)} for s in schedule]


def from_json(data: list[dict[str, Any]]) -> Schedule:
    """The inverse of :func:`to_json`.

    Raises:
        IngotError: INVALID_ARGUMENT, an unknown step or a missing or unknown argument.
    """
    return tuple(_step(entry) for entry in data)


def _step(entry: dict[str, Any]) -> Step:
    arguments = {k: _tuples(v) for k, v in entry.items() if k != "step"}
    cls = _STEPS.get(str(entry.get("step")))
    if cls is None or not set(arguments) <= {f.name for f in fields(cls)}:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT, "not a schedule step", received=str(entry), expected=", ".join(_STEPS)
        )
    step: Step = cls(**arguments)
    return step


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, (list, tuple)) else value


def methods_of(schedule: Schedule) -> frozenset[str]:
    """Names of the steps of ``schedule`` whose results differ from plain sums by more than the rounding errors of these."""
    return frozenset(_NAMES[type(s)] for s in schedule if isinstance(s, Winograd | Strassen))


def to_text(schedule: Schedule) -> str:
    """One step a line, as DEBUG=3 prints them."""
    return "\n".join(f"{_NAMES[type(s)]}({', '.join(repr(getattr(s, f.name)) for f in fields(s))})" for s in schedule)
