"""``ingot top``: what a runtime service is doing, look after look."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ingot.cli.arguments import add_common, add_service, make_endpoint
from ingot.cli.output import MOST_ROWS, SUCCESS, Output, size_text
from ingot.cli.values import number, whole
from ingot.endpoint import Endpoint
from ingot.scrapes import Row, Scrape, View, view
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.printable import some_of

_FRAME_LINES = 5
"""Of a screen, beside rows and notes: two above, the names of the columns, how many rows there are besides, and the cursor's."""
_NAME_CHARACTERS = 24
"""Characters of a model's name that are shown."""
_LONGEST_SECONDS = 5.0
"""The last bound of the histograms: of what took longer nothing else is known."""
_COLUMNS = ("model", ">version", ">req/s", ">err/s", ">p50", ">p99", ">batch", ">queue", ">weights")
_ORDERS: dict[str, Callable[[Row], float]] = {
    "rate": lambda row: -(row.requests_per_second or 0.0),
    "p99": lambda row: -(row.p99_seconds or 0.0),
    "queue": lambda row: -row.pending,
    "memory": lambda row: -row.weights_bytes,
    "name": lambda row: 0,
}
_AWAY = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.RESOURCE_EXHAUSTED})
"""What a server that has answered before may come back from."""
_READY = "ready"


def add_parser(commands: Any) -> None:
    shown = "what a runtime service is doing: models, rate, latency, batches, queue, memory"
    parser = commands.add_parser("top", help=shown, description=__doc__)
    parser.add_argument("--once", action="store_true", help="look for one interval, print it, and end")
    parser.add_argument(
        "--interval", type=number(0.1, 3600), default=2.0, metavar="SECONDS", help="between two looks (default 2)"
    )
    parser.add_argument("--sort", choices=tuple(_ORDERS), default="rate", help="what comes first (default: rate)")
    parser.add_argument("--limit", type=whole(1), help="rows at most (default: what fits a screen; all with --json)")
    add_service(parser)
    add_common(parser)
    parser.set_defaults(run=run, http=True)


def run(arguments: argparse.Namespace, output: Output) -> int:
    endpoint = make_endpoint(arguments)
    if arguments.once:
        before = _look(endpoint)
        time.sleep(arguments.interval)
        seen = _ordered(view(_look(endpoint), before), arguments)
        output.document(_document(endpoint, seen, arguments.limit))
        output.show(_screen(endpoint, seen, _most(arguments, seen, None)))
        return SUCCESS
    with suppress(KeyboardInterrupt):  # the way to leave
        _watch(endpoint, arguments, output)
    return SUCCESS


def _watch(endpoint: Endpoint, arguments: argparse.Namespace, output: Output) -> None:
    """Raises IngotError: the server has never answered, or is none."""
    last = _look(endpoint)
    seen = _ordered(view(last, None), arguments)
    with _shown(output) as show:
        while True:
            output.line(_document(endpoint, seen, arguments.limit))
            height = output.out.height if output.out.is_terminal else None
            screen = _screen(endpoint, seen, _most(arguments, seen, height))
            show(screen)
            time.sleep(arguments.interval)
            while (now := _look_again(endpoint, output)) is None:
                away = Text(f"{endpoint.address} does not answer. This is what it did before:", "bold red")
                show(Group(away, screen))
                time.sleep(arguments.interval)
            seen, last = _ordered(view(now, last), arguments), now


def _look(endpoint: Endpoint) -> Scrape:
    return Scrape.of(endpoint.metrics(), time.monotonic())


def _look_again(endpoint: Endpoint, output: Output) -> Scrape | None:
    """None while the server is away."""
    try:
        return _look(endpoint)
    except IngotError as error:
        if error.code not in _AWAY:
            raise
        output.line({"address": endpoint.address, "error": error.to_dict()})
        return None


@contextmanager
def _shown(output: Output) -> Iterator[Callable[[RenderableType], None]]:
    """Where views go: each takes the place of the one before on a terminal, and stands below it elsewhere."""
    if output.json:
        yield lambda screen: None
    elif not output.out.is_terminal:
        yield output.show
    else:
        with Live(console=output.out, screen=True, auto_refresh=False) as live:
            yield lambda screen: live.update(screen, refresh=True)


def _most(arguments: argparse.Namespace, seen: View, height: int | None) -> int:
    """Rows of a table: what was asked for, else what fits a screen of so many lines."""
    if height is None:
        return arguments.limit or MOST_ROWS
    fitting = max(1, height - _FRAME_LINES - len(list(_notes(seen, 0))))
    return min(arguments.limit or fitting, fitting)


def _ordered(seen: View, arguments: argparse.Namespace) -> View:
    order = _ORDERS[arguments.sort]
    return replace(seen, rows=tuple(sorted(seen.rows, key=order)))


def _document(endpoint: Endpoint, seen: View, most: int | None) -> dict[str, Any]:
    return {"address": endpoint.address, **asdict(replace(seen, rows=seen.rows[:most]))}


def _screen(endpoint: Endpoint, seen: View, most: int) -> RenderableType:
    """No wider than 80 columns."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for column in _COLUMNS:
        justify: Any = "right" if column.startswith(">") else "left"
        table.add_column(
            column.removeprefix(">"), justify=justify, no_wrap=True, max_width=_NAME_CHARACTERS, overflow="ellipsis"
        )
    shown = [row for row in seen.rows if row.state == _READY]
    for row in shown[:most]:
        table.add_row(*map(Text, _cells(row)))
    notes = [Text(note, no_wrap=True, overflow="ellipsis") for note in _notes(seen, len(shown) - most)]
    return Group(Text(_headline(endpoint, seen)), Text(), table, *notes)


def _headline(endpoint: Endpoint, seen: View) -> str:
    rate = "looking" if seen.requests_per_second is None else f"{_amount(seen.requests_per_second)} req/s"
    state = _READY if seen.ready else "not ready"
    return (
        f"{endpoint.address}: {state}, {rate}, {seen.in_flight} in flight, {size_text(seen.resident_bytes)} of memory"
    )


def _notes(seen: View, hidden: int) -> Iterator[str]:
    if hidden > 0:
        yield f"... and {hidden} more"
    for state in sorted({row.state for row in seen.rows} - {_READY}):
        named = [f"{row.model} {row.version.lstrip('0')}".strip() for row in seen.rows if row.state == state]
        yield f"{state or 'unknown'}: {some_of(named)}"
    refused = sorted(seen.refused_per_second.items(), key=lambda item: -item[1])
    if refused:
        rates = [f"{model or 'models not served here'} {_amount(rate)}/s" for model, rate in refused]
        yield f"refused: {some_of(rates)}"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.model,
        row.version,
        _amount(row.requests_per_second),
        _amount(row.failures_per_second),
        _time(row.p50_seconds),
        _time(row.p99_seconds),
        _amount(row.rows_per_execution),
        str(row.pending),
        size_text(row.weights_bytes),
    )


def _amount(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 or value == 0 else f"{value:.1f}"


def _time(seconds: float | None) -> str:
    """Three digits: ``870 us``, ``4.21 ms``, ``> 5 s``."""
    if seconds is None:
        return "-"
    if seconds >= _LONGEST_SECONDS:
        return f"> {_LONGEST_SECONDS:.0f} s"
    units = (("us", seconds * 1e6), ("ms", seconds * 1e3), ("s", seconds))
    unit, amount = next(each for each in units if each[1] < 999.5)
    digits = 2 - math.floor(math.log10(amount)) if amount > 0 else 0
    return f"{amount:.{min(max(digits, 0), 2)}f} {unit}"
