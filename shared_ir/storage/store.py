"""Object storage: where models and artifacts live. The truth of the platform; Redis only speeds it up."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.extras import needing
from shared_ir.storage.cache import CACHE_LIMIT_BYTES
from shared_ir.storage.faults import file_error
from shared_ir.storage.local import FileStore
from shared_ir.storage.mark import Marks, StoreMark
from shared_ir.storage.protocol import ObjectStore

_CREDENTIALS = (
    "Credentials go into variables: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AZURE_STORAGE_ACCOUNT_NAME and "
    "AZURE_STORAGE_ACCOUNT_KEY, GOOGLE_APPLICATION_CREDENTIALS."
)


def open_store(
    url: str,
    cache: Path | None = None,
    marks: Marks | None = None,
    *,
    begins: bool = True,
    cache_bytes: int = CACHE_LIMIT_BYTES,
) -> ObjectStore:
    """The store at ``url``: ``file:///data/store``, a plain path, ``s3://bucket/prefix``, ``gs://...`` or ``az://...``.

    Credentials and endpoint of remote stores come from the environment: ``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ...
    ``cache`` is where copies of remote objects are kept, by default under ``XDG_CACHE_HOME``, and ``cache_bytes`` what they may take (0: no
    limit). With ``marks`` a folder is refused, whenever
    it is used, that is not the store that was seen before; where none was, one begins, unless ``begins`` is false.

    Raises:
        IngotError: INVALID_ARGUMENT; UNAVAILABLE when the client of remote stores is not installed.
    """
    parts = _split(url)
    if parts.scheme in ("", "file"):
        path = Path(unquote(parts.path)) if parts.scheme else Path(url)
        if parts.netloc not in ("", "localhost") or not str(path):
            raise _bad_url(url)
        if marks is not None:
            root = path.absolute()
            if begins and (unusable := _unusable(root)) is not None and not marks.mark(root.as_uri()):
                raise unusable
            return FileStore(root, StoreMark(root, root.as_uri(), marks, begins))
        path.mkdir(parents=True, exist_ok=True)
        return FileStore(path.absolute())
    if parts.scheme not in ("s3", "gs", "az") or not parts.netloc:
        raise _bad_url(url)
    # NOTE: imported here so that local use needs no obstore.
    with needing("runtime", "the client of remote stores"):
        from shared_ir.storage.remote import RemoteStore

    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ingot" / "objects"
    return RemoteStore.open(url, cache or default, cache_bytes)


def _unusable(root: Path) -> IngotError | None:
    """Why no folder can be made at ``root``. NOTE: none is made: the store that is expected there may be away for a while."""
    existing = next(place for place in (root, *root.parents) if os.path.lexists(place))
    try:
        with tempfile.TemporaryDirectory(prefix=".ingot-", dir=existing):
            return None
    except OSError as error:
        found = file_error(OSError(error.errno, error.strerror), "the folder of the store cannot be used", root)
        passes = found.code in (ErrorCode.DISK_FULL, ErrorCode.UNAVAILABLE)
        return None if passes else found


def _split(url: str) -> SplitResult:
    """The parts of a URL without credentials: these would stand wherever it is named. Raises IngotError INVALID_ARGUMENT."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _bad_url("brackets that are no address") from error
    is_url = bool(parts.scheme or parts.netloc)
    if is_url and ("@" in parts.netloc or "?" in url or "#" in url):
        raise _bad_url("one with a user, a password or a query", _CREDENTIALS)
    return parts


def _bad_url(received: str, remedy: str = "") -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "not the URL of an object store",
        field="INGOT_STORE_URL",
        expected="file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix",
        received=received[:200],
        remedy=remedy,
    )
