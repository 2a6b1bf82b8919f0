"""Two artifacts of one model, run in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ingot.artifact import Artifact
from ingot.model import load
from ingot.sources import compiler
from shared_ir.errors import IngotError
from shared_ir.expr.dim import dim_symbols

_ROUNDS, _LEAST_ROUNDS = 31, 7
_ROUND_SECONDS = 0.05
"""Of the slower one of the two, in each round."""
_MOST_SECONDS = 20.0
"""Of processor time, from which on there are no more rounds than the least."""
_EXTENT = 64
"""Elements along a dim that the model leaves open; 1 along the first one of an input."""


@dataclass(frozen=True)
class Comparison:
    """A model with default schedules and with tuned ones, run in turns by one process, one thread.

    Attributes:
        default: median seconds of one inference.
        tuned: the same times the median of what it takes of that, round by round.
        noise: half the distance between the quartiles of the rounds' ratios.
    """

    default: float
    tuned: float
    noise: float

    @property
    def speedup(self) -> float:
        """Above 1 the tuned one is faster."""
        return self.default / self.tuned


def compare_artifacts(default: Artifact, tuned: Artifact) -> Comparison | None:
    """Run two artifacts of one model in turns, one thread; None where the model takes what cannot be made up here."""
    with compiler():
        from compiler_service.compiler.reference.verification import make_inputs

    models = [load(artifact, threads=1) for artifact in (default, tuned)]
    specs = models[0].inputs
    sizes = {symbol: _EXTENT for spec in specs for symbol in dim_symbols(spec.shape)}
    sizes |= {symbol: 1 for spec in specs if len(spec.shape) > 1 for symbol in dim_symbols(spec.shape[:1])}
    inputs = dict(zip((spec.name for spec in specs), make_inputs(specs, sizes), strict=True))
    runs = [partial(model.run, inputs) for model in models]
    try:
        for run in runs:
            run()
    except IngotError:
        return None
    times = _rounds(runs)
    ratios = [own / other for other, own in zip(*times, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    seconds = statistics.median(times[0])
    return Comparison(seconds, seconds * middle, (high - low) / 2)


def _rounds(runs: Sequence[Callable[[], Any]]) -> tuple[list[float], list[float]]:
    """Seconds of one run of each of two, round by round."""
    slower = max(_timed(run, 1) for run in runs)
    count = max(1, int(_ROUND_SECONDS / max(1e-6, slower)))
    times: tuple[list[float], list[float]] = ([], [])
    began = time.thread_time()
    for number in range(_ROUNDS):
        if number >= _LEAST_ROUNDS and time.thread_time() - began > _MOST_SECONDS:
            break
        for place in (0, 1) if number % 2 == 0 else (1, 0):
            times[place].append(_timed(runs[place], count))
    return times


def _timed(run: Callable[[], Any], count: int) -> float:
    """Seconds of one run: those that this thread, which computes it all, had a core for."""
    start = time.thread_time()
    for _ in range(count):
        run()
    return (time.thread_time() - start) / count
