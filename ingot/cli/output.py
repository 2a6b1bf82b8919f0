"""What a command prints: tables and sentences for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from ingot.records import to_json
from shared_ir.errors import Blame, IngotError
from shared_ir.printable import printable, printable_json

MOST_ROWS = 20
"""Of a table that fits a screen."""
_NEVER_FOLDED = 16
"""Characters of a cell that stay on a line: ids, names, numbers."""
SUCCESS, USER_ERROR, USAGE_ERROR, SERVICE_ERROR, INTERRUPTED = 0, 1, 2, 3, 130


class PrintableConsole(Console):
    """Names and messages come from models and services: of all that is printed, only what rich adds is obeyed by a terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


@dataclass(frozen=True)
class Output:
    """Results go to stdout; errors, notes and progress bars to stderr. With ``json`` stdout holds JSON alone."""

    json: bool = False
    out: Console = field(default_factory=PrintableConsole)
    err: Console = field(default_factory=lambda: PrintableConsole(stderr=True))

    @property
    def shows_progress(self) -> bool:
        return not self.json and self.err.is_terminal

    def document(self, value: Any) -> None:
        """One JSON document; nothing unless ``json``."""
        if self.json:
            print(_json(to_json(value), indent=2))

    def line(self, value: Any) -> None:
        """One line of JSON, for streams; nothing unless ``json``."""
        if self.json:
            print(_json(to_json(value)), flush=True)

    def say(self, text: str) -> None:
        """A result in words; nothing with ``json``."""
        if not self.json:
            self.out.print(escape(text), highlight=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Beside the result; nothing with ``json``."""
        if not self.json:
            self.err.print(escape(text), highlight=False, soft_wrap=True, style="dim")

    def show(self, renderable: RenderableType) -> None:
        """A result that is laid out already; nothing with ``json``."""
        if not self.json:
            self.out.print(renderable)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> None:
        """Columns that start with ``>`` are flush right; nothing with ``json``."""
        if self.json:
            return
        cells = [[printable(str(cell)) for cell in row] for row in rows]
        headers = [column.removeprefix(">") for column in columns]
        longest = [max(map(len, cells_of)) for cells_of in zip(headers, *cells, strict=True)]
        least = [min(length, _NEVER_FOLDED) for length in longest]
        fits = sum(least) + 2 * len(least) <= self.out.width
        table = Table(title=escape(title) or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
        for number, header in enumerate(headers):
            table.add_column(
                escape(header),
                justify="right" if columns[number].startswith(">") else "left",
                overflow="fold",
                min_width=least[number] if fits else None,
                max_width=max(least[number], self.out.width // 3) if number < len(headers) - 1 else None,
            )
        for row in cells:
            table.add_row(*map(escape, row))
        if not self.out.is_terminal:  # a pipe has no width: never cut a line
            for column in table.columns:
                column.max_width = None
            PrintableConsole(file=sys.stdout, width=500).print(table, soft_wrap=True)
        else:
            self.out.print(table)

    def some(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """As :meth:`table`, no longer than fits a screen."""
        self.table(columns, rows[:MOST_ROWS])
        if len(rows) > MOST_ROWS:
            self.say(f"... and {len(rows) - MOST_ROWS} more (--json has all)")

    def error(self, error: IngotError) -> int:
        """Say what went wrong; the exit status for it."""
        if self.json:
            print(_json({"error": error.to_dict()}), file=sys.stderr)
        else:
            self.err.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        return USER_ERROR if error.blame is Blame.USER else SERVICE_ERROR


def _json(value: Any, indent: int | None = None) -> str:
    return printable_json(json.dumps(value, indent=indent, ensure_ascii=False, default=str))


def size_text(size: int) -> str:
    """``46.6 MB``."""
    amount = float(size)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"
