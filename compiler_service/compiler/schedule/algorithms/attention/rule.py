"""Attention: both products and the softmax between them in one nest, a block of rows by a block of keys at a time."""

from __future__ import annotations

from collections.abc import Iterator

from compiler_service.compiler.schedule.algorithms.attention.match import Attention, match_attention
from compiler_service.compiler.schedule.algorithms.attention.step import Attend
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.model.analysis import KernelView, accumulated, inlined
from compiler_service.compiler.schedule.model.tasks import LEAST_CYCLES_OF_TASK, count
from compiler_service.compiler.schedule.model.tiles import lanes, register_tile
from compiler_service.compiler.schedule.rules.contraction.match import same_axes
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim
from shared_ir.machine.target import Target

_F32 = DType.FLOAT32
_BYTES = _F32.itemsize
_L1_SHARE_OF_KEYS = 1.0
"""Largest part of the first-level cache that the values of a block of keys may fill: larger blocks take up and put down fewer sums,
smaller ones leave room for scores."""
_MOST_KEYS_OF_BLOCK = 128
"""Largest number of keys of a block: with more, the sums so far are taken up and put down no more cheaply."""
_FEWEST_KEYS_OF_BLOCK = 32
"""Smallest number of keys of a block."""
_MOST_ROWS_OF_BLOCK = 640
"""Largest number of rows of a block."""
_MOST_ROWS_OF_BLOCK_IF_UNKNOWN = 96
"""Largest number of rows of a block when the number of queries is only known at run time."""
_ROWS_WORTH_OF_BLOCK = 4
"""Number of rows whose products take as long as arranging a block of keys."""
_MOST_KEYS_ASKED = 1024
"""Largest number of keys of a block that may be asked for."""
_MOST_ROWS_OF_TILE, _MOST_VECTORS_OF_TILE, _FEWEST_SUMS = 16, 6, 8
"""Largest number of rows, and of vectors, and smallest number of accumulators of a register tile that may be asked for."""
_BLOCKS_OF_TASK = (1, 2, 4, 8)
"""Numbers of blocks of rows of a task that may be asked for."""
_SOFTMAX_CYCLES_PER_VECTOR = 16.0
"""Cycles of a vector of scores between the two products."""
_MOST_BLOCKS_PER_CORE = 4
"""Largest number of blocks of rows of one head, for each core, that is considered."""


def attention_schedule(kernel: KernelView, target: Target) -> Schedule | None:
    """The schedule of a kernel that is attention of known depth, or None."""
    steps = accumulated(kernel)
    steps += inlined(kernel.after(steps))
    state = kernel.after(steps)
    attention = match_attention(state)
    if attention is None or not same_axes(state, attention.mixed):
        return None
    return (*steps, _step(attention, target, kernel.knobs.within("attention")))


def _step(attention: Attention, target: Target, knobs: Knobs) -> Attend:
    width = lanes(target, _F32)
    rows: Dim = 1 if attention.rows is None else attention.rows.extent
    total, columns = attention.keys.extent, attention.columns.extent
    keys = knobs.split("keys", total, _keys(attention, target, width), multiple=width, most=_MOST_KEYS_ASKED)
    default = register_tile(rows, total, target, _F32, whole=True)
    scores = knobs.choice("tile of scores", _tiles(rows, total, target), default)
    default = register_tile(rows, columns, target, _F32, whole=True)
    values = knobs.choice("tile of values", _tiles(rows, columns, target), default)
    default_size = _rows(attention, rows, keys, scores[0], target)
    size = knobs.split("rows", rows, default_size, multiple=scores[0], most=_MOST_ROWS_OF_BLOCK)
    units = _units(attention, rows, size, target)
    units = knobs.choice("blocks of a task", sorted({*_BLOCKS_OF_TASK, units}), units)
    return Attend(attention.mixed.name, size, keys, scores, values, units)


def _tiles(rows: Dim, columns: Dim, target: Target) -> list[tuple[int, int]]:
    """Register tiles (rows, vectors) that may be asked for."""
    most = min(rows, _MOST_ROWS_OF_TILE) if isinstance(rows, int) else _MOST_ROWS_OF_TILE
    wide = min(-(-count(columns) // lanes(target, _F32)), _MOST_VECTORS_OF_TILE)
    pairs = ((height, vectors) for vectors in range(1, wide + 1) for height in range(1, most + 1))
    return [
        (h, v) for h, v in pairs if h * v + v + 1 <= target.vector_registers and (h == most or h * v >= _FEWEST_SUMS)
    ]


def _keys(attention: Attention, target: Target, width: int) -> int:
    """Keys of a block: values of all of them fit the first cache level; blocks are of like size."""
    line = count(attention.columns.extent) * _BYTES
    most = int(target.l1 * _L1_SHARE_OF_KEYS) // max(1, line) // width * width
    most = max(_FEWEST_KEYS_OF_BLOCK, min(_MOST_KEYS_OF_BLOCK, most))
    total = attention.keys.extent
    if not isinstance(total, int):
        return most
    blocks = -(-total // most)
    return -(-total // blocks // width) * width if blocks > 1 else -(-total // width) * width


def _rows(attention: Attention, rows: Dim, keys: int, height: int, target: Target) -> int:
    """Rows of a block, as many as the second cache level takes beside the keys, and so that all cores have work."""
    per_row = (keys + count(attention.columns.extent) + count(attention.depth.extent)) * _BYTES
    most = max(height, min(_MOST_ROWS_OF_BLOCK, target.l2 // 2 // per_row) // height * height)
    heads = 1
    for axis in attention.outer:
        heads *= count(axis.extent)
    if not isinstance(rows, int):
        return min(most, _MOST_ROWS_OF_BLOCK_IF_UNKNOWN // height * height or height)
    fewest = -(-rows // most)

    def sizes() -> Iterator[tuple[float, int]]:
        for blocks in range(fewest, max(fewest, _MOST_BLOCKS_PER_CORE * target.cores) + 1):
            size = -(-rows // blocks // height) * height
            units = heads * -(-rows // size)
            yield (
                -(-units // target.cores) * (size + _ROWS_WORTH_OF_BLOCK) + units * _ROWS_WORTH_OF_BLOCK / target.cores,
                size,
            )

    return min(sizes())[1]


def _units(attention: Attention, rows: Dim, size: int, target: Target) -> int:
    """Blocks of rows of one task: small ones go together."""
    width = lanes(target, _F32)
    block_rows = min(size, rows) if isinstance(rows, int) else size
    depth = count(attention.columns.extent) + count(attention.depth.extent)
    cycles = block_rows * count(attention.keys.extent) / width * (depth / 2 + _SOFTMAX_CYCLES_PER_VECTOR)
    return max(1, int(LEAST_CYCLES_OF_TASK / max(cycles, 1.0)))
