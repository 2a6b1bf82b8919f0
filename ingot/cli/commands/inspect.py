"""``ingot inspect``: what is in a model, or in a folder of compiled ones."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ingot.cli.arguments import add_common, add_in_process
from ingot.cli.commands.models import check_here
from ingot.cli.output import SUCCESS, Output, size_text
from ingot.cli.usage import Way
from ingot.cli.values import once, pair, whole
from ingot.cli.verification import show_outputs, speed, verdict
from ingot.compiling import has_children
from ingot.home import home_directory
from ingot.records import Verification
from ingot.sources import compiler, model_source
from shared_ir.artifact.value import Manifest
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import dim_symbols, dim_text, dims_text, evaluate
from shared_ir.plan.program import Plan

_FOLDER = Way.of("for a folder of compiled models", "tag size home")
_FILE = Way.of("for a model that is not compiled", "graph in_process")
_MOST_TENSORS = 8
"""Inputs, and outputs, that a screen has room for."""
_MOST_TEXT = 160
"""Characters of a type or a formula."""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("inspect", help="look into a model or a compiled one", description=__doc__)
    parser.add_argument("path", type=Path, metavar="MODEL_OR_DIR")
    parser.add_argument("--tag", help="one version of the folder")
    parser.add_argument(
        "--size",
        action="append",
        type=pair(whole(0), "NAME=N"),
        default=[],
        metavar="NAME=N",
        help="size of a symbolic dim for which the memory of a compiled model is told; may be repeated",
    )
    parser.add_argument("--graph", action="store_true", help="print the imported graph as text")
    add_in_process(parser)
    add_common(parser)
    parser.set_defaults(run=run, way=lambda own: _FOLDER if own.path.is_dir() else _FILE)


def run(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.path.is_dir():
        return _inspect_directory(arguments, output)
    if arguments.graph:
        return _print_graph(arguments.path, output, in_process=arguments.in_process)
    report = check_here(arguments.path, {}, in_process=arguments.in_process)
    output.document(report)
    opsets = ", ".join(f"{domain} {version}" for domain, version in sorted(report.opsets.items()))
    output.say(f"{arguments.path}: {opsets}")
    for kind, found in (("input", report.inputs), ("output", report.outputs)):
        rows = [(t.name, t.dtype, _short(", ".join(t.shape))) for t in found]
        output.some((kind, "dtype", "shape"), rows)
    output.some(("operator", ">nodes"), sorted(report.operators.items(), key=lambda item: -item[1]))
    if not report.ok:
        output.say(f"{len(report.issues)} obstacles: see `ingot check {arguments.path}`")
    return SUCCESS


def _print_graph(path: Path, output: Output, *, in_process: bool) -> int:
    with compiler():
        from compiler_service.stages.compiler import graph_text
        from compiler_service.stages.local import graph_text_in_child

    show = graph_text if in_process or not has_children() else graph_text_in_child
    text = show(model_source(path))
    output.document({"graph": text})
    output.say(text)
    return SUCCESS


def _inspect_directory(arguments: argparse.Namespace, output: Output) -> int:
    from shared_ir.artifact.layout import list_targets, open_version, read_references
    from shared_ir.artifact.oci import REFERENCE
    from shared_ir.artifact.signature import TrustStore

    trust = TrustStore.load(home_directory(arguments.home) / "trust")
    asked = once("--size", arguments.size)
    tags = [own.annotations.get(REFERENCE, "") for own in read_references(arguments.path)]
    wanted = [tag for tag in tags if arguments.tag in (None, tag)]
    if not wanted:
        open_version(arguments.path, arguments.tag, trust)  # raises: says what is there instead
    found = []
    for tag in wanted:
        for manifest in list_targets(arguments.path, tag, trust):
            opened = open_version(arguments.path, tag, trust, lambda _, chosen=manifest: chosen)  # type: ignore[misc]
            files = {"library": len(opened.library), "weights": len(opened.weights)}
            files |= {name: file.size for name, file in opened.attachments.items()}
            report = dict(opened.report)
            sizes = _chosen_sizes(opened.plan, Verification.from_report(report), asked)
            found.append(
                {"tag": tag, "manifest": manifest.to_dict(), "files": files}
                | {"inputs": [_tensor(t) for t in opened.plan.inputs]}
                | {"outputs": [_tensor(t) for t in opened.plan.outputs]}
                | {"kernels": len(opened.plan.kernels), "launches": len(opened.plan.steps)}
                | {"parts": dict(Counter(kernel.part for kernel in opened.plan.kernels if kernel.part))}
                | {"arena": dim_text(opened.plan.arena_size), "report": report}
                | {"sizes": sizes, "arena_bytes": evaluate(opened.plan.arena_size, sizes)}
            )
            _show_target(tag, manifest, found[-1], output)
    output.document(found)
    return SUCCESS


def _chosen_sizes(plan: Plan, verification: Verification, asked: Mapping[str, int]) -> dict[str, int]:
    """A size for every symbol of the inputs: as asked, else as it was verified, else 1.

    Raises:
        IngotError: INVALID_ARGUMENT, the model has no such symbol.
    """
    symbols = [source.name for source in plan.symbols]
    for name in asked:
        if name not in symbols:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"no dim of the inputs is called {name!r}",
                field="--size",
                expected=", ".join(symbols) or "no sizes: all dims are fixed",
                received=name,
            )
    known = {**dict.fromkeys(symbols, 1), **verification.sizes, **asked}
    free = dim_symbols([plan.arena_size]) - set(symbols)
    return {name: known[name] for name in symbols} | dict.fromkeys(sorted(free), 1)


def _show_target(tag: str, manifest: Manifest, facts: dict[str, Any], output: Output) -> None:
    output.say(f"{manifest.name}:{tag} for {manifest.triple} {manifest.cpu}")
    files = ", ".join(f"{name} {size_text(size)}" for name, size in facts["files"].items())
    verification = Verification.from_report(facts["report"])
    at = ", ".join(f"{name}={size}" for name, size in facts["sizes"].items())
    inputs = [f"{t['name']}: {_short(t['type'])}{', optional' * t['optional']}" for t in facts["inputs"]]
    outputs = [f"{t['name']}: {_short(t['type'])}" for t in facts["outputs"]]
    rows = [
        *_rows("input", inputs),
        *_rows("output", outputs),
        ("files", files),
        ("kernels", f"{facts['kernels']}, launched {facts['launches']} times"),
        *(("parts", f"{count} by {name}") for name, count in facts["parts"].items()),
        ("arena", f"{facts['arena_bytes']} bytes{at and f' at {_short(at)} (--size has it at others)'}"),
        ("answers", verdict(verification)),
        *([("speed", f"{speed(verification)} as ONNX Runtime, one thread")] if speed(verification) else []),
        ("key", manifest.key),
        ("model", f"sha256 {manifest.model_sha256}"),
        ("compiler", f"{manifest.compiler_version}, ABI {manifest.abi_version}"),
        ("needs", f"glibc {manifest.min_glibc}" if manifest.min_glibc else "nothing"),
    ]
    output.table(("", ""), rows)
    show_outputs([(manifest.cpu, verification)], output)


def _rows(kind: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    more = [(kind, f"... and {len(texts) - _MOST_TENSORS} more (--json has all)")] if len(texts) > _MOST_TENSORS else []
    return [*((kind, text) for text in texts[:_MOST_TENSORS]), *more]


def _short(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}... (--json has it whole)"


def _tensor(spec: Any) -> dict[str, Any]:
    return {"name": spec.name, "type": f"{spec.dtype}[{dims_text(spec.shape)}]", "optional": spec.is_optional}
