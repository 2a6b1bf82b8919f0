"""What a request costs beside arithmetic, here, in MLServer and in Triton: ``python -m bench.serving``.

All three serve the identity of FP32[1, 16], and the same clients ask them: over gRPC, over HTTP with binary data and with JSON. They take
turns in rounds; a server stands still while it is not its turn. Writes the section of ``RESULTS.md`` and ``results/serving.json`` beside
it. MLServer and Triton come from PyPI, into environments of their own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from bench.load.requests import BINARY, GRPC, JSON
from bench.load.window import LoadFailed, Turn, measure
from bench.machine import describe_machine
from bench.servers.peers import PREPARE
from bench.servers.processes import ServerFailed, ServerProcess
from bench.serving_page import STORED, Measured, ServingReport, Spread, replaced, section
from bench.timing import quantile
from shared_ir.storage.files import write_atomically

_HERE = Path(__file__).parent
CASES = ((GRPC, 1), (GRPC, 4), (GRPC, 16), (GRPC, 64), (BINARY, 4), (JSON, 4))
"""What is asked, by how many clients at once."""


def run_rounds(
    servers: Sequence[ServerProcess],
    cases: Sequence[tuple[str, int]],
    rounds: int,
    warm: float,
    seconds: float,
    say: Console,
) -> list[Measured]:
    """Every server in every case that it answers; ``say`` hears of every turn.

    Raises:
        LoadFailed: a request was not answered as it must be.
    """
    found: dict[tuple[str, int, str], list[Turn]] = {}
    for number in range(rounds):
        for kind, clients in cases:
            for server in servers:
                if kind not in server.kinds:
                    continue
                with server.turn():
                    turn = measure(server, kind, clients, warm, seconds)
                found.setdefault((kind, clients, server.name), []).append(turn)
                told = f"{turn.rate:.0f} req/s, {turn.cpu:.0f} us, p99 {turn.p99:.2f} ms"
                say.print(f"round {number + 1}: {kind}, {clients} clients, {server.name}: {told}", style="dim")
    return [summarize(*case, turns) for case, turns in found.items()]


def summarize(kind: str, clients: int, server: str, turns: Sequence[Turn]) -> Measured:
    """Medians over the rounds."""
    columns = {name: sorted(getattr(turn, name) for turn in turns) for name in ("rate", "cpu", "p50", "p99")}
    spreads = {
        name: Spread(statistics.median(values), quantile(values, 0.25), quantile(values, 0.75))
        for name, values in columns.items()
    }
    return Measured(kind, clients, server, **spreads)


def start(stack: ExitStack, names: Sequence[str], environments: Path) -> list[ServerProcess]:
    """Every server by name, standing still.

    Raises:
        ServerFailed: one of them does not start.
    """
    found = []
    for name in names:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"ingot-bench-{name}-")))
        server = ServerProcess(PREPARE[name](folder, environments))
        stack.callback(server.stop)
        server.pause()
        found.append(server)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when a server does not start or answers wrongly."""
    options = _parser().parse_args(arguments)
    console, machine = Console(stderr=True, highlight=False), describe_machine()
    for line in machine.lines():
        console.print(line, style="dim", soft_wrap=True)
    try:
        with ExitStack() as stack:
            servers = start(stack, options.servers, options.environments.absolute())
            measured = run_rounds(servers, options.cases, options.rounds, options.warm, options.seconds, console)
            versions: Mapping[str, str] = {server.name: server.version for server in servers}
    except (LoadFailed, ServerFailed) as error:
        console.print(str(error), style="red", soft_wrap=True)
        return 1
    report = ServingReport(machine.lines(), versions, options.rounds, options.seconds, tuple(measured))
    print("\n".join(section(report)))
    if options.out is not None:
        folder = options.out.parent / "results"
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / STORED, (json.dumps(report.to_dict(), indent=1) + "\n").encode())
        before = options.out.read_text() if options.out.exists() else "# Results\n"
        write_atomically(options.out, replaced(before, report).encode())
    return 0


def parse_case(text: str) -> tuple[str, int]:
    """``http json:4``. Raises argparse.ArgumentTypeError."""
    kind, _, clients = text.rpartition(":")
    if kind not in (GRPC, BINARY, JSON) or not (clients.isdecimal() and int(clients)):
        raise argparse.ArgumentTypeError(f"{text!r} is not KIND:CLIENTS with one of {GRPC}, {BINARY}, {JSON}")
    return kind, int(clients)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.serving", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--servers", nargs="+", choices=tuple(PREPARE), default=tuple(PREPARE))
    parser.add_argument("--cases", nargs="+", type=parse_case, default=CASES, metavar="KIND:CLIENTS")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a turn")
    parser.add_argument("--warm", type=float, default=2.0, metavar="SECONDS", help="before each turn")
    parser.add_argument(
        "--environments", type=Path, default=_HERE.parent / "build" / "serving", help="where MLServer and Triton are"
    )
    parser.add_argument("--out", type=Path, nargs="?", const=_HERE / "RESULTS.md", help="the page; without it, none")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
