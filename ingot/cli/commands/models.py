"""``ingot models``, ``targets`` and ``check``: what the compiler service knows."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ingot.cli.arguments import (
    SERVICE,
    add_common,
    add_in_process,
    add_model_options,
    add_service,
    is_named,
    make_client,
    model_options,
)
from ingot.cli.commands import registry
from ingot.cli.output import SUCCESS, USER_ERROR, Output
from ingot.cli.usage import Way
from ingot.cli.values import label, label_version, once
from ingot.client import Client
from ingot.compiling import has_children
from ingot.records import CheckReport, TargetInfo
from ingot.sources import compiler, model_source
from ingot.upload import model_upload
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import whole_number
from shared_ir.storage.faults import require_writable

Answer = TypeVar("Answer")

_MODELS = Way.of("without the name of a model", f"prefix limit {SERVICE}")
_CHANGES = "set_label delete_label etag delete_version limit"
_MODEL = Way.of("for one model without --out", f"{_CHANGES} {SERVICE}")
_DELETION = Way.of("beside --delete", f"delete force delete_version {SERVICE}")
_DOWNLOAD = Way.of("for one model", f"{_CHANGES} out version {SERVICE}")
_TARGETS_HERE, _TARGETS = Way.of("beside --local", "local"), Way.of("at a service", SERVICE)
_CHECK_HERE = Way.of("beside --local", "local in_process shape opt_level")
_CHECK = Way.of("without --local", f"shape opt_level {SERVICE}")


def add_parser(commands: Any) -> None:
    models = commands.add_parser("models", help="published models, their versions and labels")
    models.add_argument("name", nargs="?", help="one model; without it, all are listed")
    models.add_argument("--set-label", action="append", type=label_version, default=[], metavar="LABEL=VERSION")
    models.add_argument("--delete-label", action="append", type=label, default=[], metavar="LABEL")
    models.add_argument("--out", type=Path, metavar="DIR", help="put a version into this folder (OCI layout)")
    models.add_argument("--version", default="", help="version or label for --out (default: the newest)")
    registry.add_options(models)
    models.set_defaults(run=run_models, way=_way)

    targets = commands.add_parser("targets", help="machines that have a name")
    targets.add_argument(
        "--local", action="store_true", help="those of the compiler on this machine, without a service"
    )
    targets.set_defaults(run=run_targets, way=lambda own: _TARGETS_HERE if own.local else _TARGETS)

    check = commands.add_parser("check", help="list everything that keeps a model from being compiled")
    check.add_argument("model", type=Path)
    check.add_argument("--local", action="store_true", help="on this machine, without a service")
    add_in_process(check)
    add_model_options(check)
    check.set_defaults(run=run_check, way=lambda own: _CHECK_HERE if own.local else _CHECK)

    for parser in (models, targets, check):
        add_service(parser)
        add_common(parser)


def _way(arguments: argparse.Namespace) -> Way:
    if arguments.name is None:
        return _MODELS
    if arguments.delete:
        return _DELETION
    way = _DOWNLOAD if arguments.out else _MODEL
    return (
        way if arguments.set_label or arguments.delete_label else Way(f"{way.when} and no label", way.uses - {"etag"})
    )


def run_models(arguments: argparse.Namespace, output: Output) -> int:
    limit = registry.at_most(arguments.limit)
    changes = once("--set-label", arguments.set_label)
    if arguments.out:
        require_writable(arguments.out, "the folder for the version")
    with make_client(arguments) as client:
        if arguments.name is None:
            found = client.models(arguments.prefix, limit=limit)
            output.document(found)
            rows = [(m.name, m.latest_version if m.error is None else "?", _labels(m.labels)) for m in found]
            output.table(("model", ">newest", "labels"), rows)
            for refused in found:
                if refused.error is not None:
                    output.note(f"{refused.name}: {refused.error}")
            _say_more(output, len(found), limit)
            return SUCCESS
        with _told_if_it_fails() as done:
            for name, version in changes.items():
                client.set_label(arguments.name, name, version, arguments.etag)
                done.append(f"label {name!r} was set to {version}")
            for name in arguments.delete_label:
                client.delete_label(arguments.name, name, arguments.etag)
                done.append(f"label {name!r} was deleted")
            if registry.delete(client, arguments, output):
                return SUCCESS
            if arguments.out:
                _download(client, arguments, output)
        return _show_model(client, arguments.name, limit, output)


@contextmanager
def _told_if_it_fails() -> Iterator[list[str]]:
    """A list for what has been changed: where something fails after it, the error says so, for that stays."""
    done: list[str] = []
    try:
        yield done
    except IngotError as error:
        if not done:
            raise
        raise replace(error, message=f"{error.message.rstrip('.')}; before that {', '.join(done)}") from error


def _download(client: Client, arguments: argparse.Namespace, output: Output) -> None:
    number = whole_number(arguments.version)
    which = number if number is not None else arguments.version or None
    output.note(f"version {client.download(arguments.name, arguments.out, which)} is in {arguments.out}")


def _show_model(client: Client, name: str, limit: int | None, output: Output) -> int:
    model, versions = client.model(name), client.versions(name, limit)
    output.document({"model": model, "versions": versions})
    by_version: dict[int, list[str]] = {}
    for own, number in model.labels.items():
        by_version.setdefault(number, []).append(own)
    rows = [
        (
            version.version,
            ", ".join(sorted(by_version.get(version.version, []))),
            registry.shown(version.created),
            ", ".join(f"{t.triple}/{t.cpu}" for t in version.targets),
            version.digest,
        )
        for version in versions
    ]
    output.table((">version", "labels", "created", "targets", "digest"), rows)
    _say_more(output, len(versions), limit)
    return SUCCESS


def _say_more(output: Output, count: int, limit: int | None) -> None:
    if limit is not None and count == limit:
        output.note(f"these are {count}, perhaps not all: --limit 0 shows the others too")


def run_targets(arguments: argparse.Namespace, output: Output) -> int:
    targets = (
        targets_here() if arguments.local else ask(arguments, output, lambda client: client.targets(), targets_here)
    )
    output.document(targets)
    rows = [(t.name, t.triple, t.cpu, t.vector_bits, t.description) for t in targets]
    output.table(("target", "triple", "cpu", ">vector", "description"), rows)
    return SUCCESS


def run_check(arguments: argparse.Namespace, output: Output) -> int:
    options = model_options(arguments)
    if arguments.local:
        report = check_here(arguments.model, options, in_process=arguments.in_process)
    else:
        model_upload(arguments.model)  # raises: before anybody is asked
        report = ask(
            arguments,
            output,
            lambda client: client.check(arguments.model, **options),
            lambda: check_here(arguments.model, options),
        )
    output.document(report)
    count = sum(report.operators.values())
    opsets = ", ".join(f"{domain} {version}" for domain, version in sorted(report.opsets.items()))
    verdict = "can be compiled" if report.ok else f"cannot be compiled: {len(report.issues)} obstacles"
    output.say(f"{arguments.model}: {count} nodes, {opsets}: {verdict}")
    rows = [
        (issue.node or issue.tensor or issue.field, issue.code, issue.message, issue.remedy) for issue in report.issues
    ]
    if rows:
        output.table(("where", "code", "what", "remedy"), rows)
    return SUCCESS if report.ok else USER_ERROR


def ask(
    arguments: argparse.Namespace, output: Output, there: Callable[[Client], Answer], here: Callable[[], Answer]
) -> Answer:
    """What a service answers; where nobody named one and none runs, what is known on this machine."""
    try:
        with make_client(arguments) as client:
            return there(client)
    except IngotError as error:
        if error.code is not ErrorCode.UNAVAILABLE or is_named(arguments):
            raise
        absent = error
    try:
        answer = here()
    except IngotError as error:
        raise absent if error.code is ErrorCode.UNAVAILABLE else error from error
    output.note("No service runs here: this is what the compiler on this machine says.")
    return answer


def targets_here() -> tuple[TargetInfo, ...]:
    """As :meth:`ingot.Client.targets`, without a service.

    Raises:
        IngotError: UNAVAILABLE when the compiler is not installed.
    """
    with compiler():
        from compiler_service.api.converters import targets_to_pb
        from compiler_service.catalogue import PipelineCompiler
    from ingot.messages import target_info_from_pb

    return tuple(target_info_from_pb(info) for info in targets_to_pb(PipelineCompiler()).targets)


def check_here(model: Path, options: dict[str, Any], *, in_process: bool = False) -> CheckReport:
    """As :meth:`ingot.Client.check`, without a service: in a child, as :func:`ingot.compile` does, or in this process.

    Raises:
        IngotError: UNAVAILABLE when the compiler is not installed.
    """
    with compiler():
        from compiler_service.api.converters import check_to_pb
        from compiler_service.compiler.options import CompileOptions
    from ingot.messages import check_from_pb

    source, chosen = model_source(model), CompileOptions.from_dict(options)
    if has_children() and not in_process:
        with compiler():
            from compiler_service.stages.local import check_in_child

        report = check_in_child(source, chosen)
    else:
        with compiler():
            from compiler_service.compiler.pipeline import check_model
            from compiler_service.stages.compiler import check_to_dict

        report = check_to_dict(check_model(source, chosen))
    return check_from_pb(check_to_pb(report))


def _labels(labels: Any) -> str:
    return ", ".join(f"{label}={version}" for label, version in sorted(labels.items()))
