"""``ingot inspect``: what is in a model, or in a folder of compiled ones."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ingot.artifact import compiler, has_children, model_source
from ingot.cli.arguments import add_common, add_in_process
from ingot.cli.models import check_here
from ingot.cli.output import SUCCESS, Output, size_text
from ingot.home import home_directory
from shared_ir.artifact.value import Manifest
from shared_ir.expr.dim import dim_text, dims_text


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("inspect", help="look into a model or a compiled one", description=__doc__)
    parser.add_argument("path", type=Path, metavar="MODEL_OR_DIR")
    parser.add_argument("--tag", help="one version of the folder")
    parser.add_argument("--graph", action="store_true", help="print the imported graph as text")
    add_in_process(parser)
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.path.is_dir():
        return _inspect_directory(arguments, output)
    if arguments.graph:
        return _print_graph(arguments.path, output, in_process=arguments.in_process)
    report = check_here(arguments.path, {}, in_process=arguments.in_process)
    output.document(report)
    opsets = ", ".join(f"{domain} {version}" for domain, version in sorted(report.opsets.items()))
    output.say(f"{arguments.path}: {opsets}")
    tensors = [("input", t.name, t.dtype, ", ".join(t.shape)) for t in report.inputs]
    tensors += [("output", t.name, t.dtype, ", ".join(t.shape)) for t in report.outputs]
    output.table(("", "name", "dtype", "shape"), tensors)
    output.table(("operator", ">nodes"), sorted(report.operators.items(), key=lambda item: -item[1]))
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
    tags = [own.annotations.get(REFERENCE, "") for own in read_references(arguments.path)]
    wanted = [tag for tag in tags if arguments.tag in (None, tag)]
    if not wanted:
        open_version(arguments.path, arguments.tag, trust)  # raises: says what is there instead
    found = []
    for tag in wanted:
        for manifest in list_targets(arguments.path, tag, trust):
            opened = open_version(arguments.path, tag, trust, lambda _, chosen=manifest: chosen)  # type: ignore[misc]
            sizes = {"library": len(opened.library), "weights": len(opened.weights)}
            sizes |= {name: file.size for name, file in opened.attachments.items()}
            found.append(
                {"tag": tag, "manifest": manifest.to_dict(), "files": sizes}
                | {"inputs": [_tensor(t) for t in opened.plan.inputs]}
                | {"outputs": [_tensor(t) for t in opened.plan.outputs]}
                | {"kernels": len(opened.plan.kernels), "launches": len(opened.plan.steps)}
                | {"arena": dim_text(opened.plan.arena_size), "report": dict(opened.report)}
            )
            _show_target(tag, manifest, found[-1], output)
    output.document(found)
    return SUCCESS


def _show_target(tag: str, manifest: Manifest, facts: dict[str, Any], output: Output) -> None:
    output.say(f"{manifest.name}:{tag} for {manifest.triple} {manifest.cpu}")
    sizes = ", ".join(f"{name} {size_text(size)}" for name, size in facts["files"].items())
    rows = [
        *(("input", f"{t['name']}: {t['type']}{', optional' * t['optional']}") for t in facts["inputs"]),
        *(("output", f"{t['name']}: {t['type']}") for t in facts["outputs"]),
        ("files", sizes),
        ("kernels", f"{facts['kernels']}, launched {facts['launches']} times"),
        ("arena", f"{facts['arena']} bytes"),
        ("key", manifest.key),
        ("model", f"sha256 {manifest.model_sha256}"),
        ("compiler", f"{manifest.compiler_version}, ABI {manifest.abi_version}"),
        ("needs", f"glibc {manifest.min_glibc}" if manifest.min_glibc else "nothing"),
    ]
    output.table(("", ""), rows)


def _tensor(spec: Any) -> dict[str, Any]:
    return {"name": spec.name, "type": f"{spec.dtype}[{dims_text(spec.shape)}]", "optional": spec.is_optional}
