"""``python -m ingot.demo``: the demo, top to bottom. Exit status 0 only if everything that it shows holds."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ingot.cli.output import INTERRUPTED, Output, size_text
from ingot.client import Client
from ingot.demo.latency import ROUNDS, Latency, measure_in_turns
from ingot.demo.metrics import moved, scrape
from ingot.demo.models import fetch_classifier, resnet50
from ingot.demo.platform import platform
from ingot.demo.steps import (
    DemoError,
    DemoModel,
    compare,
    compile_model,
    layout_bytes,
    submit_again,
    wait_ready,
)
from ingot.home import Addresses
from ingot.records import Job
from shared_ir.errors import IngotError
from shared_ir.signals import ended_by_sigterm


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status; SIGTERM and Ctrl-C leave nothing behind either."""
    argparse.ArgumentParser(
        prog="python -m ingot.demo",
        description="Compile two models in a service of its own, serve them, compare their answers with ONNX Runtime's, and measure; "
        "in under three minutes. Nothing of it stays but the models, in the cache.",
        epilog="Exit status: 0 everything held, 1 something did not.",
    ).parse_args(arguments)
    try:
        with ended_by_sigterm():
            return show()
    except KeyboardInterrupt:
        return INTERRUPTED


def show() -> int:
    output, start = Output(), time.monotonic()
    try:
        models = (
            DemoModel("text-direction", fetch_classifier(), ((1, 3, 48, 192), (3, 3, 48, 320), (6, 3, 48, 100))),
            DemoModel("light-resnet50", resnet50(), ((1, 3, 224, 224),)),
        )
        for model in models:
            output.say(f"{model.name}: {model.path.name}, {size_text(model.path.stat().st_size)}")
        with platform() as (home, addresses):
            output.say(
                f"up after {time.monotonic() - start:.1f} s: {addresses.compiler} compiles, {addresses.grpc} serves"
            )
            use(home, addresses, models, output)
    except (IngotError, DemoError) as error:
        output.err.print(f"demo failed: {error}", markup=False, highlight=False, soft_wrap=True)
        return 1
    output.say(f"\nEverything held, and nothing of it is left. {time.monotonic() - start:.0f} s in all.")
    return 0


def use(home: Path, addresses: Addresses, models: Sequence[DemoModel], output: Output) -> None:
    """Compile, serve, infer, compare, measure."""
    before = scrape(addresses.compiler_metrics) | scrape(addresses.metrics)
    with Client(addresses.compiler) as client, tempfile.TemporaryDirectory(prefix="ingot-demo-") as name:
        jobs = [compile_model(client, model, output) for model in models]
        again = [submit_again(client, model) for model in models]
        folders = [Path(name) / model.name for model in models]
        for model, folder in zip(models, folders, strict=True):
            client.download(model.name, folder, "stable")
        show_jobs(jobs, again, [layout_bytes(folder) for folder in folders], output)

        output.say(f"\nserved {wait_ready(addresses, models):.1f} s later")
        compiled = len(client.jobs())
        rows = [
            (model.name, protocol, "x".join(map(str, shape)), f"{error:.1e}")
            for model in models
            for protocol, shape, error in compare(addresses, model)
        ]
        output.table(("model", "protocol", "input", ">max abs error to ONNX Runtime"), rows)
        if len(client.jobs()) != compiled:
            raise DemoError("inference at other sizes started a compilation")

        measured = [
            measure_in_turns(folder, model.path, model.shapes[0], home)
            for model, folder in zip(models, folders, strict=True)
        ]
        show_latency(models, measured, output)
    show_metrics(moved(before, scrape(addresses.compiler_metrics) | scrape(addresses.metrics)), output)


def show_jobs(jobs: Sequence[Job], again: Sequence[float], sizes: Sequence[int], output: Output) -> None:
    stages = ("ingest", "tune", "build", "verify", "publish")
    rows = [
        (
            job.name,
            f"{job.version} ({', '.join(job.labels)})",
            *(f"{job.stage_seconds.get(stage, 0.0):.2f}" for stage in stages),
            f"{job.finished - job.created:.2f}",
            f"{seconds * 1e3:.1f} ms",
            size_text(size),
        )
        for job, seconds, size in zip(jobs, again, sizes, strict=True)
    ]
    columns = (f">{stage}" for stage in stages)
    output.table(("model", "version", *columns, ">seconds in all", ">cache hit", ">artifact"), rows)


def show_latency(models: Sequence[DemoModel], measured: Sequence[tuple[Latency, Latency]], output: Output) -> None:
    rows = [
        (
            model.name,
            "x".join(map(str, model.shapes[0])),
            f"{own.load_seconds * 1e3:.1f}",
            f"{own.median_seconds * 1e3:.3f}",
            f"{other.median_seconds * 1e3:.3f}",
            f"{other.median_seconds / own.median_seconds:.2f}x",
        )
        for model, (own, other) in zip(models, measured, strict=True)
    ]
    columns = ("model", "input", ">load ms", ">Ingot ms", ">ONNX Runtime ms", ">speed-up")
    output.say(f"\nlatency, 1 thread, processes of their own in turns, the best median of {ROUNDS}")
    output.table(columns, rows)


def show_metrics(found: dict[str, float], output: Output) -> None:
    output.say("\nmetrics that moved")
    output.table(("series", ">by"), [(series, f"{value:g}") for series, value in found.items()])


if __name__ == "__main__":
    sys.exit(main())
