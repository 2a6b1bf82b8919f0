"""Progress bars of uploads and jobs."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ingot.cli.output import Output
from ingot.records import JobEvent


class ProgressBars:
    """A bar for each thing that advances; shows nothing where nobody would see it."""

    def __init__(self, output: Output) -> None:
        self._progress = Progress(
            TextColumn("{task.fields[title]}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[stage]}", markup=False),
            TextColumn("{task.fields[message]}", style="dim", markup=False),
            TimeElapsedColumn(),
            console=output.err,
            disable=not output.shows_progress,
        )
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def upload(self, name: str, sent: int, total: int) -> None:
        """Called by :meth:`ingot.Client.upload`; bars count kilobytes."""
        self.show(f"upload {name}", "kB", sent // 1000, max(1, total // 1000))

    def stage(self, stage: str, done: int, total: int, message: str = "") -> None:
        """Called by :func:`ingot.compile`."""
        self.show("compile", stage, done, max(1, total), message)

    def event(self, event: JobEvent) -> None:
        """Something that :meth:`ingot.Client.watch` yielded."""
        if event.progress is not None:
            step = event.progress
            self.show(f"compile {event.target}".strip(), step.stage, step.done, max(1, step.total), step.message)
        elif event.log is not None and event.log.level in ("WARNING", "ERROR"):
            self._progress.console.print(event.log.text, style="yellow", highlight=False, markup=False)

    def show(self, title: str, stage: str, done: int, total: int, message: str = "") -> None:
        if title not in self._bars:
            self._bars[title] = self._progress.add_task("", title=title, stage=stage, message=message, total=total)
        self._progress.update(self._bars[title], completed=done, total=total, stage=stage, message=message)
