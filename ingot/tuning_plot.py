"""Cost against trials, drawn."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ingot.sources import compiler
from shared_ir.extras import needing
from shared_ir.machine.target import Target
from shared_ir.storage.faults import file_error, require_writable, told

if TYPE_CHECKING:
    from compiler_service.compiler.tune.records.record import TrialRecord

_MOST_LINES = 12
"""Tasks that are drawn, those that take longest."""


def curves(records: Sequence[TrialRecord]) -> Mapping[str, Sequence[float]]:
    """For each task, the best share of the default schedule's time after each of its trials; those that take longest come first."""
    tasks: dict[str, list[TrialRecord]] = {}
    for record in sorted(records, key=lambda r: r.time):
        if not record.confirmed and not record.settled:
            tasks.setdefault(record.workload, []).append(record)
    longest = sorted(tasks.values(), key=lambda found: -max(r.default_seconds for r in found))
    drawn: dict[str, Sequence[float]] = {}
    for found in longest:
        best, line = 1.0, [1.0]
        for record in found:
            best = min(best, record.share)
            line.append(best)
        microseconds = max(r.default_seconds for r in found) * 1e6
        drawn[f"{found[0].label[:40]}, {microseconds:.0f} us ({found[0].workload[:6]})"] = line
    return drawn


def require_plots(file: Path) -> None:
    """That a plot can be drawn and written to ``file``.

    Raises:
        IngotError: UNAVAILABLE, matplotlib, which draws, is not installed; what :func:`shared_ir.storage.faults.require_writable` raises;
            INVALID_ARGUMENT, the file is a folder.
    """
    with needing("tune", "what draws"):
        import matplotlib  # noqa: F401
    if file.is_dir():
        raise file_error(IsADirectoryError(errno.EISDIR, "is a directory"), "the plot cannot be written", file)
    require_writable(file.absolute().parent, "the plot")


def plot_trials(records: Path, target: Target, file: Path) -> None:
    """Write a PNG of what the records of ``target`` say.

    Raises:
        IngotError: UNAVAILABLE, matplotlib is not installed; INVALID_ARGUMENT, the file cannot be written.
    """
    with compiler():
        from compiler_service.compiler.tune.records.lines import read_lines

    require_plots(file)
    from matplotlib.figure import Figure

    own = [r for r in read_lines(records.read_bytes())[0] if r.target == str(target)]
    figure = Figure(figsize=(10, 6), layout="constrained")
    axes = figure.add_subplot(xlabel="trials", ylabel="best time, as a part of the default schedule's")
    for label, line in list(curves(own).items())[:_MOST_LINES]:
        axes.step(range(len(line)), line, where="post", label=label)
    axes.axhline(1.0, color="grey", linewidth=0.5)
    if own:
        axes.legend(fontsize="small")
    with told("the plot cannot be written", file):
        file.absolute().parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, format="png", dpi=120)
