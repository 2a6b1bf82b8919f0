"""``python -m compiler_service.compiler.opt -p fold-constants,fuse --print-between FILE``: run graph passes on a graph text file.

``FILE`` holds a module or a graph as :mod:`shared_ir.graph.text` prints it (``-`` reads standard input); the result goes to
standard output. A pass takes options in braces: ``-p 'fold-shapes,fuse{prologues=true,most_nodes=8}'``. Without ``-p`` the default
pipeline of the optimisation level runs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np

from compiler_service.compiler.graph_passes.pipelines import PASSES, default_pipeline
from compiler_service.compiler.graph_passes.rewriting.instruments import PrintBetween, Time, Verify
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Instrument, Pass, PassContext, Pipeline
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import Module
from shared_ir.graph.text import parse_graph, parse_module, print_graph, print_module

_PASS = re.compile(r"\s*([\w-]+)\s*(?:\{([^}]*)\})?\s*(?:,|$)")
_LARGE_CONSTANT = re.compile(r"const\s+%\S+:\s*(\w+)\[([\d,\s]*)\]\s*=\s*(sha256:[0-9a-f]{64})")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 the graph or a pass is at fault, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        sys.stdout.write(_run(options))
    except IngotError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m compiler_service.compiler.opt", description="Run graph passes on a text file."
    )
    parser.add_argument("file", help="graph text; - for standard input")
    parser.add_argument("-p", "--passes", help=f"comma-separated: {', '.join(PASSES)}")
    parser.add_argument("-O", "--opt-level", type=int, default=3, choices=range(4), help="default: 3")
    parser.add_argument(
        "--print-between", action="store_true", help="print the graph after every pass, to standard error"
    )
    parser.add_argument("--time", action="store_true", help="print seconds per pass, to standard error")
    parser.add_argument("--constants", type=Path, help=".npz file: digest -> array, for constants that are not printed")
    parser.add_argument("--invent-constants", action="store_true", help="make up constants that the text only names")
    return parser


def _run(options: argparse.Namespace) -> str:
    text = sys.stdin.read() if options.file == "-" else _read(Path(options.file))
    constants = _constants(options, text)
    is_module = re.match(r"(\s|#.*\n)*module\b", text) is not None
    module = parse_module(text, constants) if is_module else Module(parse_graph(text, constants))
    pipeline = default_pipeline(options.opt_level) if options.passes is None else Pipeline(parse_passes(options.passes))
    timer = Time()
    instruments: list[Instrument] = [Verify(), timer]
    if options.print_between:
        instruments.append(PrintBetween(sys.stderr.write))
    level = options.opt_level if options.passes is None else 3
    result = pipeline.run(module, PassContext(level, instruments=tuple(instruments)))
    if options.time:
        sys.stderr.write("".join(f"{seconds * 1e3:8.1f} ms  {name}\n" for name, seconds in timer.seconds))
    return print_module(result) if is_module else print_graph(result.graph)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise IngotError(ErrorCode.NOT_FOUND, f"cannot read {path}: {error.strerror}", field="FILE") from error


def _constants(options: argparse.Namespace, text: str) -> Mapping[str, np.ndarray]:
    constants: dict[str, np.ndarray] = {}
    if options.invent_constants:
        constants.update(invent_constants(text))
    if options.constants is not None:
        with np.load(options.constants, allow_pickle=False) as archive:
            constants.update((name, archive[name]) for name in archive.files)
    return constants


def invent_constants(text: str) -> dict[str, np.ndarray]:
    """Arrays of the right type for every digest in ``text``: 1, 2, 3, ... modulo 97, so that none looks uniform."""
    found = {}
    for dtype, dims, digest in _LARGE_CONSTANT.findall(text):
        shape = tuple(int(d) for d in dims.split(",") if d.strip())
        count = int(np.prod(shape, dtype=np.int64))
        found[digest] = (np.arange(1, count + 1) % 97).astype(DType(dtype).numpy).reshape(shape)
    return found


def parse_passes(text: str) -> tuple[Pass, ...]:
    """``fold-shapes,fuse{prologues=true}`` as passes.

    Raises:
        IngotError: INVALID_ARGUMENT for an unknown pass or option.
    """
    passes = []
    position = 0
    while position < len(text):
        found = _PASS.match(text, position)
        if found is None:
            raise _bad(
                "a list of passes is malformed", "name or name{option=value}, separated by commas", text[position:]
            )
        passes.append(_pass(found[1], found[2] or ""))
        position = found.end()
    return tuple(passes)


def _pass(name: str, options: str) -> Pass:
    if name not in PASSES:
        raise _bad("there is no such pass", ", ".join(PASSES), name)
    kind = PASSES[name]
    known = {f.name: f.default for f in fields(kind)}
    values: dict[str, int | float | bool] = {}
    for item in filter(None, (o.strip() for o in options.split(","))):
        key, _, value = item.partition("=")
        if key not in known:
            raise _bad(f"pass {name} has no such option", ", ".join(known) or "none", key)
        values[key] = _value(value, known[key], f"{name}.{key}")
    return kind(**values)


def _value(text: str, default: object, where: str) -> int | float | bool:
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise _bad(f"{where} is no truth value", "true or false", text)
        return text == "true"
    try:
        return float(text) if isinstance(default, float) else int(text)
    except ValueError as error:
        raise _bad(f"{where} is no number", "a number", text) from error


def _bad(message: str, expected: str, received: str) -> IngotError:
    return IngotError(ErrorCode.INVALID_ARGUMENT, message, field="passes", expected=expected, received=received)


if __name__ == "__main__":
    sys.exit(main())
