"""Ingot, ONNX Runtime and OpenVINO side by side: ``python -m bench.peers --models DIR_OR_FILES``.

Every engine has a process of its own and computes in float32, but for ``openvino-default``, which takes the precision it likes.
They take turns (ingot, onnxruntime, openvino, ingot, ...) on the
same seeded inputs; a process whose turn it is not is stopped. Latency is the median over rounds of the median of a round's
runs. Shapes and values that a model leaves open follow the rules of :mod:`bench.inputs`; every engine is told the
shapes when it compiles, unless ``--dynamic``. The last line is::

    geomean: X.XXx ort, Y.YYx openvino, Z.ZZx best-of-peers; worst: MODEL W.WWx

with the peer's latency over ours; files of one architecture (:mod:`bench.architectures`) count once. Outputs
are compared with those of the model in double precision, computed by the reference
implementation of the ``onnx`` package (with ONNX Runtime's where it cannot, and with ``--no-reference``). Engines that fail on
a model, or whose answer differs, are left out of its ratios and named before. The exit status is 1 when Ingot fails on a model
or its answer differs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from bench.accuracy import TOLERANCE
from bench.inputs import add_models, parse_shape
from bench.machine import Machine, describe_machine
from bench.measurement import ENGINES, OPENVINO_DEFAULT, Say, Settings, measure_model
from bench.report import Report, neighbour_table, screen_table
from shared_ir.storage.files import write_atomically

_BUSY = 0.3
_KNOWN = (*ENGINES, OPENVINO_DEFAULT)

T = TypeVar("T")


def compare_models(models: Sequence[Path], settings: Settings, machine: Machine, say: Say) -> Report:
    """Measure every model, one after the other."""
    results = tuple(measure_model(path, settings, say) for path in models)
    return Report(machine, settings.threads, settings.rounds, settings.dynamic, results)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    settings = Settings(
        engines=options.engines,
        threads=options.threads,
        rounds=options.rounds,
        slice_seconds=options.slice,
        shapes=dict(options.shape),
        values=dict(options.value),
        dynamic=options.dynamic,
        tolerance=options.tolerance,
        exact=options.exact,
        neighbour=options.neighbour,
    )
    console, notes = Console(), Console(stderr=True, highlight=False)
    machine = describe_machine()
    for line in machine.lines():
        console.print(line, highlight=False, soft_wrap=True)
    if machine.load > _BUSY:
        notes.print(
            f"load average {machine.load:.2f}: the machine is not idle, and the numbers will say so", style="yellow"
        )
    report = compare_models(
        options.models, settings, machine, lambda text: notes.print(text, style="dim", soft_wrap=True)
    )
    if options.json is not None:
        write_atomically(options.json, report.to_json().encode())
    # NOTE: a table never folds: where the terminal is narrower it runs on.
    Console(width=max(console.width, 185)).print(screen_table(report))
    if settings.neighbour:
        console.print(neighbour_table(report))
    for line in report.failures():
        console.print(line, style="red", highlight=False, soft_wrap=True, markup=False)
    print(report.closing_line())
    return int(report.ours_failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_models(parser, required=True)
    parser.add_argument("--threads", type=int, default=1, help="of one inference (default 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured to FILE")
    parser.add_argument(
        "--shape",
        type=_argument(parse_shape),
        action="append",
        default=[],
        metavar="NAME=DIMS",
        help="shape of an input, x=1,3,640,640; MODEL:x=... for one model only; passed over where it does not fit",
    )
    parser.add_argument(
        "--value", type=_argument(_value), action="append", default=[], metavar="NAME=NUMBER", help="fill an input"
    )
    parser.add_argument("--rounds", type=int, default=9, metavar="R", help="turns of every engine (default 9)")
    parser.add_argument("--slice", type=float, default=0.25, metavar="SECONDS", help="length of a turn (default 0.25)")
    parser.add_argument(
        "--engines", type=_argument(_engines), default=ENGINES, metavar="A,B", help=f"of {', '.join(_KNOWN)}"
    )
    parser.add_argument("--dynamic", action="store_true", help="compile for symbolic shapes where the model has them")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        help=f"largest difference that counts as the same answer (default {TOLERANCE:g}); of quantized models one step flips more",
    )
    parser.add_argument(
        "--no-reference", dest="exact", action="store_false", help="compare with ONNX Runtime, not in double precision"
    )
    parser.add_argument(
        "--neighbour", action="store_true", help="time everything beside a process that takes a core in bursts, too"
    )
    return parser


def _argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    """NOTE: argparse shows the text of this error only."""

    def checked(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked


def _value(text: str) -> tuple[str, float]:
    name, equals, number = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not of the form name=number")
    return name, float(number)


def _engines(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [n for n in names if n not in _KNOWN]
    if unknown:
        raise ValueError(f"there is no engine {unknown[0]!r}; there are {', '.join(_KNOWN)}")
    return names


if __name__ == "__main__":
    raise SystemExit(main())
