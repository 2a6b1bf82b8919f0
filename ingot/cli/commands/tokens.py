"""``ingot tokens``: who may call a compiler service, and for what."""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ingot.cli.arguments import add_common
from ingot.cli.output import SUCCESS, Output
from ingot.cli.values import number, some_of, whole
from ingot.home import home_directory
from shared_ir.service_kit.access.principal import Principal, TokenScope
from shared_ir.service_kit.access.token_file import TokenFile, editing, read_token_file, scopes_of

TOKENS_FILE = "tokens.json"
_QUOTAS = {"max_bytes": "bytes", "max_jobs": "jobs", "max_running_stages": "running_stages"}
_DAY_SECONDS = 24 * 3600.0
_LEAST_DAYS, _MOST_DAYS = 1e-4, 36_500
"""Ten seconds to a hundred years: times in the file are whole seconds, and dates end."""


def add_parser(commands: Any) -> None:
    tokens = commands.add_parser("tokens", help="who may call a compiler service: tokens with scopes and namespaces")
    actions = tokens.add_subparsers(metavar="ACTION", required=True)
    new = actions.add_parser("new", help="make a token; it is shown once, the file keeps its hash alone")
    new.add_argument("id", help="whose it is: shown in jobs and logs")
    new.add_argument(
        "--scope",
        action="extend",
        type=some_of(*TokenScope, "all"),
        metavar="SCOPE",
        required=True,
        help=f"{', '.join(TokenScope)}, or all; may be repeated",
    )
    new.add_argument("--namespace", default="", help="all that it sees: models, jobs and files of this namespace")
    new.add_argument(
        "--days", type=number(_LEAST_DAYS, _MOST_DAYS), help="how long it is good (default: until it is removed)"
    )
    remove = actions.add_parser("remove", help="take a token away; services notice within a call")
    remove.add_argument("id")
    show = actions.add_parser("list", help="ids, scopes and namespaces, and what each namespace may hold")
    quota = actions.add_parser("quota", help="what a namespace may hold at once; 0 is no limit of its own")
    quota.add_argument("namespace")
    for option, what in _QUOTAS.items():
        quota.add_argument(f"--{option.replace('_', '-')}", type=whole(0), metavar="N", help=what.replace("_", " "))
    for parser, run in ((new, _new), (remove, _remove), (show, _list), (quota, _quota)):
        parser.set_defaults(run=run)
        parser.add_argument(
            "--file", type=Path, help=f"what INGOT_API_TOKENS names (default: {TOKENS_FILE} in the home)"
        )
        add_common(parser)


def _new(arguments: argparse.Namespace, output: Output) -> int:
    scopes = list(TokenScope) if "all" in arguments.scope else arguments.scope
    expires = time.time() + arguments.days * _DAY_SECONDS if arguments.days else 0.0
    with editing(_path(arguments)) as held:
        held[0], token = held[0].with_token(Principal(arguments.id, arguments.namespace, scopes_of(scopes)), expires)
    output.document({"id": arguments.id, "token": token})
    output.note("Keep it: it is shown this once. Clients take it from INGOT_TOKEN, or from the file INGOT_TOKEN_FILE.")
    output.say(token)
    return SUCCESS


def _remove(arguments: argparse.Namespace, output: Output) -> int:
    with editing(_path(arguments)) as held:
        held[0] = held[0].without(arguments.id)
    output.document({"removed": arguments.id})
    output.say(f"{arguments.id} is let in no more")
    return SUCCESS


def _quota(arguments: argparse.Namespace, output: Output) -> int:
    given = {what: getattr(arguments, option) for option, what in _QUOTAS.items()}
    given = {what: limit for what, limit in given.items() if limit is not None}
    with editing(_path(arguments)) as held:
        held[0] = held[0].with_quota(arguments.namespace, given)
        quota = held[0].document["namespaces"][arguments.namespace]
    output.document({"namespace": arguments.namespace, **quota})
    output.say(
        f"{arguments.namespace}: " + (", ".join(f"{what} {limit}" for what, limit in quota.items()) or "no limits")
    )
    return SUCCESS


def _list(arguments: argparse.Namespace, output: Output) -> int:
    path = _path(arguments)
    file = TokenFile.empty() if arguments.file is None and not path.exists() else read_token_file(path)
    rows = []
    for grant in file.grants:
        until = datetime.fromtimestamp(grant.expires, UTC).isoformat(timespec="seconds") if grant.expires else ""
        rows.append((grant.principal.user, sorted(grant.principal.scopes), grant.principal.namespace, until))
    names = ("id", "scopes", "namespace", "expires")
    quotas = file.document.get("namespaces", {})
    output.document({"tokens": [dict(zip(names, row, strict=True)) for row in rows], "namespaces": quotas})
    output.table(names, [(user, ", ".join(scopes), namespace, until) for user, scopes, namespace, until in rows])
    if quotas:
        limits = [(namespace, *(own.get(what) or "" for what in _QUOTAS.values())) for namespace, own in quotas.items()]
        output.table(("namespace", *(f">{what.replace('_', ' ')}" for what in _QUOTAS.values())), limits)
    return SUCCESS


def _path(arguments: argparse.Namespace) -> Path:
    return Path(arguments.file or home_directory(arguments.home) / TOKENS_FILE)
