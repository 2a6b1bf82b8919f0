"""What of this machine a process that reads models must not reach: keys, stores, queues, credentials."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from shared_ir.errors import IngotError
from shared_ir.service_kit.access.secret_files import read_secret

_OF_HOME = ("", "signing.pem", "order.pem", "trust", "store", "work")
_OF_USER = (".ssh", ".gnupg", ".aws", ".azure", ".config", ".docker", ".kube", ".netrc", ".git-credentials", ".pypirc")
_PREFIXES = ("INGOT_", "AWS_", "AZURE_", "GOOGLE_")
_PUBLIC = ("_CERTIFICATE", "_CLIENT_CA", "_CA_BUNDLE")
"""Ends of variables that name what everyone is shown."""
_PATHS = ("INGOT_HOME", "INGOT_TRUST", "INGOT_SIGNING_KEY", "INGOT_ORDER_KEY", "INGOT_API_TOKENS", "INGOT_CACHE_DIR")
"""Paths even where no ``/`` shows it."""
_OF_THE_SYSTEM = ("/dev", "/proc", "/sys")


def private_places(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Real paths, whether something is there or not: whatever settings of ours and of object stores name as a path, the folder of a
    Redis behind a Unix socket, what an installation keeps where nothing is set, and the user's own credentials."""
    named = (place for name, text in environment.items() for place in _named(name, text))
    real = map(os.path.realpath, (*_usual(environment), *named))
    return tuple(dict.fromkeys(place for place in real if not any(_within(place, own) for own in _OF_THE_SYSTEM)))


def held(folder: str, private: Sequence[str]) -> tuple[str, ...]:
    """Which of ``private`` are ``folder`` or lie in it."""
    real = os.path.realpath(folder)
    return tuple(place for place in private if _within(place, real))


def without(folder: str, private: Sequence[str]) -> Iterator[str]:
    """``folder``, or what lies in it beside the private places; those folders between are then not given, as each would give all."""
    found = held(folder, private)
    if not found:
        yield folder
    elif os.path.realpath(folder) not in found:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_symlink():  # leads to where grants of its own are
                    yield from without(entry.path, found)


def _usual(environment: Mapping[str, str]) -> Iterator[str]:
    user = os.path.expanduser("~")
    yield from (os.path.join(user, name) for name in _OF_USER)
    home = environment.get("INGOT_HOME") or os.path.join(user, ".ingot")
    yield from (os.path.join(home, name) for name in _OF_HOME)
    if not environment.get("INGOT_CACHE_DIR"):
        yield os.path.join(environment.get("XDG_CACHE_HOME") or os.path.join(user, ".cache"), "ingot")


def _named(name: str, text: str) -> Iterator[str]:
    if not text or not name.startswith(_PREFIXES) or name.endswith(_PUBLIC):
        return
    yield from _places(name, text)
    if name.endswith("_URL_FILE"):
        with contextlib.suppress(IngotError):
            yield from _places(name.removesuffix("_FILE"), read_secret(Path(text), name))


def _places(name: str, text: str) -> Iterator[str]:
    scheme, has_scheme, rest = text.partition(":")
    if has_scheme and "/" not in scheme:
        path = unquote(urlsplit(text).path) if rest.startswith("//") else rest
        if scheme == "file":
            yield path
        elif scheme in ("unix", "redis+socket"):
            yield os.path.dirname(path) if name == "INGOT_REDIS_URL" else path
    elif "/" in text or name in _PATHS:
        yield text


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
