"""``ingot jobs``: compilations of the service."""

from __future__ import annotations

import argparse
import time
from typing import Any

from ingot.cli.arguments import SERVICE, add_common, add_service, make_client
from ingot.cli.compile import show_job
from ingot.cli.output import SUCCESS, Output
from ingot.cli.progress import ProgressBars
from ingot.cli.usage import Way, whole
from ingot.client import Client
from ingot.records import Job
from shared_ir.errors import ErrorCode, IngotError

_LIST = Way.of("where jobs are listed", f"limit state name watch cancel retry reproducer {SERVICE}")
_ONE = Way.of("for one job", SERVICE)
_WATCH = Way.of("where a job is followed", f"watch {SERVICE}")
_CANCEL = Way.of("where a job is cancelled", f"cancel {SERVICE}")
_RETRY = Way.of("where a job is ordered once more", f"retry {SERVICE}")
_REPRODUCER = Way.of("where a reproducer is printed", f"reproducer {SERVICE}")


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
    parser.add_argument("--limit", type=whole(1, 1000), default=20, help="how many to list (default 20)")
    parser.add_argument("--state", default="", help="only jobs in this state")
    parser.add_argument("--name", default="", help="only jobs of this model")
    add_service(parser)
    add_common(parser)
    parser.set_defaults(run=run, way=_way)


def run(arguments: argparse.Namespace, output: Output) -> int:
    if any((arguments.watch, arguments.cancel, arguments.retry, arguments.reproducer)) and not arguments.id:
        raise IngotError(ErrorCode.INVALID_ARGUMENT, "which job?", field="ID", remedy="`ingot jobs` lists them.")
    with make_client(arguments) as client:
        if arguments.id is None:
            return _list(client.jobs(arguments.limit, arguments.state, arguments.name), output)
        if arguments.reproducer:
            return _reproducer(client, arguments.id, output)
        if arguments.cancel:
            job = client.cancel(arguments.id)
        elif arguments.retry:
            job = client.retry(arguments.id)
        elif arguments.watch:
            return _watch(client, arguments.id, output)
        else:
            job = client.job(arguments.id)
    output.document(job)
    _show(job, output)
    return SUCCESS


def _way(arguments: argparse.Namespace) -> Way:
    if arguments.id is None:
        return _LIST
    ways = {"cancel": _CANCEL, "watch": _WATCH, "retry": _RETRY, "reproducer": _REPRODUCER}
    return next((way for name, way in ways.items() if getattr(arguments, name)), _ONE)


def _reproducer(client: Client, id: str, output: Output) -> int:
    """Of the target whose compilation was at fault; of the whole job where none was."""
    targets = client.job(id).targets
    at_fault = (n for n, t in enumerate(targets) if t.error is not None and t.error.code is ErrorCode.COMPILER_FAULT)
    text = str(client.reproducer(id, next(at_fault, -1)))
    output.document({"reproducer": text})
    output.say(text)
    return SUCCESS


def _list(jobs: tuple[Job, ...], output: Output) -> int:
    output.document(jobs)
    columns = ("job", "model", ">version", "state", "targets", "created", ">seconds", "error")
    output.table(columns, [_row(job) for job in jobs])
    return SUCCESS


def _row(job: Job) -> tuple[Any, ...]:
    created = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.created))
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
    job = client.job(id)
    if job.error is not None:
        return output.error(job.error)
    if not output.json:
        show_job(job, output)
    return SUCCESS


def _show(job: Job, output: Output) -> None:
    if job.state == "SUCCEEDED":
        show_job(job, output)
        return
    output.say(f"{job.id}: {job.name}, {job.state.lower()}")
    rows = [(t.target, t.state.lower(), t.stage, f"{t.done}/{t.total}") for t in job.targets]
    output.table(("target", "state", "stage", ">steps"), rows)
    if job.error is not None:
        output.say(str(job.error))
