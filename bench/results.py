"""Write ``bench/RESULTS.md``: ``python -m bench.results --models ZOO REAL``.

Runs :mod:`bench.peers` over all models at every thread count, then :mod:`bench.roofline` over the models where Ingot's
lead is smallest and those named by ``--roofline``. Everything measured is kept as JSON beside the page. The machine should
be idle: the page says what its load was. ``python -m bench.results --recount PAGE`` measures nothing: it writes the headline and the
closing lines of a page anew, out of the JSON beside it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.headline import headline, threads_text
from bench.inputs import add_models, parse_shape
from bench.machine import Machine, describe_machine
from bench.measurement import ENGINES, OPENVINO_DEFAULT, Settings
from bench.peaks import Peaks
from bench.peers import compare_models
from bench.report import HEADER, Report, markdown_table, rows
from bench.roofline import HEADER as ROOFLINE_HEADER
from bench.roofline import Roofline, draw, measure_rooflines, peaks_line
from bench.roofline import rows as roofline_rows
from bench.serving_page import kept
from bench.stored import read_reports
from shared_ir.storage.files import write_atomically

_PAGE = Path(__file__).parent / "RESULTS.md"
_ALWAYS = ("resnet50", "bert_base_seq128")
_CLOSEST = 3
_KERNELS = 12
_MACHINE = "## Machine"
_CLOSING = re.compile(r"^`geomean: .*`$", re.MULTILINE)

_HOW = """\
Latency of one inference in ms: the median over rounds of the median of each round, with half the distance between the rounds'
quartiles. The engines take turns, each in a process of its own, and only one computes at a time; same seeded float32
inputs, shapes fixed when the model is loaded. `x` columns are the peer's latency over Ingot's: above 1 Ingot is faster.
`difference` is Ingot's largest deviation from the same model in double precision (the reference implementation of the `onnx`
package), relative to the largest element of the output, beside that of ONNX Runtime; `winograd` counts the kernels that filter by
Winograd's method and `strassen` those that multiply by Strassen's: both round more than plain sums do. `compile s` is a cold
`ingot.compile` in a fresh process, `peak MB` its memory with all child processes, `MB` the artifact."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.recount is not None:
        recount(options.recount)
        return 0
    return measure(options)


def recount(path: Path) -> None:
    """A page and the JSON beside it, with what is stored there counted as it is counted now."""
    folder, text = path.parent / "results", path.read_text()
    reports = read_reports(folder)
    write_atomically(path, recounted(text, reports).encode())
    for report in reports:
        write_atomically(folder / f"peers-{report.threads}.json", report.to_json().encode())


def measure(options: argparse.Namespace) -> int:
    """Everything anew, as JSON, plots and the page."""
    console = Console(stderr=True, highlight=False)
    models, shapes = options.models, dict(options.shape)
    machine = describe_machine()
    folder = options.out.parent / "results"
    folder.mkdir(parents=True, exist_ok=True)

    def say(text: str) -> None:
        console.print(text, style="dim", soft_wrap=True)

    reports = []
    for threads in options.threads:
        settings = Settings(
            (*ENGINES, OPENVINO_DEFAULT), threads, options.rounds, slice_seconds=options.slice, shapes=shapes
        )
        report = compare_models(models, settings, machine, say)
        write_atomically(folder / f"peers-{threads}.json", report.to_json().encode())
        reports.append(report)
    names = (*options.roofline, *_ALWAYS, *closest(reports[0], _CLOSEST))
    chosen = [path for path in models if path.stem in names]
    peaks, rooflines = measure_rooflines(chosen, 1, shapes, say)
    replace_plots(folder, rooflines, peaks)
    write_atomically(options.out, kept(page(machine, reports, peaks, rooflines), folder).encode())
    for report in reports:
        print(report.closing_line())
    return int(any(r.ours_failed for r in reports))


def closest(report: Report, count: int) -> tuple[str, ...]:
    """The models where the fastest peer comes closest to Ingot."""
    known = [(m.best_ratio, m.model) for m in report.models if m.best_ratio is not None]
    return tuple(model for _, model in sorted(known)[:count])


def replace_plots(folder: Path, rooflines: Sequence[Roofline], peaks: Peaks) -> None:
    """A plot of each roofline in ``folder``, in the place of those of earlier runs."""
    for plot in folder.glob("roofline-*.png"):
        plot.unlink()
    for roofline in rooflines:
        draw(roofline, peaks, folder / f"roofline-{roofline.model}.png")


def page(machine: Machine, reports: Sequence[Report], peaks: Peaks, rooflines: Sequence[Roofline]) -> str:
    """The whole of RESULTS.md."""
    lines = [*_opening(reports), _MACHINE, ""]
    lines += [f"- {line}" for line in machine.lines()]
    lines += ["", "## Against ONNX Runtime and OpenVINO", "", _HOW, ""]
    for report in reports:
        lines += _comparison(report)
    lines += ["## Against the machine", "", f"Measured roofs, {peaks_line(peaks)}.", ""]
    lines += [
        "`reached` is the share of the bound: arithmetic at the peak, or bytes moved at least once at the bandwidth of the level",
        "that they fit in. Times are of all launches of a kernel in one run, each repeated where it stands by the model's own",
        "library: data and weights are then in the caches as far as they fit, while in the tables above weights arrive from memory.",
        "Inputs begin where cache lines do, as the data behind the roofs does; in the tables above they lie where numpy puts them.",
        "",
    ]
    for roofline in rooflines:
        lines += [f"### {roofline.model}", "", roofline.summary() + ".", ""]
        lines += [markdown_table(ROOFLINE_HEADER, roofline_rows(roofline, _KERNELS))]
        lines += [f"![roofline of {roofline.model}](results/roofline-{roofline.model}.png)", ""]
    return "\n".join(lines).rstrip() + "\n"


def recounted(text: str, reports: Sequence[Report]) -> str:
    """A page whose headline and closing lines are what ``reports``, of which it was written, come to."""
    _, machine, rest = text.partition(f"{_MACHINE}\n")
    lines = iter([f"`{report.closing_line()}`" for report in reports])
    body = _CLOSING.sub(lambda _: next(lines), machine + rest)
    return "\n".join(_opening(reports)) + "\n" + body


def _opening(reports: Sequence[Report]) -> list[str]:
    return ["# Results", "", "Written by `python -m bench.results`; do not edit.", "", *headline(reports), ""]


def _comparison(report: Report) -> list[str]:
    lines = [f"### {threads_text(report)}, {report.rounds} rounds", ""]
    lines += [markdown_table(HEADER, rows(report)), f"`{report.closing_line()}`", ""]
    failures = report.failures()
    return lines + [f"- {line}" for line in failures] + [""] * bool(failures)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.results", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    add_models(what)
    what.add_argument("--recount", type=Path, metavar="PAGE", help="measure nothing; count again what is stored")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="thread counts (default 1 2)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--slice", type=float, default=0.25, metavar="SECONDS", help="length of a turn")
    parser.add_argument("--shape", type=parse_shape, action="append", default=[], metavar="NAME=DIMS")
    parser.add_argument("--roofline", nargs="*", default=[], metavar="MODEL", help="further models to profile")
    parser.add_argument("--out", type=Path, default=_PAGE, help="the page (default bench/RESULTS.md)")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
