"""``ingot jobs``: compilations of the service."""

from __future__ import annotations

import argparse
from typing import Any

from ingot.cli.arguments import SERVICE, add_common, add_service, make_client
from ingot.cli.commands.compile import show_job
from ingot.cli.commands.registry import shown
from ingot.cli.output import SUCCESS, Output
from ingot.cli.progress import ProgressBars
from ingot.cli.usage import Way
from ingot.cli.values import MOMENT, moment, one_of, whole
from ingot.client import Client
from ingot.records import STAGES, Job
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.usage import UsageError

_FILTERS = "state name target label user since until"
_LIST = Way.of("where jobs are listed", f"limit {_FILTERS} watch cancel retry reproducer log {SERVICE}")
_ONE = Way.of("for one job without --log", SERVICE)
_WATCH = Way.of("where a job is followed", f"watch {SERVICE}")
_CANCEL = Way.of("where a job is cancelled", f"cancel {SERVICE}")
_RETRY = Way.of("where a job is ordered once more", f"retry {SERVICE}")
_LOG = Way.of("where a log is printed", f"log stage target {SERVICE}")
_REPRODUCER = Way.of("where a reproducer is printed", f"reproducer {SERVICE}")


_STATES = ("queued", "running", "succeeded", "failed", "cancelled")
_WAYS = {"cancel": _CANCEL, "watch": _WATCH, "retry": _RETRY, "reproducer": _REPRODUCER, "log": _LOG}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("jobs", help="list, follow, cancel or retry compilations", description=__doc__)
    parser.add_argument("id", nargs="?", help="one job; without it, the newest ones are listed")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--watch", action="store_true", help="follow the job until it has finished")
    what.add_argument("--cancel", action="store_true", help="stop the job")
    what.add_argument(
        "--retry", action="store_true", help="order the same once more, of a job that failed or was cancelled"
    )
    what.add_argument("--reproducer", action="store_true", help="print what shows a fault of the compiler again")
    what.add_argument("--log", action="store_true", help="print what the work on the job wrote, the newest 2000 lines")
    parser.add_argument(
        "--stage",
        type=one_of(*STAGES),
        default="",
        help="with --log: only lines of ingest, tune, build, verify or publish",
    )
    parser.add_argument("--limit", type=whole(1), default=20, help="how many to list (default 20)")
    parser.add_argument(
        "--state", type=one_of(*_STATES), default="", help=f"only jobs in this state: {', '.join(_STATES)}"
    )
    parser.add_argument("--name", "--model", default="", help="only jobs of this model")
    parser.add_argument("--target", default="", help="only jobs, or lines of the log, for this target")
    parser.add_argument("--label", default="", help="only jobs that move this label")
    parser.add_argument("--user", default="", help="only what this user ordered")
    for option in ("--since", "--until"):
        parser.add_argument(option, type=moment, default=0.0, metavar="TIME", help=MOMENT)
    add_service(parser)
    add_common(parser)
    parser.set_defaults(run=run, way=_way)


def run(arguments: argparse.Namespace, output: Output) -> int:
    asked = next((name for name in _WAYS if getattr(arguments, name)), None)
    if not arguments.id and asked:
        message = f"--{asked} is for one job: which?"
        raise UsageError(ErrorCode.INVALID_ARGUMENT, message, field="ID", remedy="`ingot jobs` lists them.")
    if arguments.id is None:
        return _list(arguments, output)
    with make_client(arguments) as client:
        if arguments.reproducer:
            return _reproducer(client, arguments.id, output)
        if arguments.log:
            return _log(client, arguments, output)
        if arguments.cancel:
            return _cancel(client, arguments.id, output)
        if arguments.retry:
            job = client.retry(arguments.id)
        elif arguments.watch:
            return _watch(client, arguments.id, output)
        else:
            job = client.job(arguments.id)
    output.document(job)
    show(job, output)
    return SUCCESS


def _way(arguments: argparse.Namespace) -> Way:
    if arguments.id is None:
        return _LIST
    return next((way for name, way in _WAYS.items() if getattr(arguments, name)), _ONE)


def _cancel(client: Client, id: str, output: Output) -> int:
    """One that had finished is shown as it is: nothing was cancelled, which is said."""
    job = client.cancel(id)
    output.document(job)
    if job.state != "CANCELLED":
        output.note(f"{job.id} had finished before: nothing was cancelled")
    show(job, output)
    return SUCCESS


def _reproducer(client: Client, id: str, output: Output) -> int:
    """Of the target whose compilation was at fault; of the whole job where none was."""
    targets = client.job(id).targets
    at_fault = (n for n, t in enumerate(targets) if t.error is not None and t.error.code is ErrorCode.COMPILER_FAULT)
    text = str(client.reproducer(id, next(at_fault, -1)))
    output.document({"reproducer": text})
    output.say(text)
    return SUCCESS


def _log(client: Client, arguments: argparse.Namespace, output: Output) -> int:
    lines = client.log(arguments.id, arguments.stage, arguments.target)
    if not lines and arguments.target:
        _require_target(client.job(arguments.id), arguments.target)
    output.document(lines)
    for line in lines:
        where = " ".join(part for part in (line.target, line.stage) if part)
        output.say(f"{shown(line.time)} {line.level} {where}: {line.text}")
    return SUCCESS


def _require_target(job: Job, target: str) -> None:
    """Raises IngotError INVALID_ARGUMENT, the job has none that was asked for by this text."""
    known = [own.target for own in job.targets]
    if target not in known:
        expected = ", ".join(known)
        message = "the job has no such target"
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field="--target", expected=expected, received=target)


def _list(arguments: argparse.Namespace, output: Output) -> int:
    given = {name: getattr(arguments, name) for name in ("state", "name", "target", "label", "user")}
    with make_client(arguments) as client:
        jobs = client.jobs(arguments.limit, **given, since=arguments.since, until=arguments.until)
    output.document(jobs)
    columns = ("job", "model", ">version", "state", "targets", "created", ">seconds", "error")
    output.table(columns, [_row(job) for job in jobs])
    return SUCCESS


def _row(job: Job) -> tuple[Any, ...]:
    created = shown(job.created)
    seconds = f"{job.finished - job.created:.1f}" if job.finished else ""
    targets = ", ".join(target.target for target in job.targets)
    state = "hit" if job.cache_hit and job.state == "SUCCEEDED" else job.state.lower()
    error = job.error.code.value if job.error else ""
    return job.id, job.name, job.version or "", state, targets, created, seconds, error


def _watch(client: Client, id: str, output: Output) -> int:
    with ProgressBars(output) as bars:
        for event in client.watch(id):
            output.line(event)
            bars.event(event)
    job = client.wait(id)
    if job.error is not None:
        return output.error(job.error)
    if not output.json:
        show_job(job, output)
    return SUCCESS


def show(job: Job, output: Output) -> None:
    """A job as it is now."""
    if job.state == "SUCCEEDED":
        show_job(job, output)
        return
    output.say(f"{job.id}: {job.name}, {job.state.lower()}")
    rows = [(t.target, t.state.lower(), t.stage, f"{t.done}/{t.total}") for t in job.targets]
    output.table(("target", "state", "stage", ">steps"), rows)
    if job.error is not None:
        output.say(str(job.error))
    if not job.is_finished:
        output.say(_left(job))


def _left(job: Job) -> str:
    late = f"; it fails at {shown(job.deadline)} unless it has finished" if job.deadline else ""
    if job.eta_seconds is None:
        return f"time left: unknown{late}"
    return f"time left: about {job.eta_seconds:.0f} s of work, without waiting for a worker{late}"
