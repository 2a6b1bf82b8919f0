"""``ingot compile``: a model to a published version, or to a folder."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ingot.artifact import Artifact, chosen_target, save_artifacts
from ingot.cli.arguments import (
    SERVICE,
    add_common,
    add_in_process,
    add_model_options,
    add_service,
    make_client,
    model_options,
)
from ingot.cli.bundles import bundles_of, write_bundles
from ingot.cli.output import SUCCESS, Output, size_text
from ingot.cli.progress import ProgressBars
from ingot.cli.usage import Way
from ingot.cli.values import model_name as known_name
from ingot.cli.values import new_label, tuning_seconds, whole
from ingot.cli.verification import show_verification
from ingot.client import Client
from ingot.compiling import compile as compile_here
from ingot.home import RECORDS_FILE, home_directory
from ingot.records import Job
from ingot.resuming import AWAY_SECONDS
from ingot.tuning import EFFORTS
from ingot.upload import model_upload
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.faults import require_writable, told

_MODEL = "name target tune no_winograd no_strassen denormals overridable bundle shape opt_level"
_JOB = f"label verification deadline priority {_MODEL} {SERVICE}"
_HERE = Way.of("beside --local", f"local in_process out home {_MODEL}")
_THERE = Way.of("without --local", f"out {_JOB}")
_LEAVE = Way.of("beside --no-wait", f"no_wait {_JOB}")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("compile", help="compile an ONNX model", description=__doc__)
    parser.add_argument("model", type=Path, help="an ONNX file")
    parser.add_argument("--name", type=known_name, help="name of the model (default: that of the file)")
    parser.add_argument("--target", nargs="+", action="extend", metavar="TARGET", help="default: host")
    parser.add_argument(
        "--label", action="append", type=new_label, default=[], help="label to move to the new version: stable, ..."
    )
    parser.add_argument(
        "--tune",
        type=tuning_seconds,
        default=0,
        metavar="SECONDS",
        help=f"look so long for faster schedules by measuring them, or {', '.join(EFFORTS)}",
    )
    parser.add_argument("--no-winograd", action="store_true", help="compute every convolution as a plain sum")
    parser.add_argument("--no-strassen", action="store_true", help="compute every product of matrices as a plain sum")
    parser.add_argument(
        "--denormals", action="store_true", help="keep results below the least normal number, as IEEE 754 has it"
    )
    parser.add_argument(
        "--overridable",
        action="append",
        metavar="INPUT",
        help="an initializer that is an input too and that requests may give (default: all, where they are few numbers)",
    )
    parser.add_argument(
        "--verification",
        choices=("available", "required", "off"),
        help="compare answers where a worker can run the code (default), fail where it cannot, or do not compare",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="also put the version into this folder (OCI layout)")
    bundles = parser.add_mutually_exclusive_group()
    bundles.add_argument(
        "--bundle", action="store_const", const="executable", help="also make a static program, written into --out"
    )
    bundles.add_argument(
        "--bundle-library",
        action="store_const",
        const="shared",
        dest="bundle",
        help="also make a library for C programs with the weights inside, written into --out beside ingot.h",
    )
    parser.add_argument("--local", action="store_true", help="compile on this machine, without a service")
    add_in_process(parser)
    parser.add_argument(
        "--deadline", type=whole(1), default=0, metavar="SECONDS", help="the job fails unless it has finished by then"
    )
    parser.add_argument(
        "--priority", type=whole(-9, 9), default=0, help="-9 to 9: of your jobs that wait, a higher one goes first"
    )
    parser.add_argument("--no-wait", action="store_true", help="print the job and leave")
    add_model_options(parser)
    add_service(parser)
    add_common(parser)
    parser.set_defaults(run=run, way=_way)


def _way(arguments: argparse.Namespace) -> Way:
    return _HERE if arguments.local else _LEAVE if arguments.no_wait else _THERE


def run(arguments: argparse.Namespace, output: Output) -> int:
    name = arguments.name or model_name(arguments.model)
    options = model_options(arguments)
    options |= {"tune": arguments.tune} if arguments.tune else {}
    options |= {"verification": arguments.verification} if arguments.verification else {}
    options |= {"bundle": arguments.bundle} if arguments.bundle else {}
    options |= {"winograd": False} if arguments.no_winograd else {}
    options |= {"strassen": False} if arguments.no_strassen else {}
    options |= {"denormals": True} if arguments.denormals else {}
    options |= {"overridable": arguments.overridable} if arguments.overridable else {}
    targets = arguments.target or ["host"]
    model_upload(arguments.model)  # raises: before anything else is done
    if arguments.local:
        return _compile_here(arguments, output, name, targets, options | {"in_process": arguments.in_process})
    with make_client(arguments) as client:
        return _compile_there(client, arguments, output, name, targets, options)


def model_name(path: Path) -> str:
    """A name that the service accepts, from that of the file."""
    return re.sub(r"[^A-Za-z0-9]+", "-", path.stem).strip("-") or "model"


# ---- on the service


def _compile_there(
    client: Client,
    arguments: argparse.Namespace,
    output: Output,
    name: str,
    targets: Sequence[str],
    options: dict[str, Any],
) -> int:
    if arguments.out:
        require_writable(arguments.out, "the folder for the version")
    with ProgressBars(output) as bars:
        source = client.upload(arguments.model, progress=bars.upload)
        order = {"deadline": arguments.deadline, "priority": arguments.priority, "timeout": AWAY_SECONDS}
        job = client.compile(source, name, targets, arguments.label, **order, **options)
        if arguments.no_wait:
            output.document(job)
            output.say(job.id)
            return SUCCESS
        if not job.is_finished:
            with _told_that_it_goes_on(job, output):
                for event in client.watch(job.id):
                    bars.event(event)
                job = client.wait(job.id)
    if job.error is not None:
        output.document(job)
        return output.error(job.error)
    files: list[Path] = []
    if arguments.out:
        tag = client.download(name, arguments.out, job.version)
        files = bundles_of(arguments.out, name, tag, arguments.home) if arguments.bundle else []
    output.document(job)
    show_job(job, output)
    for file in files:
        output.say(f"bundle: {file}")
    if not _is_labelled(client, name, job.version):
        output.note(f"No label points at it yet: `ingot models {name} --set-label stable={job.version}`.")
    return SUCCESS


@contextmanager
def _told_that_it_goes_on(job: Job, output: Output) -> Iterator[None]:
    """Who waits no longer for a job, whatever the reason, learns by which id it is found; a program gets the job as it was."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
        output.document(job)
        output.note(f"job {job.id} goes on: `ingot jobs {job.id}` shows it, with --cancel stops it")
        raise
    except IngotError as error:
        text = f"{error.message.rstrip('.')}; job {job.id} was ordered before that, and goes on"
        raise replace(error, message=text) from error


def _is_labelled(client: Client, name: str, version: int) -> bool:
    """Whether a label points at a version, as far as who asks may know: a hit may be the version that is served already."""
    try:
        return version in client.labels(name).values()
    except IngotError:  # a token that may only compile
        return True


def show_job(job: Job, output: Output) -> None:
    """A finished job in a few lines."""
    labels = f" ({', '.join(job.labels)})" if job.labels else ""
    how = "cache hit" if job.cache_hit else f"{max(0.0, job.finished - job.created):.1f} s"
    output.say(f"{job.name} version {job.version}{labels}: {how}")
    rows = [
        (
            own.target,
            own.state.lower(),
            "hit" if own.cache_hit else "",
            own.artifact_key[:16],
        )
        for own in job.targets
    ]
    output.table(("target", "state", "cache", "artifact"), rows)
    show_verification([(own.target, own.verification) for own in job.targets if own.state == "SUCCEEDED"], output)
    if job.stage_seconds:
        output.table(("stage", ">seconds"), [(k, f"{v:.2f}") for k, v in job.stage_seconds.items()])


# ---- on this machine


def _compile_here(
    arguments: argparse.Namespace, output: Output, name: str, targets: Sequence[str], options: dict[str, Any]
) -> int:
    home = home_directory(arguments.home)
    directory = arguments.out or Path(f"{name}.ingot")
    _refuse_equal(targets)
    _require_room(directory, home)
    artifacts = []
    with ProgressBars(output) as bars:
        for target in targets:
            records = home / RECORDS_FILE
            artifact = compile_here(arguments.model, target, name=name, records=records, progress=bars.stage, **options)
            artifacts.append(artifact)
    index = save_artifacts(artifacts, directory, home=home)
    bundles = write_bundles(directory, name, [(own.manifest, own.attachments) for own in artifacts])
    output.document(
        {
            "directory": str(directory),
            "digest": index,
            "programs": [str(path) for path in bundles],
            "targets": [own.manifest.to_dict() | {"report": dict(own.report)} for own in artifacts],
        }
    )
    output.say(f"{name}: written to {directory}")
    output.table(
        ("target", ">seconds", ">kernels", ">code", ">weights"),
        [(target, *_numbers(own)) for target, own in zip(targets, artifacts, strict=True)],
    )
    for path in bundles:
        output.say(f"bundle: {path}")
    output.note("Its answers were compared with nobody's: a service does that before it publishes.")
    return SUCCESS


def _require_room(directory: Path, home: Path) -> None:
    """Everything that is written after a compilation can be written, as far as that can be known before it."""
    from shared_ir.artifact.signature import local_keys

    require_writable(directory, "the folder for the compiled model")
    require_writable(home, "the home folder")
    with told("the signing key cannot be made", home):
        local_keys(home)


def _numbers(artifact: Artifact) -> tuple[str, ...]:
    report = artifact.report
    seconds = sum(report.get("stages", {}).values())
    weights = report.get("weights_bytes", 0)
    return f"{seconds:.2f}", str(report.get("kernels", "")), size_text(len(artifact.library)), size_text(weights)


def _refuse_equal(targets: Sequence[str]) -> None:
    if len({chosen_target(target) for target in targets}) < len(targets):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "two of the targets are the same",
            field="--target",
            received=" ".join(targets),
            remedy="Name every target once.",
        )
