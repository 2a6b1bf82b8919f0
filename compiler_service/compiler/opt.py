"""``python -m compiler_service.compiler.opt -p fold-constants,fuse --print-between FILE``: run passes on a text file.

``FILE`` (``-`` reads standard input) holds a module or a graph as :mod:`shared_ir.graph.text` prints it, or a loop function as
:mod:`compiler_service.compiler.loop_ir.text` does; of a module of several functions, its graphs go through the passes. The
result goes to standard output. ``-p`` names passes of graphs, which take options in braces,
``-p 'fold-shapes,fuse{prologues=true,most_nodes=8}'``, or passes of loops, which have none.

Without ``-p`` a graph goes through the default pipeline of the optimisation level, for no target or for ``--target NAME`` as
``ingot targets`` lists them, and a loop function through all passes of loops. ``--print-pipeline`` prints what would run, in the
form that ``-p`` reads.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import re
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.graph_passes.pipeline_text import parse_pipeline
from compiler_service.compiler.graph_passes.pipelines import PASSES, default_pipeline
from compiler_service.compiler.graph_passes.rewriting.instruments import PrintBetween, Time, Verify
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Instrument, PassContext, Pipeline
from compiler_service.compiler.loop_ir.ir import Function
from compiler_service.compiler.loop_ir.parse import parse_function
from compiler_service.compiler.loop_ir.passes import LOOP_PASSES
from compiler_service.compiler.loop_ir.pipeline import FLAT_CODE, LoopFact, LoopPass, LoopPipeline
from compiler_service.compiler.loop_ir.text import print_function
from compiler_service.compiler.loop_ir.verify import verify
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.text import parse_graph, parse_graphs, parse_module, print_graph, print_interface
from shared_ir.machine.target import resolve_target
from shared_ir.numerals import whole_number

_LARGE_CONSTANT = re.compile(r"(?:const|default)\s+%\S+:\s*(\w+)\[([\d,\s]*)\]\s*=\s*(sha256:[0-9a-f]{64})")
_MODULE = re.compile(r"(\s|#.*\n)*module\b")
_FUNCTION = re.compile(r"(\s|#.*\n)*function\b")
_MOST_INVENTED_BYTES = 1 << 32
_HIGHEST_LEVEL = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 the text or a pass is at fault, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # whatever the locale
    try:
        text = _read(options.file)
        is_loops = _is_loops(options, text)
    except IngotError as error:
        return _failed(error, 1)
    try:
        passes = _loop_passes(options) if is_loops else _pipeline(options)
    except IngotError as error:
        return _failed(error, 2)
    if options.print_pipeline:
        return _written(f"{passes}\n")
    try:
        printed = (
            _run_graph(options, text, passes) if isinstance(passes, Pipeline) else _run_loops(options, text, passes)
        )
    except IngotError as error:
        return _failed(error, 1)
    return _written(printed)


def _written(text: str) -> int:
    """The exit status after ``text`` went to standard output, or could not."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to be flushed at exit
        if not isinstance(error, BrokenPipeError):  # who reads no further has seen enough
            sys.stderr.write(f"cannot write the result: {error.strerror}\n")
        return 1
    return 0


def _failed(error: IngotError, status: int) -> int:
    sys.stderr.write(f"{error}\n")
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m compiler_service.compiler.opt",
        description="Run passes on the text of a graph or of a loop function.",
    )
    parser.add_argument("file", nargs="?", help="graph or loop IR text; - for standard input")
    parser.add_argument(
        "-p",
        "--passes",
        help=f"of graphs: {', '.join(PASSES)}; of loops: {', '.join(item.name for item in LOOP_PASSES)}",
    )
    parser.add_argument("-O", "--opt-level", type=int, choices=range(_HIGHEST_LEVEL + 1), help="default: 3")
    parser.add_argument("--target", help="whose default pipeline runs; default: one core without special instructions")
    parser.add_argument("--no-winograd", action="store_true", help="the pipeline of a compilation with this option")
    parser.add_argument("--print-pipeline", action="store_true", help="print the passes that would run, and stop")
    parser.add_argument(
        "--print-between", action="store_true", help="print the text after every pass, to standard error"
    )
    parser.add_argument("--time", action="store_true", help="print seconds per pass, to standard error")
    parser.add_argument("--constants", type=Path, help=".npz file: digest -> array, for constants that are not printed")
    parser.add_argument("--invent-constants", action="store_true", help="make up constants that the text only names")
    return parser


# -- which passes


def _is_loops(options: argparse.Namespace, text: str) -> bool:
    """Whether the passes are those of loops: the text says so, or, where there is none, the first pass."""
    if options.file is not None:
        return _FUNCTION.match(text) is not None
    first = (options.passes or "").partition(",")[0].strip()
    return first in {item.name for item in LOOP_PASSES}


def _pipeline(options: argparse.Namespace) -> Pipeline:
    """The passes of a graph that are asked for."""
    if options.file is None and not options.print_pipeline:
        raise _usage("there is nothing to run passes on", "FILE, or --print-pipeline", "neither")
    if options.passes is not None:
        _refuse(options, ("opt_level", "target", "no_winograd"), "with -p, which says itself what runs")
        return parse_pipeline(options.passes)
    level = _HIGHEST_LEVEL if options.opt_level is None else options.opt_level
    target = None if options.target is None else resolve_target(options.target, host_target)
    filters = target is not None and level == _HIGHEST_LEVEL and not options.no_winograd
    return default_pipeline(level, target, filters=filters)


def _loop_passes(options: argparse.Namespace) -> LoopPipeline:
    """The passes of loops that are asked for."""
    known = {item.name: item for item in LOOP_PASSES}
    graph_options = ("opt_level", "target", "no_winograd", "constants", "invent_constants")
    _refuse(options, graph_options, "with passes of loops, which depend on no target and have no level")
    if options.passes is None:
        return LoopPipeline(LOOP_PASSES)
    names = tuple(name.strip() for name in options.passes.split(","))
    for name in names:
        if name not in known:
            raise _usage("there is no such pass of loops", ", ".join(known), name or "nothing")
    return LoopPipeline(tuple(known[name] for name in names))


def _refuse(options: argparse.Namespace, names: Sequence[str], why: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and value is not False:
            flag = f"--{name.replace('_', '-')}"
            raise _usage(f"{flag} says nothing {why}", f"no {flag}", str(value))


def _usage(message: str, expected: str, received: str) -> IngotError:
    return IngotError(ErrorCode.INVALID_ARGUMENT, message, field="passes", expected=expected, received=received)


# -- running them


def _run_graph(options: argparse.Namespace, text: str, pipeline: Pipeline) -> str:
    constants = _constants(options, text)
    is_module = _MODULE.match(text) is not None
    interface, graphs, end = (
        parse_graphs(text, constants) if is_module else (None, (parse_graph(text, constants),), len(text))
    )
    if not graphs or (end < len(text) and _FUNCTION.match(text, end) is None):
        parse_module(text, constants)  # says what is wrong
    timer = Time()
    instruments: list[Instrument] = [Verify(), timer]
    if options.print_between:
        instruments.append(PrintBetween(sys.stderr.write))
    context = PassContext(_HIGHEST_LEVEL, instruments=tuple(instruments))
    printed = [print_graph(pipeline.run_graph(graph, context)) for graph in graphs]
    _show_times(options, timer)
    return "".join(("" if interface is None else print_interface(interface), *printed, text[end:]))


def _run_loops(options: argparse.Namespace, text: str, pipeline: LoopPipeline) -> str:
    function = parse_function(text)
    verify(function)
    watch = _LoopWatch(function, bool(options.print_between))
    function = pipeline.run(function, watch)
    _show_times(options, watch.timer)
    return f"{print_function(function)}\n"


class _LoopWatch:
    """Verifies, times and, where asked, prints what each pass of loops makes."""

    def __init__(self, function: Function, prints: bool) -> None:
        self.timer = Time()
        self._before, self._prints = function, prints
        self._given: frozenset[LoopFact] = frozenset()
        self._since = time.perf_counter()

    def __call__(self, item: LoopPass, function: Function) -> None:
        self.timer.seconds.append((item.name, time.perf_counter() - self._since))
        self._given |= item.gives
        verify(function, flat=self._given >= FLAT_CODE)
        if self._prints:
            is_same = function is self._before
            what, text = (": nothing changed", "") if is_same else ("", f"{print_function(function)}\n")
            sys.stderr.write(f"# {len(self.timer.seconds):02} {item.name}{what}\n{text}")
        self._before, self._since = function, time.perf_counter()


def _show_times(options: argparse.Namespace, timer: Time) -> None:
    if options.time:
        sys.stderr.write("".join(f"{seconds * 1e3:8.1f} ms  {name}\n" for name, seconds in timer.seconds))


def _read(file: str | None) -> str:
    if file is None:
        return ""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise IngotError(ErrorCode.NOT_FOUND, f"cannot read {file}: {error.strerror}", field="FILE") from error
    except UnicodeDecodeError as error:
        raise IngotError(ErrorCode.INVALID_ARGUMENT, f"{file} is no text: {error}", field="FILE") from error


def _constants(options: argparse.Namespace, text: str) -> Mapping[str, np.ndarray]:
    constants: dict[str, np.ndarray] = {}
    if options.invent_constants:
        constants.update(invent_constants(text))
    if options.constants is not None:
        try:
            with np.load(options.constants, allow_pickle=False) as archive:
                constants.update((name, archive[name]) for name in archive.files)
        except (OSError, EOFError, ValueError, AttributeError, zipfile.BadZipFile) as error:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"cannot read constants from {options.constants}: {error}",
                field="--constants",
                expected="an .npz file as numpy.savez writes it",
                received=str(options.constants),
            ) from error
    return constants


def invent_constants(text: str) -> dict[str, np.ndarray]:
    """Arrays of the right type for every digest in ``text``: 1, 2, 3, ... modulo 97, so that none looks uniform."""
    found = {}
    for name, dims, digest in _LARGE_CONSTANT.findall(text):
        extents = [whole_number(d.strip()) for d in dims.split(",") if d.strip()]
        shape = tuple(d for d in extents if d is not None)
        if len(shape) < len(extents) or name not in set(DType) or DType(name) is DType.STRING:
            continue  # refused where it is read
        dtype, count = storage_dtype(DType(name)), math.prod(shape)
        if count * dtype.itemsize > _MOST_INVENTED_BYTES:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT, "a constant is too large to be made up", received=f"{name}[{dims}]"
            )
        found[digest] = np.resize((np.arange(1, 98) % 97).astype(dtype), shape)
    return found


if __name__ == "__main__":
    sys.exit(main())
