"""How compile time grows with a model: ``python -m bench.compilation --scaling [--families softmax,attention] [--png FILE]``.

Every family of :mod:`bench.families` is compiled at growing sizes. What is told is processor time, of this process and of those that
LLVM runs in, so that a machine with other work gives the same answer; the exponent is the slope of a line through the logarithms
of the largest sizes: 1 where twice the nodes take twice the time.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import ingot
from bench.families import FAMILIES
from shared_ir.errors import IngotError

SIZES = (100, 300, 1000, 3000, 10000)
_FITTED = 3


@dataclass(frozen=True)
class Point:
    """A model of ``nodes`` took ``seconds`` of processor time."""

    nodes: int
    seconds: float


def exponent(points: Sequence[Point]) -> float:
    """The slope of the line of least squares through the logarithms of the largest sizes; NaN of fewer than two."""
    last = points[-_FITTED:]
    if len(last) < 2:
        return math.nan
    slope, _ = np.polyfit(np.log([p.nodes for p in last]), np.log([p.seconds for p in last]), 1)
    return float(slope)


def measure(family: str, sizes: Sequence[int], level: int, most_seconds: float) -> Iterator[Point]:
    """Compiles the family at every size, until the next one would take longer than ``most_seconds``, were it linear.

    Raises:
        IngotError: what the compiler says of a model.
    """
    found: list[Point] = []
    for size in sizes:
        if found and found[-1].seconds * size / found[-1].nodes > most_seconds:
            return
        model = FAMILIES[family](size)
        start = _processor_seconds()
        ingot.compile(model, opt_level=level, workers=1)
        found.append(Point(size, _processor_seconds() - start))
        yield found[-1]


def _processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def table(family: str, points: Sequence[Point]) -> Iterator[str]:
    """Rows of Markdown; the last one of a family has its exponent."""
    for i, point in enumerate(points):
        slope = f"{exponent(points):.2f}" if i == len(points) - 1 else ""
        each = point.seconds / point.nodes * 1e3
        yield f"| {family} | {point.nodes} | {point.seconds:.2f} | {each:.2f} | {slope} |"


def draw(path: Path, found: dict[str, list[Point]]) -> None:
    """A PNG: nodes against seconds, both logarithmic, one line for each family."""
    figure = Figure(figsize=(9, 6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for family, points in found.items():
        label = f"{family}  {exponent(points):.2f}"
        axes.plot([p.nodes for p in points], [p.seconds for p in points], marker="o", markersize=3, label=label)
    axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel="seconds of processor time")
    axes.grid(True, which="both", linewidth=0.3)
    axes.legend(fontsize=8, title="family, exponent")
    figure.savefig(path)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compilation --scaling", description=__doc__)
    parser.add_argument("--families", type=lambda text: text.split(","), default=list(FAMILIES))
    parser.add_argument("--sizes", type=lambda text: [int(n) for n in text.split(",")], default=list(SIZES))
    parser.add_argument("--level", type=int, default=3, help="the optimisation level")
    parser.add_argument("--most-seconds", type=float, default=600, help="no size that is expected to take longer")
    parser.add_argument("--png", type=Path, help="draw what was measured")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.families if name not in FAMILIES]
    if unknown:
        parser.error(f"no family is called {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    ingot.compile(FAMILIES["softmax"](2), workers=1)  # imports are not counted
    print("| family | nodes | seconds | ms per node | exponent |\n| --- | --- | --- | --- | --- |", flush=True)
    found: dict[str, list[Point]] = {}
    for family in options.families:
        points = found.setdefault(family, [])
        try:
            points.extend(measure(family, options.sizes, options.level, options.most_seconds))
        except IngotError as error:
            print(f"{family}: {error}", flush=True)
        print("\n".join(table(family, points)), flush=True)
    if options.png is not None:
        draw(options.png, {family: points for family, points in found.items() if points})
    return 0
