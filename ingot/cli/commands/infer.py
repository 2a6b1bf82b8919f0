"""``ingot infer``, ``run`` and ``profile``: give a model inputs, and see what comes out and how long it takes."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingot.cli.arguments import add_common, add_service, make_endpoint
from ingot.cli.output import SUCCESS, Output
from ingot.cli.tensors import HELP, describe, given_input, read_inputs, save_outputs
from ingot.cli.values import once, whole
from ingot.endpoint import Array
from ingot.home import home_directory
from ingot.model import load
from ingot.records import TensorInfo
from shared_ir.expr.dim import dim_text
from shared_ir.storage.faults import require_writable

if TYPE_CHECKING:
    from runtime_service.executors.executor import LaunchProfile
    from runtime_service.loading.model import Model


def add_parser(commands: Any) -> None:
    infer = commands.add_parser("infer", help="infer at the runtime service")
    infer.add_argument("name", help="a model that is served")
    infer.add_argument("--version", default="", help="version (default: the one its label points at)")
    infer.add_argument("--http", action="store_true", help="over HTTP instead of gRPC")
    add_service(infer)
    infer.set_defaults(run=run_infer)

    run = commands.add_parser("run", help="run a compiled model in this process")
    run.add_argument("--executor", choices=("aot", "graph"), default="aot")
    run.set_defaults(run=run_run)

    profile = commands.add_parser("profile", help="where the time of a compiled model goes, kernel by kernel")
    profile.add_argument("--launches", action="store_true", help="every launch, in order, instead of every kernel")
    profile.set_defaults(run=run_profile)

    for parser in (run, profile):
        parser.add_argument("directory", type=Path, help="folder that `ingot compile --out` wrote")
        parser.add_argument("--tag", help="version in the folder, if it holds several")
        parser.add_argument("--threads", type=whole(1, 1024), default=None, help="default: one per core")
    for parser in (infer, run, profile):
        parser.add_argument("--input", action="append", type=given_input, default=[], metavar="NAME=VALUE", help=HELP)
        parser.add_argument(
            "--repeat", type=whole(1), default=10 if parser is profile else 1, help="how often to run it"
        )
        add_common(parser)
    for parser in (infer, run):
        parser.add_argument("--save", type=Path, metavar="DIR", help="write each output to DIR/NAME.npy")


def run_infer(arguments: argparse.Namespace, output: Output) -> int:
    given = once("--input", arguments.input)
    _require_room(arguments)
    endpoint = make_endpoint(arguments)
    try:
        feeds = read_inputs(given, endpoint.inputs(arguments.name, arguments.version))
        return _run(lambda: endpoint.infer(arguments.name, feeds, arguments.version), arguments, output)
    finally:
        endpoint.close()


def run_run(arguments: argparse.Namespace, output: Output) -> int:
    given = once("--input", arguments.input)
    _require_room(arguments)
    model = _load(arguments, arguments.executor)
    with model:
        feeds = read_inputs(given, _inputs(model))
        return _run(lambda: model.run(feeds), arguments, output)


def _require_room(arguments: argparse.Namespace) -> None:
    if arguments.save:
        require_writable(arguments.save, "the folder for outputs")


def _run(infer: Callable[[], Mapping[str, Array]], arguments: argparse.Namespace, output: Output) -> int:
    times = []
    outputs: Mapping[str, Array] = {}
    for _ in range(arguments.repeat):
        start = time.perf_counter()
        outputs = infer()
        times.append(time.perf_counter() - start)
    described = describe(outputs)
    if arguments.save:
        save_outputs(outputs, arguments.save)
    output.document({"outputs": described, "seconds": times})
    columns = ("output", "dtype", "shape", ">min", ">max", ">mean")
    output.table(columns, [_output_row(own) for own in described])
    output.say(f"{statistics.median(times) * 1e3:.3f} ms" + (f", median of {len(times)}" if len(times) > 1 else ""))
    return SUCCESS


def _output_row(own: Mapping[str, Any]) -> tuple[str, ...]:
    shape = "x".join(str(extent) for extent in own["shape"])
    return (
        own["name"],
        own["dtype"],
        shape,
        *(f"{own[key]:.6g}" if key in own else "" for key in ("min", "max", "mean")),
    )


def run_profile(arguments: argparse.Namespace, output: Output) -> int:
    given, rules = once("--input", arguments.input), _rules(arguments)
    with _load(arguments, "graph") as model:
        feeds = read_inputs(given, _inputs(model))
        # those of ways that this run does not take have no time
        launches = tuple(launch for launch in model.profile(feeds, arguments.repeat) if launch.seconds)
    rows = [_measured((launch,)) for launch in launches] if arguments.launches else _by_kernel(launches)
    rows = [{**row, "rule": rules.get(row["kernel"], "")} for row in rows]
    total = sum(row["seconds"] for row in rows) or 1.0
    output.document({"seconds": total, "launches" if arguments.launches else "kernels": rows})
    columns = ("kernel", "computes", "rule", ">calls", ">ms", ">%", ">GFLOP/s", ">GB/s")
    output.table(columns, [_profile_row(row, total) for row in rows])
    flops, moved = sum(row["flops"] for row in rows), sum(row["bytes"] for row in rows)
    speed = f"{flops / total / 1e9:.1f} GFLOP/s, {moved / total / 1e9:.1f} GB/s"
    output.say(f"{len(launches)} launches, {total * 1e3:.3f} ms (median of {arguments.repeat} runs), {speed}")
    return SUCCESS


def _rules(arguments: argparse.Namespace) -> Mapping[str, str]:
    """For each kernel the rule that its schedule comes from; artifacts of older releases do not say."""
    from shared_ir.artifact.layout import open_version
    from shared_ir.artifact.signature import TrustStore

    trust = TrustStore.load(home_directory(arguments.home) / "trust")
    found: Mapping[str, str] = open_version(arguments.directory, arguments.tag, trust).report.get("rules", {})
    return found


def _by_kernel(launches: tuple[LaunchProfile, ...]) -> list[dict[str, Any]]:
    """The slowest first."""
    groups: dict[str, list[LaunchProfile]] = {}
    for launch in launches:
        groups.setdefault(launch.kernel, []).append(launch)
    return sorted((_measured(tuple(group)) for group in groups.values()), key=lambda row: -row["seconds"])


def _measured(launches: tuple[LaunchProfile, ...]) -> dict[str, Any]:
    return {
        "kernel": launches[0].kernel,
        "label": launches[0].label,
        "calls": len(launches),
        "seconds": sum(launch.seconds for launch in launches),
        "flops": sum(launch.flops for launch in launches),
        "bytes": sum(launch.bytes for launch in launches),
        "nodes": [node for launch in launches for node in launch.nodes],
    }


def _profile_row(row: Mapping[str, Any], total: float) -> tuple[Any, ...]:
    seconds = row["seconds"] or 1e-12
    return (
        row["kernel"],
        row["label"],
        row["rule"],
        row["calls"],
        f"{seconds * 1e3:.3f}",
        f"{100 * seconds / total:.1f}",
        f"{row['flops'] / seconds / 1e9:.1f}",
        f"{row['bytes'] / seconds / 1e9:.1f}",
    )


def _load(arguments: argparse.Namespace, executor: Any) -> Model:
    return load(arguments.directory, arguments.threads, executor, tag=arguments.tag, home=arguments.home)


def _inputs(model: Model) -> tuple[TensorInfo, ...]:
    return tuple(
        TensorInfo(t.name, str(t.dtype), tuple(dim_text(d) for d in t.shape), t.is_optional) for t in model.inputs
    )
