"""Keeping a store in order, by whoever runs the service: ``python -m compiler_service.housekeeping``.

``retain`` deletes versions that no rule keeps, ``collect`` takes what nothing needs any more, ``index`` writes the ``index.json`` by
which a store on local disk is an OCI image layout. Each can run beside the service, at any time, and more than once.
"""

from __future__ import annotations

import argparse
import getpass
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from compiler_service.jobs.needs import needs_of_jobs
from compiler_service.jobs.persistence.seal import Seal
from compiler_service.keys import worker_keys
from compiler_service.settings import CompilerSettings, variable
from shared_ir.artifact.memory import MEMORY_FILE, Memory
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.printable import printable, printable_json
from shared_ir.registry.collection import Collected, CollectionTimes, Pins, collect
from shared_ir.registry.retention import Retention, RetentionOutcome, retain
from shared_ir.service_kit.telemetry.log import say_why_not, start_log
from shared_ir.storage.local import FileStore
from shared_ir.storage.mark import has_begun
from shared_ir.storage.protocol import ObjectStore
from shared_ir.storage.store import open_store
from shared_ir.usage import UsageError, UsageParser

_HOUR, _DAY = 3600.0, 24 * 3600.0


def open_repository(settings: CompilerSettings) -> ArtifactRepository:
    keys = worker_keys(settings)
    memory = Memory(settings.home / MEMORY_FILE)
    store = open_store(settings.store, settings.cache / "objects", memory)
    return ArtifactRepository(store, keys.trust, keys.signer, memory)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0 done, 1 refused or not possible, 2 wrong usage. Raises SystemExit for ``--help``."""
    texts = sys.argv[1:] if arguments is None else list(arguments)
    start_log("housekeeping")
    try:
        given = parser().parse_args(texts)
        settings = CompilerSettings.from_environment()
        repository = open_repository(settings)
        _require_begun(repository.store)
        answer = given.run(given, settings, repository)
    except IngotError as error:
        if "--json" in texts:
            print(printable_json(json.dumps({"error": error.to_dict()}, ensure_ascii=False)), file=sys.stderr)
        else:
            say_why_not(error)
        return 2 if isinstance(error, UsageError) else 1
    print(json.dumps(answer, indent=2) if given.json else printable(_text(answer)))
    return 0


def _require_begun(store: ObjectStore) -> None:
    """Nothing is to be put in order where nothing was kept yet. Raises IngotError NOT_FOUND."""
    if isinstance(store, FileStore) and not has_begun(store.root):
        raise IngotError(
            ErrorCode.NOT_FOUND,
            "there is no store",
            field=variable("store_url"),
            received=store.url,
            remedy="Give it the environment of a worker. A store begins when a service first writes to it.",
        )


def _retain(
    given: argparse.Namespace, settings: CompilerSettings, repository: ArtifactRepository
) -> list[dict[str, Any]]:
    rule = Retention(given.keep_last, given.keep_days)
    outcomes = retain(repository, rule, given.models, f"retention by {getpass.getuser()}", given.dry_run)
    return [asdict(outcome) for outcome in outcomes if outcome.deleted or outcome.left]


def _collect(given: argparse.Namespace, settings: CompilerSettings, repository: ArtifactRepository) -> dict[str, Any]:
    rule = CollectionTimes(given.grace_hours * _HOUR, given.keep_cache_days * _DAY, given.keep_sources_days * _DAY)
    by = f"collection by {getpass.getuser()}"
    keys = worker_keys(settings)
    seal = Seal(keys.sealer, keys.order_trust)

    def pins() -> Pins:
        return needs_of_jobs(settings.redis_url, repository.store, seal)

    return asdict(collect(repository, pins, rule, given.dry_run, by))


def _index(given: argparse.Namespace, settings: CompilerSettings, repository: ArtifactRepository) -> dict[str, Any]:
    repository.rebuild_index()
    return {"index": f"{repository.store.url}/index.json"}


def _text(answer: Any) -> str:
    if isinstance(answer, list):
        outcomes = [RetentionOutcome(**own) for own in answer]
        lines = [f"{own.name}: {', '.join(map(str, own.deleted)) or 'none'} {' '.join(own.left)}" for own in outcomes]
        return "\n".join(lines) or "every version is kept"
    if "index" in answer:
        return str(answer["index"])
    found = Collected(**answer)
    taken = "would be taken" if found.dry_run else "taken"
    lines = [
        f"generation {found.generation}: {len(found.taken)} objects ({found.taken_bytes} bytes) {taken}, "
        f"{found.kept} blobs needed, {found.condemned} blobs not needed that stay for the time of grace"
    ]
    lines += [f"nothing is taken, since {key} cannot be read: {reason}" for key, reason in found.unreadable.items()]
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """What may follow ``python -m compiler_service.housekeeping``."""
    own = UsageParser(
        prog="python -m compiler_service.housekeeping",
        description="Keep the store of a compiler service in order. Settings are those of the service (INGOT_*).",
    )
    commands = own.add_subparsers(metavar="COMMAND", required=True)
    retain_ = commands.add_parser("retain", help="delete versions that no rule keeps; those with a label always stay")
    retain_.add_argument("models", nargs="*", help="these models; by default all")
    retain_.add_argument(
        "--keep-last", type=int, required=True, metavar="N", help="the newest N versions of each model"
    )
    retain_.add_argument("--keep-days", type=float, default=0.0, metavar="D", help="versions younger than D days")
    retain_.set_defaults(run=_retain)
    collect_ = commands.add_parser("collect", help="take what no version, label, job or download needs")
    collect_.add_argument("--grace-hours", type=float, default=24.0, help="blobs that nothing needs stay for so long")
    collect_.add_argument(
        "--keep-cache-days", type=float, default=30.0, help="artifacts of no version that are not used"
    )
    collect_.add_argument("--keep-sources-days", type=float, default=0.0, help="uploaded models; 0: they are kept")
    collect_.set_defaults(run=_collect)
    index = commands.add_parser("index", help="write index.json: the store as an OCI image layout, for other tools")
    index.set_defaults(run=_index)
    for command in (retain_, collect_):
        command.add_argument("--dry-run", action="store_true", help="say what would be done")
    for command in (retain_, collect_, index):
        command.add_argument("--json", action="store_true", help="print JSON, for programs")
    return own


if __name__ == "__main__":
    sys.exit(main())
