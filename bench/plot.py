"""The roofline plot: operations per byte against operations per second, both logarithmic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bench.bounds import COMPUTE, KernelBound
from bench.peaks import LEVELS, Peaks

_COLORS = {COMPUTE: "#3b78c2", "L1": "#2e8b57", "L2": "#c9a227", "L3": "#d2691e", "memory": "#a32020"}
_LEAST_AREA, _MOST_AREA = 12.0, 900.0
_NAMED = 12
_DECADES = 1000.0


def draw_roofline(path: Path, title: str, kernels: Sequence[KernelBound], peaks: Peaks) -> None:
    """Write a PNG: the roofs as lines, a kernel as a disc whose area is its share of the time."""
    figure = Figure(figsize=(12, 6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes, names = figure.subplots(1, 2, width_ratios=(3, 1))
    shown = [k for k in kernels if k.flops and k.bytes and k.seconds]
    _draw_roofs(axes, [k.intensity for k in shown], peaks)
    _draw_kernels(axes, shown, sum(k.seconds for k in kernels))
    axes.set_title(title)
    _list_names(names, shown[:_NAMED])
    figure.savefig(path)


def _draw_roofs(axes: Axes, intensities: Sequence[float], peaks: Peaks) -> None:
    ridge = peaks.flops / peaks.bandwidth[LEVELS[-1]].roof
    low, high = min([*intensities, 0.1]) / 2, max([*intensities, ridge]) * 2
    x = np.geomspace(low, high, 200)
    for level, bandwidth in peaks.bandwidth.items():
        roof = np.minimum(x * bandwidth.roof, peaks.flops) / 1e9
        axes.plot(x, roof, color=_COLORS[level], label=f"{level} {bandwidth.roof / 1e9:.0f} GB/s", linewidth=1.2)
    peak = f"peak {peaks.flops / 1e9:.0f} GFLOP/s"
    axes.axhline(peaks.flops / 1e9, color=_COLORS[COMPUTE], label=peak, linewidth=1.2)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(peaks.flops / 1e9 / _DECADES, peaks.flops / 1e9 * 4))
    axes.set_xlabel("operations per byte moved at least once")
    axes.set_ylabel("GFLOP/s")
    axes.grid(True, which="both", linewidth=0.3)
    axes.legend(loc="lower right", fontsize=8)


def _draw_kernels(axes: Axes, kernels: Sequence[KernelBound], total: float) -> None:
    for number, kernel in enumerate(kernels, 1):
        at = (kernel.intensity, kernel.flops_per_second / 1e9)
        area = max(_LEAST_AREA, _MOST_AREA * kernel.seconds / total)
        color = _COLORS[kernel.bound]
        axes.scatter(*at, s=area, color=color, alpha=0.5, edgecolors="black", linewidths=0.4)
        if number <= _NAMED:
            axes.annotate(str(number), at, ha="center", va="center", fontsize=8)


def _list_names(axes: Axes, kernels: Sequence[KernelBound]) -> None:
    axes.set_axis_off()
    lines = [
        f"{n}  {k.kernel} x{k.launches}\n    {k.reached:.0%} of {k.bound}, {k.lost_seconds * 1e6:.0f} us lost"
        for n, k in enumerate(kernels, 1)
    ]
    axes.text(0, 1, "most time lost\n\n" + "\n".join(lines), fontsize=8, va="top", transform=axes.transAxes)
