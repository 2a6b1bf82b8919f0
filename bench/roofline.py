"""Every kernel against the machine: ``python -m bench.roofline --models FILES``.

Measures the peak of fused multiply-adds and the bandwidths of caches and memory, compiles each model for this machine, profiles
it launch by launch with the graph executor, and says of every kernel what bounds it, how much of the bound it reaches and how
much time is lost. Without ``--models`` only the machine's peaks are shown. Each launch is repeated where it stands (``--warm``), so
that its data is in the cache whose bandwidth it is compared with; ``--warm 0`` times the launch of the run alone, which finds
its data where the kernel before has left it. The model's own library repeats a launch and reads the clock: a time holds what the
model pays for a launch in a run, waking its threads included, and nothing of Python. A launch in place goes on from its own
result, whose values differ from those of the run. Inputs begin where cache lines do, like all other data of a run and that of
the roofs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import ingot
from bench.bounds import KernelBound, bounds, shares
from bench.inputs import add_models, choose_shapes, make_inputs, parse_shape, read_inputs
from bench.machine import describe_machine
from bench.measurement import Say
from bench.peaks import Peaks, measure_peaks
from bench.plot import draw_roofline
from runtime_service.arrays import aligned_copy
from runtime_service.executors.executor import LaunchProfile
from shared_ir.errors import IngotError
from shared_ir.storage.files import write_atomically

_REPEAT = 15
_WARM = 5


@dataclass(frozen=True)
class Roofline:
    """One model; ``kernels`` with the one that loses the most time first."""

    model: str
    kernels: tuple[KernelBound, ...]

    @property
    def seconds(self) -> float:
        return sum(k.seconds for k in self.kernels)

    def summary(self) -> str:
        """One line: each bound's share of the time, and what its kernels reach together."""
        parts = [
            f"{s.bound} {s.seconds / self.seconds:.0%} of the time at {s.reached:.0%}" for s in shares(self.kernels)
        ]
        least = sum(k.least_seconds for k in self.kernels)
        return f"{self.model}: {self.seconds * 1e3:.2f} ms, bound {least * 1e3:.2f} ms; " + "; ".join(parts)


def measure_rooflines(
    models: Sequence[Path],
    threads: int,
    shapes: dict[str, tuple[int, ...]],
    say: Say,
    repeat: int = _REPEAT,
    warm: int = _WARM,
) -> tuple[Peaks, tuple[Roofline, ...]]:
    """The roofs of this machine and a roofline per model that Ingot compiles and runs; ``say`` hears of the others.

    Roofs are measured before and after every model, so that a busy moment does not lower them.
    """
    peaks, profiles = measure_peaks(threads), {}
    for path in models:
        say(f"{path.stem}: roofline")
        try:
            profiles[path.stem] = profile_launches(path, threads, shapes, repeat, warm)
        except IngotError as error:
            say(f"{path.stem}: {error}")
        peaks = peaks.or_higher(measure_peaks(threads))
    return peaks, tuple(Roofline(name, bounds(profile, peaks)) for name, profile in profiles.items())


def profile_launches(
    path: Path, threads: int, shapes: dict[str, tuple[int, ...]], repeat: int = _REPEAT, warm: int = _WARM
) -> tuple[LaunchProfile, ...]:
    """Compile, load, profile.

    Raises:
        IngotError: the model cannot be compiled or run.
    """
    specs = read_inputs(path)
    chosen = choose_shapes(path.stem, specs, shapes)
    with ingot.load(ingot.compile(path, shapes=chosen), threads=threads) as model:
        feeds = {name: aligned_copy(array) for name, array in make_inputs(specs, chosen).items()}
        return tuple(model.profile(feeds, repeat, warm))


HEADER = ("kernel", "launches", "us", "%", "GFLOP/s", "GB/s", "bound", "reached", "lost us", "computes", "for")

_TEXT = ("kernel", "bound", "computes", "for")


def rows(roofline: Roofline, limit: int | None = None) -> list[tuple[str, ...]]:
    """The cells under :data:`HEADER`: time and time lost are of all launches of the kernel."""
    return [_row(k, roofline.seconds) for k in roofline.kernels[:limit]]


def _row(kernel: KernelBound, total: float) -> tuple[str, ...]:
    return (
        kernel.kernel,
        str(kernel.launches),
        f"{kernel.seconds * 1e6:.1f}",
        f"{kernel.seconds / total:.1%}",
        f"{kernel.flops_per_second / 1e9:.1f}",
        f"{kernel.bytes_per_second / 1e9:.1f}",
        kernel.bound,
        f"{kernel.reached:.0%}",
        f"{kernel.lost_seconds * 1e6:.1f}",
        kernel.label,
        kernel.nodes[0] if kernel.nodes else "",
    )


def peaks_line(peaks: Peaks) -> str:
    """The roofs in one line."""
    levels = ", ".join(f"{n} {b.roof / 1e9:.0f} GB/s" for n, b in peaks.bandwidth.items())
    return f"{peaks.threads} thread{'s' * (peaks.threads != 1)}: {peaks.flops / 1e9:.0f} GFLOP/s fused multiply-add; {levels}"


def screen_table(roofline: Roofline, limit: int) -> Table:
    """For a terminal."""
    table = Table(title=roofline.summary())
    for name in HEADER:
        table.add_column(name, justify="left" if name in _TEXT else "right", no_wrap=True, max_width=34)
    for cells in rows(roofline, limit):
        table.add_row(*cells)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    console = Console()
    for line in describe_machine().lines():
        console.print(line, highlight=False, soft_wrap=True)

    def say(text: str) -> None:
        Console(stderr=True, highlight=False).print(text, style="dim", soft_wrap=True)

    models = options.models
    peaks, found = measure_rooflines(models, options.threads, dict(options.shape), say, options.repeat, options.warm)
    console.print(peaks_line(peaks), highlight=False, soft_wrap=True)
    for roofline in found:
        Console(width=max(console.width, 210)).print(screen_table(roofline, options.limit))
        if options.png is not None:
            draw_roofline(
                png_path(options.png, roofline.model, len(models)), roofline.summary(), roofline.kernels, peaks
            )
    if options.json is not None:
        data = {"peaks": asdict(peaks) | {"capacity": None}, "models": [asdict(r) for r in found]}
        write_atomically(options.json, (json.dumps(data, indent=1) + "\n").encode())
    return int(len(found) < len(models))


def draw(roofline: Roofline, peaks: Peaks, path: Path) -> None:
    title = f"{roofline.model}, {peaks.threads} thread{'s' * (peaks.threads != 1)}, {roofline.seconds * 1e3:.2f} ms"
    draw_roofline(path, title, roofline.kernels, peaks)


def png_path(path: Path, model: str, models: int) -> Path:
    """``path`` for one model; for several, its name with the model's."""
    return path if models == 1 else path.with_stem(f"{path.stem}-{model}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.roofline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_models(parser, default=[])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw the roofline plot; one file per model")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--shape", type=parse_shape, action="append", default=[], metavar="NAME=DIMS")
    parser.add_argument("--repeat", type=int, default=_REPEAT, help=f"profiled runs (default {_REPEAT})")
    parser.add_argument("--warm", type=int, default=_WARM, help=f"further launches that are timed (default {_WARM})")
    parser.add_argument("--limit", type=int, default=25, help="kernels to list per model (default 25)")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
