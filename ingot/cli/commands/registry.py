"""What ``ingot models`` changes beside labels, and ``ingot events``: who changed what when."""

from __future__ import annotations

import argparse
import time
from typing import Any

from ingot.cli.arguments import add_common, add_service, make_client
from ingot.cli.output import SUCCESS, Output
from ingot.cli.values import MOMENT, moment, one_of, whole
from ingot.client import Client

USUAL_LIMIT = 50
ACTIONS = ("publish", "set-label", "delete-label", "delete-version", "delete-model", "collect")
"""What the audit log tells of."""


def add_options(models: argparse.ArgumentParser) -> None:
    """Of ``ingot models``."""
    models.add_argument(
        "--limit", type=whole(0), default=USUAL_LIMIT, help="show so many models, or newest versions; 0: all"
    )
    models.add_argument("--prefix", default="", help="only models whose name starts with this")
    models.add_argument(
        "--etag", default="", help="change the label only where it still has this etag (0: where there is none)"
    )
    models.add_argument(
        "--delete-version", action="append", default=[], type=whole(1), metavar="VERSION", help="one without a label"
    )
    models.add_argument("--delete", action="store_true", help="delete the model: all of its versions")
    models.add_argument("--force", action="store_true", help="with --delete: its labels too")


def add_parser(commands: Any) -> None:
    events = commands.add_parser("events", help="who changed what of the published models, the newest first")
    events.add_argument("model", nargs="?", default="", help="only those of this model")
    events.add_argument(
        "--action", type=one_of(*ACTIONS), default="", help=f"{', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}"
    )
    events.add_argument("--by", default="", help="only what this user asked for")
    for option in ("--since", "--until"):
        events.add_argument(option, type=moment, default=0.0, metavar="TIME", help=MOMENT)
    events.add_argument("--limit", type=whole(0), default=USUAL_LIMIT, help="at most so many; 0: all")
    events.set_defaults(run=run_events)
    add_service(events)
    add_common(events)


def run_events(arguments: argparse.Namespace, output: Output) -> int:
    with make_client(arguments) as client:
        found = client.events(
            arguments.model, arguments.action, arguments.by, arguments.since, arguments.until, at_most(arguments.limit)
        )
    output.document(found)
    rows = [
        (shown(e.time), e.action, e.model, e.version or "", e.label, e.before[:19], e.after[:19], e.by) for e in found
    ]
    output.table(("time", "action", "model", ">version", "label", "before", "after", "by"), rows)
    return SUCCESS


def delete(client: Client, arguments: argparse.Namespace, output: Output) -> bool:
    """Whether the model is gone."""
    for version in arguments.delete_version:
        client.delete_version(arguments.name, version)
        output.note(f"version {version} of {arguments.name} is deleted")
    if arguments.delete:
        count = client.delete_model(arguments.name, arguments.force)
        output.document({"deleted": arguments.name, "versions": count})
        output.say(f"{arguments.name} is deleted: {count} versions")
    return bool(arguments.delete)


def at_most(limit: int) -> int | None:
    """None for all."""
    return limit or None


def shown(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
