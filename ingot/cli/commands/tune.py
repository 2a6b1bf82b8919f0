"""``ingot tune``: faster schedules for a model on this machine, or on a device."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.table import Table
from rich.text import Text

from ingot.cli.arguments import (
    add_common,
    add_credentials,
    add_in_process,
    add_model_options,
    credentials,
    model_options,
)
from ingot.cli.output import SUCCESS, Output
from ingot.cli.usage import Way
from ingot.cli.values import checked, number
from ingot.devices import PATIENCE_SECONDS, connect, tuner_key
from ingot.home import RECORDS_FILE, home_directory
from ingot.server_address import device_address
from ingot.sources import compiler
from ingot.target import chosen_target
from ingot.tuning import EFFORTS, MOST_SECONDS, TuningResult, tune
from ingot.tuning_plot import plot_trials, require_plots
from ingot.upload import model_upload

_MOST_ROWS = 15
"""Tasks that a screen shows, those that gain time at the moment first."""
_LABEL_CHARACTERS = 36
_MODEL = "home target effort seconds records again no_winograd no_strassen plot shape opt_level"
_HERE = Way.of("without --device", f"in_process {_MODEL}")
_ELSEWHERE = Way.of(
    "beside --device, where the model is read in this process",
    f"device token ca_certificate client_certificate client_key {_MODEL}",
)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("tune", help="find faster schedules for a model", description=__doc__)
    parser.add_argument("model", type=Path, help="an ONNX file")
    parser.add_argument("--target", default="host", help="default: host")
    effort = parser.add_mutually_exclusive_group()
    said = ", ".join(f"{name} ({seconds:g} s)" for name, seconds in EFFORTS.items())
    effort.add_argument("--effort", choices=tuple(EFFORTS), default="normal", help=f"{said}; default normal")
    effort.add_argument("--seconds", type=number(1, MOST_SECONDS), help="in place of an effort")
    parser.add_argument(
        "--records", type=Path, metavar="FILE", help=f"what is known (default: {RECORDS_FILE} in the home folder)"
    )
    parser.add_argument("--again", action="store_true", help="also take up what an earlier run has settled")
    parser.add_argument("--no-winograd", action="store_true", help="compute every convolution as a plain sum")
    parser.add_argument("--no-strassen", action="store_true", help="compute every product of matrices as a plain sum")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the cost of each task against trials")
    parser.add_argument(
        "--device",
        action="append",
        type=checked(device_address),
        metavar="HOST[:PORT]",
        help="measure on this machine of the target's kind, where `ingot device serve` runs; several share the work",
    )
    add_credentials(parser)
    add_in_process(parser)
    add_model_options(parser)
    add_common(parser)
    parser.set_defaults(run=run, way=_way)


def _way(arguments: argparse.Namespace) -> Way:
    return _ELSEWHERE if arguments.device else _HERE


@contextmanager
def _measurer(arguments: argparse.Namespace, progress: Any) -> Iterator[Any]:
    """What runs trials, where it is not this machine. It is not waited for longer than tuning itself may take."""
    if not arguments.device:
        yield None
        return
    home = home_directory(arguments.home)
    patience = min(PATIENCE_SECONDS, arguments.seconds or EFFORTS[arguments.effort])
    target, given = chosen_target(arguments.target), credentials(arguments)
    found = connect(arguments.device, target, tuner_key(home), patience=patience, progress=progress, **given)
    try:
        yield found
    finally:
        found.close()


def run(arguments: argparse.Namespace, output: Output) -> int:
    model_upload(arguments.model)  # raises: before anything else is done
    if arguments.plot:
        require_plots(arguments.plot)  # before anything is measured
    records = arguments.records or home_directory(arguments.home) / RECORDS_FILE
    options = model_options(arguments)
    options |= {"winograd": False} if arguments.no_winograd else {}
    options |= {"strassen": False} if arguments.no_strassen else {}
    with _display(output) as progress, _measurer(arguments, progress) as measurer:
        result = tune(
            arguments.model,
            arguments.target,
            seconds=arguments.seconds or arguments.effort,
            records=records,
            again=arguments.again,
            progress=progress,
            in_process=arguments.in_process,
            measurer=measurer,
            **options,
        )
    if arguments.plot:
        plot_trials(result, chosen_target(arguments.target), arguments.plot)
    _show(result, output)
    return SUCCESS


class TaskTable:
    """The tasks as a screen shows them, from the lines that a tuner says."""

    def __init__(self) -> None:
        self._tasks: dict[int, Any] = {}
        self._changed: dict[int, int] = {}
        self._said = ""
        self._left = 0
        self._count = 0

    def said(self, stage: str, done: int, total: int, message: str) -> None:
        """Take one report of the compiler in."""
        with compiler():
            from compiler_service.compiler.tune.watching import TaskProgress

        found = TaskProgress.parse(message) if stage == "tune" else None
        if found is None:
            self._said = f"{stage} {message}".strip()
            return
        self._count += 1
        self._tasks[found.number], self._changed[found.number] = found, self._count
        self._said, self._left = "", total - done

    def __rich__(self) -> Table | Text:
        if not self._tasks:
            return Text(self._said, style="dim")
        table = Table(
            title=f"{sum(t.trials for t in self._tasks.values())} trials, {self._left} s left", title_justify="left"
        )
        for name in ("task", "time", "trials", "default ms", "best ms", "gain"):
            table.add_column(name, justify="left" if name == "task" else "right")
        latest = sorted(self._tasks, key=lambda n: -self._changed[n])[:_MOST_ROWS]
        for task in (self._tasks[n] for n in sorted(latest)):
            cells = (f"{task.share:.1%}", str(task.trials), f"{task.default * 1e3:.4g}", f"{task.best * 1e3:.4g}")
            table.add_row(Text(task.label[:_LABEL_CHARACTERS]), *cells, f"{1 - task.best / task.default:.1%}")
        return table


@contextmanager
def _display(output: Output) -> Iterator[Any]:
    """Where reports of the compiler go: a table that is drawn anew, where somebody sees it."""
    if not output.shows_progress:
        yield None
        return
    table = TaskTable()
    with Live(table, console=output.err, refresh_per_second=4, transient=True):
        yield table.said


def _show(result: TuningResult, output: Output) -> None:
    gained = [task for task in result.tasks if task.seconds < task.default_seconds]
    rows = [
        (
            task.label[:_LABEL_CHARACTERS],
            f"{task.default_seconds * 1e3:.4g}",
            f"{task.seconds * 1e3:.4g}",
            f"{1 - task.seconds / task.default_seconds:.1%}",
            task.rule,
            _values(task.values),
        )
        for task in gained
    ]
    if rows:
        output.table(("task", ">default ms", ">tuned ms", ">gain", "rule", "decided otherwise"), rows)
    output.say(
        f"{result.trials} trials in {result.seconds:.0f} s, {len(gained)} of {len(result.tasks)} tasks faster; records in {result.records}"
    )
    if result.model is not None:
        output.say(
            f"the model: {result.model.default * 1e3:.4g} ms, tuned {result.model.tuned * 1e3:.4g} ms: "
            f"{result.model.speedup:.3f}x, noise {result.model.noise:.1%} (one thread, in turns)"
        )
    if result.dropped:
        output.note(f"{result.dropped} gains were given up, since the model as a whole was no faster with them")
    if result.left:
        output.note(
            f"left for another run, for want of time or since they cannot be measured here: {result.left} of the tasks"
        )
    elif not result.trials and (result.settled or not result.workloads):
        output.note("there is nothing to try: the model has no kernel with a schedule that was not tried")
    elif not result.trials:
        output.note("earlier runs have tuned every task; --again takes them up once more")
    output.document({**asdict(result), "records": str(result.records)})


def _values(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
