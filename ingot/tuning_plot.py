"""Cost against trials, drawn."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ingot.record_files import read_records
from ingot.sources import compiler
from ingot.tuning import TuningResult, is_about
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.extras import needing
from shared_ir.machine.target import Target
from shared_ir.storage.faults import file_error, require_writable, told

if TYPE_CHECKING:
    from compiler_service.compiler.tune.records.record import TrialRecord

_SUFFIX = ".png"
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
            INVALID_ARGUMENT, the file is a folder, or its name does not end in ``.png``.
    """
    if file.suffix.lower() != _SUFFIX and not file.is_dir():
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "plots are PNG files, and the name is one of something else",
            field=str(file),
            expected=f"a name that ends in {_SUFFIX}",
            received=file.suffix or "no ending",
        )
    with needing("tune", "what draws"):
        import matplotlib  # noqa: F401
    if file.is_dir():
        raise file_error(IsADirectoryError(errno.EISDIR, "is a directory"), "the plot cannot be written", file)
    require_writable(file.absolute().parent, "the plot")


def plot_trials(result: TuningResult, target: Target, file: Path) -> None:
    """Write a PNG of what is on record of the tasks of ``result`` for ``target``, by this version of the compiler. It has no lines where
    nothing was tried.

    Raises:
        IngotError: UNAVAILABLE, matplotlib is not installed; INVALID_ARGUMENT, the file cannot be written.
    """
    with compiler():
        from compiler_service.compiler.version import compiler_version

    require_plots(file)
    from matplotlib.figure import Figure

    made, version = str(target), compiler_version()
    own = [
        r for r in read_records(result.records)[0] if is_about(r, result) and (r.target, r.compiler) == (made, version)
    ]
    figure = Figure(figsize=(10, 6), layout="constrained")
    axes = figure.add_subplot(xlabel="trials", ylabel="best time, as a part of the default schedule's")
    lines = list(curves(own).items())[:_MOST_LINES]
    for label, line in lines:
        axes.step(range(len(line)), line, where="post", label=label)
    axes.axhline(1.0, color="grey", linewidth=0.5)
    if lines:
        axes.legend(fontsize="small")
    with told("the plot cannot be written", file):
        file.absolute().parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, format="png", dpi=120)
