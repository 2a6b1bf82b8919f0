"""Products by Strassen's algorithm (:mod:`tensor_expr.strassen`), where the model of the target says that it pays.

A task covers some pairs of rows. It forms the sums of their quarters, and for one chunk of columns after the other multiplies the
seven of them with the register tile of every other product, and puts the results together into the epilogue. A chunk keeps the
products within the second-level cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from compiler_service.compiler.schedule.algorithms.combination import Matrix, additions
from compiler_service.compiler.schedule.algorithms.product import Product, product_of
from compiler_service.compiler.schedule.algorithms.strassen.stages import PRODUCTS, X_MATRIX, Y_MATRIX
from compiler_service.compiler.schedule.algorithms.strassen.step import Strassen
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.schedule import Schedule, Step
from compiler_service.compiler.schedule.language.steps import (
    ROOT,
    ComputeAt,
    Guard,
    Parallel,
    PrefetchTile,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from compiler_service.compiler.schedule.model.analysis import (
    KernelView,
    ends_in_place,
    inlined,
    is_free,
    only_reduction,
)
from compiler_service.compiler.schedule.model.tiles import lanes, register_tile, register_tiles, tile_cost
from compiler_service.compiler.schedule.rules.contraction.division import (
    CYCLES_TO_BEGIN_TASK,
    WEIGHT_BYTES_PER_CYCLE,
    reading_cycles,
)
from compiler_service.compiler.schedule.rules.contraction.packing import (
    A_TILE,
    BYTES_AHEAD,
    BYTES_NEAR,
    L2_BYTES_PER_CYCLE,
    near_distance,
    packing,
    prefetch_distance,
)
from compiler_service.compiler.tensor_expr.tensor import Placeholder
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, as_dim, divisor
from shared_ir.machine.target import Target

_BYTES_OF_ELEMENT = 4
"""Bytes of an element."""
_MOST_PART_OF_PLAIN_TIME = 0.97
"""The method is taken only if the model promises less than this part of the plain product's time: its rounding errors and its weights
are larger."""
_MOST_WEIGHT_BYTES = 1 << 26
"""Largest size in bytes of a matrix of weights, which becomes 1.75 times as large."""
_PRODUCTS_REMEMBERED = 64
"""Number of products of which the costs of all blockings are remembered: each point of a space asks for them."""
_STORE_CYCLES = 1.0
"""Cycles to write a vector; in one cycle two are read or two are added up."""
_SUM_BYTES_PER_CYCLE = 64.0
"""Bytes of the sums that the second-level cache gives in a cycle, once for all columns of a task."""
_ACCUMULATOR_CYCLES = 2.0
"""Cycles to clear an accumulator and to write it."""
_FEWEST_PAIRS_OF_ROWS = 8
"""Smallest number of pairs of rows: with fewer, products take less time than their weights take to arrive."""


@dataclass(frozen=True)
class StrassenBlocking:
    """A task covers ``pairs`` of rows and ``share`` columns of each product, a chunk ``columns`` of these, several vectors;
    ``height`` x ``vectors`` registers accumulate."""

    pairs: int
    share: int
    columns: int
    height: int
    vectors: int


def strassen_schedule(kernel: KernelView, target: Target, blocking: StrassenBlocking | None = None) -> Schedule | None:
    """The schedule with ``blocking``, by default what the model chooses, or the knobs; None where the algorithm does not apply
    or pay."""
    stage = only_reduction(kernel.state)
    if stage is None or (product := product_of(stage)) is None or not _applies(kernel, product, target):
        return None
    blocking = blocking or _choose(product, target, kernel.knobs.within("strassen"), anyway=kernel.is_open)
    return None if blocking is None else _Plan(kernel, product, stage.name, target, blocking).steps()


def _applies(kernel: KernelView, product: Product, target: Target) -> bool:
    """Whether constant weights multiply rows that lie in memory and come in pairs, in whole vectors."""
    weight, shape, width = product.weight.tensor, product.tensor.shape, lanes(target, DType.FLOAT32)
    source = kernel.state.stage_of(product.data.tensor)
    if weight not in kernel.constants or not isinstance(weight.op, Placeholder):
        return False
    if any(d is not DType.FLOAT32 for d in (product.tensor.dtype, product.data.dtype, weight.dtype)):
        return False
    if source is not None and not is_free(source):
        return False
    whole = product.columns % (2 * width) == 0 and product.depth % (2 * width) == 0
    return whole and len(shape) > 1 and _rows_together(shape[-2]) > 1 and ends_in_place(kernel, product.tensor)


def _rows_together(extent: Dim) -> int:
    """Rows that always come together, all of a known number, an even part of another: no pair of them belongs to two inputs of a
    batch, neither of which may depend on the other."""
    found = divisor(extent)
    return found if isinstance(extent, int) or found % 2 == 0 else 0


# -- the model


def _choose(product: Product, target: Target, knobs: Knobs, *, anyway: bool) -> StrassenBlocking | None:
    """The cheapest blocking, or another where ``knobs`` say so; None where none is clearly cheaper than the plain product, unless it is
    asked for ``anyway``."""
    model = _Model(product, target)
    if model.pairs < _FEWEST_PAIRS_OF_ROWS or model.weights > _MOST_WEIGHT_BYTES:
        return None
    found = _costs(product, target)
    if min(cost for cost, _ in found) >= _MOST_PART_OF_PLAIN_TIME * model.plain() and not anyway:
        return None
    best = knobs.narrowed(found, pairs=lambda b: b.pairs, share=lambda b: b.share, tile=lambda b: (b.height, b.vectors))
    return replace(best, columns=knobs.choice("columns", model.chunks(best), best.columns))


@lru_cache(maxsize=_PRODUCTS_REMEMBERED)
def _costs(product: Product, target: Target) -> tuple[tuple[float, StrassenBlocking], ...]:
    """(cycles, blocking) of what is considered."""
    model = _Model(product, target)
    return tuple((model.cost(b), b) for b in model.candidates())


class _Model:
    """Cycles of one product, for one thread and for all cores together; two multiply-adds start each cycle, weights arrive
    meanwhile."""

    def __init__(self, product: Product, target: Target) -> None:
        *outer, extent, _ = product.tensor.shape
        rows = _rows_together(extent)
        self._target, self._outer, self._rows = target, math.prod(d for d in outer if isinstance(d, int)), rows
        self.pairs, self._half, self._steps = -(-rows // 2), product.columns // 2, product.depth // 2
        self._repeats = not isinstance(extent, int)
        self._width = lanes(target, DType.FLOAT32)
        self.weights = product.columns * product.depth * _BYTES_OF_ELEMENT

    def candidates(self) -> Iterator[StrassenBlocking]:
        for pairs in sorted({-(-self.pairs // tasks) for tasks in range(1, self.pairs // _FEWEST_PAIRS_OF_ROWS + 1)}):
            if self._repeats and self.pairs % pairs:
                continue
            for height, vectors in register_tiles(pairs, self._half, self._target, DType.FLOAT32):
                tile = vectors * self._width
                for parts in sorted({1, self._target.cores}):
                    share = self._half // parts
                    if parts == 1 or (self._half % (parts * tile) == 0 and share > tile):
                        yield StrassenBlocking(pairs, share, self._chunk(pairs, share, tile), height, vectors)

    def _chunk(self, pairs: int, share: int, tile: int) -> int:
        """Columns whose products stay in a quarter of the second-level cache: all of a task, or whole tiles that divide them."""
        most = self._target.l2 // 4 // (PRODUCTS * pairs * _BYTES_OF_ELEMENT)
        if share <= most:
            return share
        sizes = (s for s in self._pieces(share, tile) if s <= max(tile, most))
        return max(sizes, default=share)

    def _pieces(self, share: int, tile: int) -> Iterator[int]:
        """Whole tiles, less than a share, that divide it."""
        return (s for s in range(tile, share, tile) if share % s == 0 and s > self._width)

    def chunks(self, b: StrassenBlocking) -> list[int]:
        """Columns of a chunk that may be asked for."""
        return [*self._pieces(b.share, b.vectors * self._width), b.share]

    def cost(self, b: StrassenBlocking) -> float:
        parts = self._half // b.share
        whole, rest = divmod(self.pairs, b.pairs)
        total = parts * (whole * self._task(b, b.pairs) + (self._task(b, rest) if rest else 0.0))
        tasks = self._outer * -(-self.pairs // b.pairs)
        largest = -(-tasks * parts // self._target.cores) * self._task(b, b.pairs)
        return self._both(self._outer * total, largest, self.weights * PRODUCTS / 4, tasks, parts)

    def _task(self, b: StrassenBlocking, pairs: int) -> float:
        width = b.vectors * self._width
        tile = tile_cost(pairs, b.height, b.share, width, self._width)
        read = reading_cycles(pairs * self._steps * _BYTES_OF_ELEMENT, self._target) * -(-b.share // width)
        vectors_in, vectors_out = pairs * self._steps / self._width, pairs * b.share / self._width
        read += pairs * self._steps * _BYTES_OF_ELEMENT / _SUM_BYTES_PER_CYCLE
        products = PRODUCTS * (tile * self._steps + vectors_out * _ACCUMULATOR_CYCLES + read)
        kept = PRODUCTS * pairs * (self._steps + b.columns) * _BYTES_OF_ELEMENT
        products += kept / L2_BYTES_PER_CYCLE if kept > self._target.l2 // 2 else 0.0
        return products + vectors_in * _combined(X_MATRIX) + vectors_out * _combined(Y_MATRIX) + CYCLES_TO_BEGIN_TASK

    def plain(self) -> float:
        columns, steps = 2 * self._half, 2 * self._steps
        height, vectors = register_tile(self._rows, columns, self._target, DType.FLOAT32)
        width = vectors * self._width
        tile = tile_cost(self._rows, height, columns, width, self._width)
        data = self._rows * steps * _BYTES_OF_ELEMENT  # by blocks that the second-level cache keeps
        kept = min(data, self._target.l2 // 2)
        read = data / kept * reading_cycles(kept, self._target) * -(-columns // width)
        total = self._outer * (steps * tile + self._rows * columns / self._width * _ACCUMULATOR_CYCLES + read)
        parts = self._target.cores
        return self._both(total, total / parts, self.weights, self._outer, parts)

    def _both(self, total: float, largest: float, weights: float, times: int, parts: int) -> float:
        """Cycles of one thread that does all work, and those of all cores while the busiest has a part of it, and of the weights."""
        cores, arrival, again = (
            self._target.cores,
            weights / self._target.memory_bytes,
            weights * times / WEIGHT_BYTES_PER_CYCLE,
        )
        return max(total, arrival) + again + cores * max(largest, arrival / parts) + again


def _combined(matrix: Matrix) -> float:
    """Cycles to form the sums of ``matrix`` of vectors: loads, additions or stores, whichever take longest."""
    return max(len(matrix[0]) / 2, additions(matrix) / 2, _STORE_CYCLES * len(matrix))


# -- the schedule


class _Plan:
    """The steps for one product."""

    def __init__(
        self, kernel: KernelView, product: Product, name: str, target: Target, blocking: StrassenBlocking
    ) -> None:
        self._name, self._target, self._blocking = name, target, blocking
        self._knobs = kernel.knobs.within("strassen")
        self._weight = product.weight.tensor.name
        before = (Strassen(name, self._weight, product.weight_columns, lanes(target, DType.FLOAT32)),)
        keep = frozenset(f"{name}.{s}" for s in ("sums", "accumulated", "product"))
        self._before: Schedule = (*before, *inlined(kernel.after(before), keep))
        self._state = kernel.after(self._before)
        self._width = lanes(target, DType.FLOAT32)
        self._half, self._steps = product.columns // 2, product.depth // 2

    def steps(self) -> Schedule:
        loops, task, chunk = self._output_loops()
        return (*self._before, *loops, *self._sums(task), *self._products(chunk))

    def _output_loops(self) -> tuple[Schedule, str, str]:
        """(steps, loop of a task, loop of a chunk)"""
        b, out = self._blocking, self._state.output
        *outer, rows, columns = (a.name for a in out.compute.axes)
        extent = out.compute.axes[-2].extent
        steps: list[Step] = []
        nest = list(outer)

        def cut(axis: str, size: int, whole: Dim) -> None:
            if not isinstance(whole, int) or size < whole:
                steps.append(Split(out.name, axis, size))
                nest.append(f"{axis}.{size}")

        cut(columns, 2 * b.share, 2 * self._half)  # outside: a core has weights of its own
        cut(rows, 2 * b.pairs, extent)
        tasks = tuple(nest)
        cut(columns, 2 * b.columns, 2 * b.share)
        pair, both, vector = f"{rows}.2", f"{columns}.{2 * self._width}", f"{columns}.{self._width}"
        steps += [Split(out.name, rows, 2), Split(out.name, columns, 2 * self._width)]
        steps.append(Split(out.name, columns, self._width))
        steps += [Guard(out.name, pair)] if as_dim(extent % 2) != 0 else []
        steps.append(Reorder(out.name, (*nest, pair, both, rows, vector, columns)))
        steps += [Parallel(out.name, tasks)] if tasks else []
        steps += [Unroll(out.name, rows), Unroll(out.name, vector), Vectorize(out.name, columns)]
        return tuple(steps), tasks[-1] if tasks else ROOT, nest[-1] if nest else ROOT

    def _sums(self, loop: str) -> Schedule:
        name = f"{self._name}.sums"
        outer = [a.name for a in self._state.stage(name).compute.axes[:-3]]
        return (
            ComputeAt(name, self._state.output.name, loop, "scratch"),
            Split(name, "k", self._width),
            Reorder(name, (*outer, "t", f"k.{self._width}", "p", "k")),
            Unroll(name, "p"),
            Vectorize(name, "k"),
        )

    def _products(self, loop: str) -> Schedule:
        b, stage, inner = self._blocking, f"{self._name}.product", f"{self._name}.accumulated"
        outer = [a.name for a in self._state.stage(stage).compute.axes[:-3]]
        tile = b.vectors * self._width
        wide = (f"n.{self._width}",) if b.vectors > 1 else ()
        high = ("t",) if b.height > 1 else ()
        block = f"t.{b.height}" if high else "t"
        kinds: list[Step] = []
        for name in (stage, inner):
            kinds += [Split(name, "n", self._width)] if wide else []
            kinds += [*(Unroll(name, own) for own in (*high, *wide)), Vectorize(name, "n")]
        alone = () if high else ("t",)
        return (
            ComputeAt(stage, self._state.output.name, loop, "scratch"),
            Split(stage, "n", tile),
            *((Split(stage, "t", b.height),) if high else ()),
            *kinds,
            Reorder(stage, (*outer, "p", f"n.{tile}", block, *high, *wide, "n")),
            Reorder(inner, (*outer, *alone, "p", "k", *high, *wide, "n")),
            ComputeAt(inner, stage, block, "stack"),
            *self._weights(inner, tile),
        )

    def _weights(self, stage: str, tile: int) -> Schedule:
        """A chunk reads its weights in order."""
        b = self._blocking
        digits: list[tuple[int, int, int]] = []
        open_end = self._half
        for columns in (b.share, b.columns):
            if columns < open_end:
                digits.append((1, columns, 0 if not digits else open_end // columns))
                open_end = columns
        inner = open_end // tile if digits else 0
        order = (*digits, (0, 1, 0), (1, tile, inner), (2, 1, 0), (1, 1, tile))
        size = PRODUCTS * self._half * self._steps * _BYTES_OF_ELEMENT
        distance = prefetch_distance(size, self._target)
        swept = b.pairs > b.height
        default = A_TILE if distance and swept else distance
        distance = self._knobs.choice("ahead", (*BYTES_AHEAD, A_TILE) if swept else BYTES_AHEAD, default)
        if distance != A_TILE:
            return packing(self._weight, order, distance)
        ahead = PrefetchTile(stage, "k", self._weight, (("t", b.pairs, b.height),))
        near = near_distance(tile * self._steps * _BYTES_OF_ELEMENT, self._target)
        return packing(self._weight, order, 0, ahead, self._knobs.choice("bytes near", BYTES_NEAR, near))
