"""Whether a convolution is filtered by Winograd's method, and in what blocks: as the model has it, or knobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from compiler_service.compiler.schedule.algorithms.winograd.convolution import Convolution
from compiler_service.compiler.schedule.algorithms.winograd.model import WinogradBlocking, WinogradModel
from compiler_service.compiler.schedule.language.knobs import Knobs
from shared_ir.machine.target import Target

_EXTENTS_IF_UNKNOWN = {True: (20, 48, 112), False: (64, 512, 4096)}
"""What an extent is taken for, one after the other, when it is only known at run time: of images (True) and of lines (False)."""
_MOST_PART_OF_DIRECT_TIME, _MOST_PART_OF_DIRECT_TIME_WITH_STRIDE = 0.9, 0.86
"""The method is taken only if the model promises less than this part of the direct method's time: its rounding errors are larger. With
a stride, transforms are a larger part of the work, and the model is less sure."""
_CONVOLUTIONS_REMEMBERED = 128
"""Number of convolutions, by tiles, of which the costs of all blockings are remembered: each point of a space asks for them."""


def choose_blocking(
    conv: Convolution, target: Target, knobs: Knobs, *, anyway: bool = False
) -> WinogradBlocking | None:
    """The cheapest blocking, or another where ``knobs`` say so; None where the direct method is about as fast, unless it is asked for
    ``anyway``. Sizes that the run defines count equally."""
    models = _models(conv, target)
    model = models[0]
    if model.group < model.width or model.depth < model.width:
        return None

    tiles = model.tiles() or (model.tiles_asked() if anyway else ())
    found = (pair for tile in tiles for pair in _costs(conv, target, tile))
    least, best = min(found, key=lambda pair: pair[0], default=(math.inf, None))
    most = _MOST_PART_OF_DIRECT_TIME if conv.stride == 1 else _MOST_PART_OF_DIRECT_TIME_WITH_STRIDE
    if best is None or (least >= most and not anyway):
        return None
    tile = knobs.choice("tile", model.tiles_asked(), best.tile)
    return _asked(models, _costs(conv, target, tile), knobs)


def _models(conv: Convolution, target: Target) -> list[WinogradModel]:
    """One for each of the sizes that count."""
    models = [WinogradModel(conv, target, size) for size in _EXTENTS_IF_UNKNOWN[conv.has_rows]]
    return models[:1] if models[0].is_static else models


@lru_cache(maxsize=_CONVOLUTIONS_REMEMBERED)
def _costs(conv: Convolution, target: Target, tile: int) -> tuple[tuple[float, WinogradBlocking], ...]:
    """(part of the direct method's time, blocking) of what is considered of such tiles."""
    models = _models(conv, target)
    cost = _mean_cost(models)
    return tuple((cost(b), b) for b in models[0].candidates(tile))


def _mean_cost(models: Sequence[WinogradModel]) -> Callable[[WinogradBlocking], float]:
    times = [m.direct() for m in models]
    return lambda b: sum(m.cost(b) / t for m, t in zip(models, times, strict=True)) / len(models)


def _asked(
    models: Sequence[WinogradModel], found: Sequence[tuple[float, WinogradBlocking]], knobs: Knobs
) -> WinogradBlocking:
    """One of ``found``, all of one tile, or one of another size of tasks and of registers."""
    model, cost = models[0], _mean_cost(models)
    best = knobs.narrowed(found, chunk=lambda b: b.chunk)
    if best.chunk:
        left = [(c, b) for c, b in found if b.chunk == best.chunk]
        return knobs.narrowed(left, channels=lambda b: b.channels)
    size = (best.rows, best.columns, best.channels)
    rows, columns = knobs.choice("task", model.tasks_asked(best.tile), size[:2])
    channels = knobs.choice("channels", model.channels_asked(), best.channels)
    if (rows, columns, channels) != size:
        best = replace(best, rows=rows, columns=columns, channels=channels)
        blocks = [replace(best, down=d, across=a, vectors=v) for d, a, v in model.blocks(best)]
        best = min(blocks, key=cost, default=best)
    best = model.with_fewest_reads(best)
    asked = sorted(model.blocks(best, slack=math.inf))
    down, across, vectors = knobs.choice("registers", asked, (best.down, best.across, best.vectors))
    return replace(best, down=down, across=across, vectors=vectors)
