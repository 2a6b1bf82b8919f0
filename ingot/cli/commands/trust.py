"""``ingot trust``: whose models may run as native code on this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ingot.cli.arguments import SERVICE, add_common, add_service, make_client
from ingot.cli.output import SUCCESS, Output
from ingot.cli.usage import Way
from ingot.home import home_directory
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.faults import require_writable, told

_ADD = Way.of("where a key is added", f"fingerprint {SERVICE}")
_LIST = Way.of("where keys are listed", "list home")
_REMOVE = Way.of("where a key is taken away", "remove home")


def add_parser(commands: Any) -> None:
    trust = commands.add_parser("trust", help="let models of a compiler service run on this machine")
    what = trust.add_mutually_exclusive_group()
    what.add_argument(
        "--fingerprint",
        metavar="sha256:...",
        help="of the key that the service must have, from who runs it; needed where nobody can be asked",
    )
    what.add_argument("--list", action="store_true", help="show the keys that are trusted here")
    what.add_argument("--remove", metavar="KEY_ID", help="trust a key no longer: what it signed is not loaded any more")
    trust.set_defaults(run=run, way=_way)
    add_service(trust)
    add_common(trust)


def run(arguments: argparse.Namespace, output: Output) -> int:
    directory = home_directory(arguments.home) / "trust"
    if arguments.remove is not None:
        _remove(directory, arguments.remove)
    if arguments.remove is not None or arguments.list:
        return _show(directory, output)
    return _add(arguments, directory, output)


def _way(arguments: argparse.Namespace) -> Way:
    return _REMOVE if arguments.remove is not None else _LIST if arguments.list else _ADD


def _add(arguments: argparse.Namespace, directory: Path, output: Output) -> int:
    # NOTE: imported here because signatures need `cryptography`, which other commands should not wait for.
    from shared_ir.artifact.signature import add_trusted, fingerprint, key_id, read_public, trusted_files

    require_writable(directory, "the folder of trusted keys")
    with make_client(arguments) as client:
        address, pem = client.address, client.capabilities().signing_key
    if not pem:
        raise IngotError(
            ErrorCode.UNAVAILABLE,
            f"the service at {address} does not know yet which key its workers sign with",
            remedy="Ask again when a worker runs, or get the public key from who runs the service.",
        )
    key = read_public(pem.encode(), f"the signing key of {address}")
    shown, identifier = fingerprint(key), key_id(key)
    known = next((path for path, own in trusted_files(directory) if fingerprint(own) == shown), None)
    output.note(f"{address} signs with key {identifier}\n  {shown}")
    if arguments.fingerprint is not None:
        _compare(arguments.fingerprint, shown)
    elif known is None:
        _ask(output)
    path = known or add_trusted(directory, key)
    output.document({"key_id": identifier, "fingerprint": shown, "file": str(path)})
    output.say(f"models signed by key {identifier} may run here {'as before' if known else 'now'} ({path})")
    return SUCCESS


def _compare(given: str, shown: str) -> None:
    if given.strip().lower().removeprefix("sha256:") == shown.removeprefix("sha256:"):
        return
    raise IngotError(
        ErrorCode.ARTIFACT_UNTRUSTED,
        "the service signs with another key than the one you named: it is not trusted",
        field="--fingerprint",
        expected=given[:100],
        received=shown,
        remedy="Ask who runs the service for the fingerprint of its key; perhaps this is another service.",
    )


def _ask(output: Output) -> None:
    """Raises IngotError unless a person at a terminal says yes."""
    if output.json or not sys.stdin.isatty():
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "a key is trusted only after its fingerprint was compared",
            field="--fingerprint",
            remedy="Get the fingerprint from who runs the service (`ingot up` and its log show it), and give it with --fingerprint.",
        )
    output.note(
        "Who has this key can run code of their own on this machine. Compare the fingerprint with what the service shows."
    )
    print("Trust it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise IngotError(ErrorCode.CANCELLED, "the key is not trusted")


def _remove(directory: Path, identifier: str) -> None:
    from shared_ir.artifact.signature import TrustStore, remove_trusted

    with told("the key cannot be taken away", directory):
        is_gone = remove_trusted(directory, identifier)
    if not is_gone:
        known = ", ".join(sorted(TrustStore.load(directory).keys)) or "none"
        raise IngotError(ErrorCode.NOT_FOUND, "no such key is trusted here", field=identifier[:100], expected=known)


def _show(directory: Path, output: Output) -> int:
    from shared_ir.artifact.signature import TrustStore, fingerprint

    keys = TrustStore.load(directory).keys
    rows = [(identifier, fingerprint(key)) for identifier, key in sorted(keys.items())]
    output.document([{"key_id": identifier, "fingerprint": text} for identifier, text in rows])
    output.table(("key", "fingerprint"), rows)
    return SUCCESS
