"""What a convolution costs by Winograd's filtering, and in what blocks: cycles and bytes counted beforehand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from compiler_service.compiler.schedule.algorithms.combination import Matrix, additions
from compiler_service.compiler.schedule.algorithms.winograd.convolution import Convolution
from compiler_service.compiler.schedule.algorithms.winograd.filtering import Filtering, filtering, is_known
from compiler_service.compiler.schedule.model.tiles import lanes, register_tile, tile_cost, tile_cycles
from compiler_service.compiler.schedule.rules.contraction.packing import L2_BYTES_PER_CYCLE, arrival_rate
from shared_ir.dtype import DType
from shared_ir.machine.target import Target

BYTES_OF_ELEMENT = 4
"""Bytes of an element."""
_WINDOW_EXTENTS = {1: range(2, 64), 2: range(2, 8)}
"""Extents of windows that filtering is considered for, by the number of axes that are filtered."""
_OUTPUTS_OF_TILE = {1: (6, 5, 4, 3, 2), 2: (4, 2)}
"""Outputs of a tile along each axis that is filtered, the most first, by the number of such axes."""
_OUTPUTS_OF_TILE_ASKED = range(2, 7)
"""Those that may be asked for where two axes are filtered: larger tiles have fewer products, and larger errors."""
_TILES_OF_LINE_PER_TASK = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Tiles of a row of tiles that a task may cover where a window extends along one axis: rows may be of any length, and a task need
not cover all of one."""
_CORES_THAT_FILL_MEMORY = 2
"""Number of cores that, reading at once, get all that the memory gives."""
_MOST_TIME_OF_REGISTER_BLOCK = 1.1
"""Register blocks are considered up to this multiple of the time of the cheapest: fewer sweeps over the tiles hide more of the
weights' arrival."""
_MOST_TIME_OF_EQUALS = 1.05
"""Blockings cost alike when one takes at most this multiple of the time of the other."""
_FEWEST_TILES_OF_ROW = 7
"""Smallest number of tiles of a row of tiles that a task covers, if there are so many."""
_MOST_ROWS_OF_TILES = 8
"""Largest number of rows of tiles of one task where a window extends along one axis."""
_ROWS_OF_TILES_IF_UNKNOWN = (1, 2, 4)
"""Numbers of rows of tiles of one task that are considered when the number of rows is only known at run time."""
_MOST_WEIGHT_BYTES_WITH_STRIDE = 1 << 24
"""Largest size in bytes of the transformed weights of a convolution with a stride, which are 2.8 (F(2x2)) or 9 times (F(4x4)) as large as
the original: memory brings them beside what other cores ask for."""
_MOST_SHARES = 16
"""Largest number of parts that the output channels may be asked to be divided into."""
_CHANNELS_OF_CHUNK = 16
"""Channels that are summed at a time where the kernel transforms the weights: a line of the transformed data, and no more
weights than the first-level cache keeps while a row of points after the other reads them."""


@dataclass(frozen=True)
class WinogradBlocking:
    """F(tile x tile), or F(tile); a task covers ``rows`` x ``columns`` tiles (0 columns: all) and ``channels`` output channels (0:
    all). A tile has one output along an axis that is not filtered.

    ``down`` x ``across`` tiles x ``vectors`` registers accumulate. Where ``chunk`` is not 0 the kernel transforms the weights: then
    all tiles of a task and a row of their points accumulate, over ``chunk`` channels of the data.
    """

    tile: int
    rows: int
    columns: int
    channels: int
    down: int
    across: int
    vectors: int
    chunk: int = 0


def is_considered(conv: Convolution) -> bool:
    return conv.kernel in _WINDOW_EXTENTS[sum(conv.filtered)]


def vector_width(conv: Convolution, target: Target) -> int:
    """Elements of a vector, which crosses no groups: half of a register where whole ones do not fit; 0 for narrower groups, of
    which vectors hold several (:mod:`compiler_service.compiler.schedule.algorithms.diagonals.rule`), and where neither fits."""
    width = lanes(target, DType.FLOAT32)
    if not conv.is_grouped or conv.group % width == 0:
        return width
    return width // 2 if conv.group > width and conv.group % (width // 2) == 0 else 0


class WinogradModel:
    """Cycles of one convolution on ``target``, counted for one thread and for all of its cores together.

    Two multiply-adds start each cycle. Weights come from memory once, and from the cache level that holds them each further
    time, while the first sweep over the tiles of a task multiplies them. Extents that the run defines count as ``unknown``.
    """

    def __init__(self, conv: Convolution, target: Target, unknown: int) -> None:
        (height, width), channels = conv.image, conv.tensor.shape[-1]
        self.rows, self.columns, self.channels = (
            d if isinstance(d, int) else unknown for d in (height, width, channels)
        )
        self._conv, self._axes, self.window = conv, sum(conv.filtered), conv.window
        self.depth, self.group, self.is_grouped = conv.depth, conv.group, conv.is_grouped
        self.has_planes = bool(conv.taps)
        self.is_static = isinstance(height, int) and isinstance(width, int)
        self.kernel, self.stride, self.width = conv.kernel, conv.stride, vector_width(conv, target)
        self._target = target
        self._images = math.prod(d for d in conv.tensor.shape[: len(conv.outer)] if isinstance(d, int))

    def tiles(self) -> Sequence[int]:
        """Outputs of a tile along an axis that are considered, the most first."""
        known = (t for t in _OUTPUTS_OF_TILE[self._axes] if is_known(t, self.kernel, self.stride, self._axes))
        return [t for t in known if self.stride == 1 or self._weights(t) <= _MOST_WEIGHT_BYTES_WITH_STRIDE]

    def tiles_asked(self) -> Sequence[int]:
        """Those that may be asked for."""
        more = _OUTPUTS_OF_TILE_ASKED if self._axes == 2 and self.stride == 1 else ()
        known = {t for t in more if is_known(t, self.kernel, self.stride, self._axes, asked=True)}
        return sorted(known | set(self.tiles()))

    def candidates(self, tile: int) -> Iterator[WinogradBlocking]:
        both = self._conv.filterings(tile)
        down, across = (-(-n // f.tile) for n, f in zip((self.rows, self.columns), both, strict=True))
        for rows, columns in self._task_tiles(down, across):
            chunk = 0 if columns == across and self.is_static and self._conv.has_rows else columns
            for channels in self._shares(rows == down and columns == across):
                for block in self._blocks(rows, columns, channels):
                    yield WinogradBlocking(tile, rows, chunk, channels, *block)
        yield from self._with_weights(tile, down, across)

    def _points(self, tile: int) -> int:
        """Products of a tile."""
        return math.prod(f.size for f in self._conv.filterings(tile))

    def _parts(self, tile: int) -> int:
        """Number of parts that the window is cut into."""
        return max(f.parts for f in self._conv.filterings(tile))

    def _weights(self, tile: int) -> int:
        """Bytes of the transformed weights."""
        return self._points(tile) * self._parts(tile) * self.depth * self.channels * BYTES_OF_ELEMENT

    def _shares(self, is_image: bool) -> list[int]:
        """Output channels of a task, 0 for all: those of whole groups, or where a task covers an image one share for each core."""
        parts = (
            range(1, self.channels // self.group + 1) if self.is_grouped else [self._target.cores] if is_image else []
        )
        whole = self.group if self.is_grouped else 1
        shares = (self.channels // n for n in parts if n > 1 and self.channels % (n * whole) == 0)
        return [0, *(share for share in shares if share > self.width)]

    def _blocks(
        self, rows: int, columns: int, channels: int, slack: float = _MOST_TIME_OF_REGISTER_BLOCK
    ) -> list[tuple[int, int, int]]:
        """Register blocks for a task of ``channels`` (0: all), which has whole tiles of the weights; none crosses groups."""
        extent = self.group if self.is_grouped else channels or self.channels
        divided = self.group if self.is_grouped else channels
        found = _register_blocks(rows, columns, extent, self._target, self.width, slack)
        return [b for b in found if divided % (b[2] * self.width) == 0]

    def blocks(self, b: WinogradBlocking, slack: float = _MOST_TIME_OF_REGISTER_BLOCK) -> list[tuple[int, int, int]]:
        """Register blocks (down, across, vectors) for the task of ``b`` that take at most ``slack`` times as long as the cheapest."""
        return self._blocks(b.rows, self._columns_of(b), b.channels, slack)

    def tasks_asked(self, tile: int) -> Sequence[tuple[int, int]]:
        """(rows, columns) of tiles of a task that may be asked for."""
        both = self._conv.filterings(tile)
        down, across = (-(-n // f.tile) for n, f in zip((self.rows, self.columns), both, strict=True))
        found = set(self._task_tiles(down, across))
        if self.is_static and self._axes == 2:
            columns = (c for c in range(1, across + 1) if across % c == 0)
            found |= {(rows, c) for c in columns for rows in range(1, min(down, _MOST_ROWS_OF_TILES) + 1)}
        whole = self.is_static and self._conv.has_rows
        return sorted({(rows, 0 if whole and columns == across else columns) for rows, columns in found})

    def channels_asked(self) -> Sequence[int]:
        """Output channels of a task that may be asked for, 0 for all."""
        whole = self.group if self.is_grouped else self.width
        pieces = (self.channels // n for n in range(2, _MOST_SHARES + 1) if self.channels % (n * whole) == 0)
        return [0, *(share for share in pieces if share > self.width)]

    def _with_weights(self, tile: int, down: int, across: int) -> Iterator[WinogradBlocking]:
        """Blockings of whole images that fit the registers, beside a transformed weight and the terms of the next one."""
        size = filtering(tile, self.kernel, self.stride).size
        registers = size * down * across + size + 2
        if (
            not self.is_static
            or self.is_grouped
            or self.has_planes
            or self._axes < 2
            or self.stride > 1
            or self.depth % _CHANNELS_OF_CHUNK
            or registers > self._target.vector_registers
        ):
            return
        for channels in self._shares(is_image=True):
            own = channels or self.channels
            if own % self.width == 0 and own > self.width:
                yield WinogradBlocking(tile, down, 0, channels, down, across, 1, _CHANNELS_OF_CHUNK)

    def with_fewest_reads(self, b: WinogradBlocking) -> WinogradBlocking:
        """``b`` with the register block that is the cheapest when the request for weights ahead, one in each step, counts as a read
        too: of blocks that cost alike, the one of more vectors reads less data (3 to 8 % of a convolution's time)."""
        if b.chunk:
            return b
        columns, channels = self._columns_of(b), b.channels or self.channels
        blocks = self._blocks(b.rows, columns, b.channels)
        found = [replace(b, down=down, across=across, vectors=vectors) for down, across, vectors in blocks]
        most = self.cost(b) * _MOST_TIME_OF_EQUALS
        alike = [other for other in found if self.cost(other) <= most]
        return min(alike, key=lambda b: _block_cost(b, columns, channels, self.width, 1))

    def _task_tiles(self, down: int, across: int) -> Iterator[tuple[int, int]]:
        """(rows, columns) of tiles that a task may cover."""
        if not self.is_static and self._axes == 2:
            yield from ((rows, columns) for rows in _ROWS_OF_TILES_IF_UNKNOWN for columns in (4, 7, 8, 14))
            return
        if self._axes < 2:
            phases = self._conv.dilation > 1
            rows = (
                (down,)
                if phases
                else range(1, min(down, _MOST_ROWS_OF_TILES) + 1)
                if self.is_static
                else _ROWS_OF_TILES_IF_UNKNOWN
            )
            wide = [c for c in _TILES_OF_LINE_PER_TASK if (phases or c >= _FEWEST_TILES_OF_ROW) and c < across]
            yield from ((r, c) for c in wide for r in rows)
            if phases or not self.is_static:
                return
        for columns in range(1, across + 1):
            if across % columns == 0 and (columns == across or columns >= _FEWEST_TILES_OF_ROW):
                yield from ((rows, columns) for rows in range(1, down + 1))

    def direct(self) -> float:
        height, vectors = register_tile(self.columns, self.group, self._target, DType.FLOAT32)
        width = lanes(self._target, DType.FLOAT32)
        product = tile_cost(self.columns, height, self.group, vectors * width, width) * (self.channels // self.group)
        steps = self.window * self.depth
        sweeps = self.rows * -(-self.columns // height)
        size = steps * self.channels * BYTES_OF_ELEMENT
        total = self._images * self.rows * product * steps
        return self._both(total, 0.0, _Weights(size, self._target.cores, self._images, sweeps))

    def _columns_of(self, b: WinogradBlocking) -> int:
        """Tiles of a row of tiles that a task covers."""
        return b.columns or -(-self.columns // self._conv.filterings(b.tile)[1].tile)

    def cost(self, b: WinogradBlocking) -> float:
        both = self._conv.filterings(b.tile)
        columns = self._columns_of(b)
        counts, points = (b.rows, columns), self._points(b.tile)
        tiles = b.rows * columns
        read = math.prod(n + f.parts - 1 for n, f in zip(counts, both, strict=True))
        channels = b.channels or self.channels
        product = self._product_of_chunks(b, both[0]) * channels if b.chunk else self._product(b, both, channels)
        lines = math.prod(n * f.tile * f.stride + f.reach - f.stride for n, f in zip(counts, both, strict=True))
        depth = self.depth * max(1, channels // self.group)
        vectors_in, vectors_out = -(-depth // self.width), -(-channels // self.width)
        registers = self._target.vector_registers
        forth = vectors_in * (2 * lines + read * _transform(both[0].data, both[1].data, registers))
        back = vectors_out * tiles * _transform(both[0].output, both[1].output, registers)
        parts = self.channels // channels
        shares = (-(-d // (n * f.tile)) for d, n, f in zip((self.rows, self.columns), counts, both, strict=True))
        tasks = math.prod(shares) * parts * self._images
        kept = points * (read * depth + tiles * (self.width if b.chunk else channels)) * BYTES_OF_ELEMENT
        spilled = kept / L2_BYTES_PER_CYCLE if kept > self._target.l2 else 0.0
        sweeps = -(-b.rows // b.down) * -(-columns // b.across)
        size = self.window * self.depth * self.channels * BYTES_OF_ELEMENT if b.chunk else self._weights(b.tile)
        return self._both(
            tasks * product, tasks * (forth + back + spilled), _Weights(size, parts, tasks // parts, sweeps)
        )

    def _product(self, b: WinogradBlocking, both: tuple[Filtering, Filtering], channels: int) -> float:
        """Cycles of the products of a task: tiles that hang over the end do without the point at infinity."""
        (down, across), columns = both, self._columns_of(b)
        hangs = [self._hangs(*edge) for edge in ((self.rows, b.rows, down.tile), (self.columns, columns, across.tile))]
        steps = self._parts(b.tile) * self.depth
        return steps * sum(
            n * m * _block_cost(replace(b, rows=b.rows - below), columns - beside, channels, self.width)
            for n, below in ((down.size - 1, 0), (1, hangs[0]))
            for m, beside in ((across.size - 1, 0), (1, hangs[1]))
            if n * m
        )

    def _hangs(self, extent: int, tiles: int, tile: int) -> bool:
        return self.is_static and extent % tile != 0 and tiles * tile >= extent

    def _product_of_chunks(self, b: WinogradBlocking, f: Filtering) -> float:
        """Cycles of the products of a task, for each output channel, with the transform of their weights."""
        read = f.size * b.rows - self._hangs(self.rows, b.rows, b.tile)
        products = f.size * b.across * read
        transform = (self.kernel + f.size) * additions(f.weight)
        added = f.size**2 * b.rows * b.across / b.chunk
        return self.depth / self.width * ((products + transform) / 2 + added)

    def _both(self, product: float, rest: float, weights: _Weights) -> float:
        """Cycles of one thread, and those of all cores while ``cores`` of them work and share the memory."""
        cores = self._target.cores
        return self._alone(product, rest, weights, 1) + cores * self._alone(product, rest, weights, cores)

    def _alone(self, product: float, rest: float, weights: _Weights, cores: int) -> float:
        """Cycles of the core that has the most to do."""
        tasks = weights.parts * weights.times
        share = -(-tasks // cores) / tasks
        first = product * share / weights.sweeps
        return max(first, self._arrival(weights, share, cores)) + (product - product / weights.sweeps + rest) * share

    def _arrival(self, weights: _Weights, share: float, cores: int) -> float:
        """Cycles in which a core's weights arrive, the first time from memory."""
        size, target = weights.size, self._target
        again = arrival_rate(size, target)
        own = max(share, 1 / weights.parts)
        once = size / target.memory_bytes * max(own, 1 / min(cores, _CORES_THAT_FILL_MEMORY))
        return once + size * max(0.0, weights.times * share - own) / again


@dataclass(frozen=True)
class _Weights:
    """``size`` bytes of weights, of which a task reads one of ``parts``; each part is read ``times`` times.

    ``sweeps`` over its tiles multiply what a task reads, the first as it arrives.
    """

    size: int
    parts: int
    times: int
    sweeps: int


def _register_blocks(
    rows: int, columns: int, channels: int, target: Target, width: int, slack: float
) -> Iterator[tuple[int, int, int]]:
    """(down, across, vectors) of accumulator blocks for ``rows`` x ``columns`` tiles: the best for each number of vectors, where it
    takes at most ``slack`` times as long as the cheapest."""
    found = []
    for vectors in (v for v in (1, 2, 3, 4, 6) if v <= max(1, -(-channels // width))):
        best = (math.inf, 0, (1, 1, 1))
        tiles = (target.vector_registers - vectors - 1) // vectors
        for down in range(1, min(rows, tiles) + 1):
            for across in range(1, min(columns, tiles // down) + 1):
                b = WinogradBlocking(0, rows, columns, 0, down, across, vectors)
                own = (_block_cost(b, columns, channels, width), -down * across * vectors, (down, across, vectors))
                best = min(best, own)
        found.append(best)
    found.sort()
    yield from (block for cost, _, block in found if cost <= found[0][0] * slack)


def _block_cost(b: WinogradBlocking, columns: int, channels: int, width: int, others: int = 0) -> float:
    """Cycles of one reduction step over the tiles of a task, tails included, with ``others`` reads besides data and weights."""
    heights = ((b.rows // b.down, b.down), (1, b.rows % b.down))
    widths = ((columns // b.across, b.across), (1, columns % b.across))
    wide = b.vectors * width
    vectors = ((channels // wide, b.vectors), (1, -(-(channels % wide) // width)))
    return sum(
        n * m * k * tile_cycles(h * w, v, others)
        for n, h in heights
        for m, w in widths
        for k, v in vectors
        if n * m * k * h * w * v
    )


def _transform(down: Matrix, across: Matrix, registers: int) -> float:
    """Cycles to transform one tile of vectors along both axes; registers are short, so operations and accesses add up. What has
    been transformed along one axis and does not fit ``registers`` is written and read once more."""
    height, width = len(down[0]), len(across[0])
    terms = width * additions(down) + len(down) * additions(across)
    return terms + height * width + 2 * max(0, len(down) * width - registers)
