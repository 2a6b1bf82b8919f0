"""S3, Google Cloud Storage and Azure behind the same protocol as a directory, through obstore."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, S3Store, from_url

from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.printable import printable
from shared_ir.service_kit.access.secret_files import SUFFIX, with_secret_files
from shared_ir.storage.cache import CACHE_LIMIT_BYTES, ObjectCache
from shared_ir.storage.parts import PART_BYTES, PartsDraft
from shared_ir.storage.protocol import Data, Identity, ObjectDraft, ObjectInfo, check_key, not_found, too_large

_PARTS_AT_ONCE = 2
"""Of an object that is put together from pieces: so many are in memory on their way."""

SECRETS = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CLIENT_SECRET"),
)
_LOG = logging.getLogger("ingot.store")
_QUIET_SECONDS = 10.0
_MOST_TOLD = 2000
_REASONS: dict[type[Exception], str] = {
    PermissionDeniedError: "the store refuses it",
    UnauthenticatedError: "the store does not take the credentials",
}
_SETTINGS = {
    "az": "Name the account in AZURE_STORAGE_ACCOUNT_NAME, and set its credentials, such as AZURE_STORAGE_ACCOUNT_KEY.",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS to the file of a service account.",
    "s3": "Look at AWS_REGION, AWS_ENDPOINT_URL and the credentials.",
}
P = ParamSpec("P")
R = TypeVar("R")


def _secrets() -> dict[str, str]:
    """Those that stand in files; obstore itself finds the others."""
    named = {name for name in SECRETS if name + SUFFIX in os.environ}
    found = with_secret_files(os.environ, named)
    return {name.lower(): found[name] for name in named}


class StoreLog:
    """What a store answers that clients are not told: its address, its bucket. The same fault is told once in a while."""

    def __init__(self) -> None:
        self._next = 0.0

    def tell(self, text: str) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _QUIET_SECONDS
            _LOG.warning("%s", printable(text, kept="")[:_MOST_TOLD])


@dataclass(frozen=True)
class RemoteStore:
    """A bucket, or a folder in one."""

    url: str
    store: S3Store | GCSStore | AzureStore
    cache: ObjectCache
    log: StoreLog = field(default_factory=StoreLog, compare=False)

    @classmethod
    def open(cls, url: str, cache: Path, limit: int = CACHE_LIMIT_BYTES) -> RemoteStore:
        """Credentials, region and endpoint come from the environment; secrets from files too, that variables of :data:`SECRETS` with
        ``_FILE`` behind them name.

        Raises:
            IngotError: INVALID_ARGUMENT.
        """
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        options = {"allow_http": True} if endpoint.startswith("http://") else {}
        try:
            # obstore answers with the subclass for the scheme of the URL
            store = from_url(url, config=_secrets(), client_options=options, retry_config={"max_retries": 3})  # type: ignore[call-overload]
        except BaseError as error:
            message, remedy = "the object store cannot be opened", _SETTINGS.get(url.partition(":")[0], "")
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT, message, field=url, received=_said(error)[:300], remedy=remedy
            ) from error
        return cls(url, store, ObjectCache(cache, limit))

    def put(self, key: str, data: Data) -> None:
        small = not isinstance(data, Path) and len(data) <= PART_BYTES  # one request and no three
        self._call(key, obstore.put, self.store, check_key(key), data, use_multipart=False if small else None)

    def put_pieces(self, key: str, pieces: Iterator[bytes]) -> None:
        """As :meth:`put`, of what is too large for memory; where ``pieces`` raises, nothing is written."""
        self._call(
            key, obstore.put, self.store, check_key(key), pieces, chunk_size=PART_BYTES, max_concurrency=_PARTS_AT_ONCE
        )

    def put_if_absent(self, key: str, data: Data) -> bool:
        """NOTE: a conditional write is one request, so content in a file, which may be large, is checked first and then
        put. Such content is stored under its digest: whoever comes second writes the same bytes."""
        if isinstance(data, Path) or len(data) > 64 * 1024**2:
            if self.size(key) is not None:
                return False
            self.put(key, data)
            return True
        try:
            self._call(key, obstore.put, self.store, check_key(key), data, mode="create", use_multipart=False)
        except FileExistsError:
            return False
        return True

    def replace(self, key: str, data: bytes, tag: str) -> bool:
        """NOTE: a request whose answer was lost is sent again by the client, and fails then because it was done; so who fails looks
        whether what is there is what was to be written."""
        try:
            self._call(key, obstore.put, self.store, check_key(key), data, mode={"e_tag": tag}, use_multipart=False)
        except FileExistsError:
            return False
        return True

    def get(self, key: str, limit: int | None = None) -> bytes:
        return self.get_tagged(key, limit)[0]

    def get_tagged(self, key: str, limit: int | None = None) -> tuple[bytes, str]:
        found = self._call(key, obstore.get, self.store, check_key(key))
        size = int(found.meta["size"])
        if limit is not None and size > limit:
            raise too_large(key, limit, size)
        return bytes(self._call(key, lambda: found.bytes())), str(found.meta["e_tag"] or "")

    def pieces(self, key: str) -> Iterator[bytes]:
        stream = iter(self._call(key, obstore.get, self.store, check_key(key)).stream())
        while (piece := self._call(key, next, stream, None)) is not None:
            yield bytes(piece)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        size = self.size(key)
        if size is None:
            raise not_found(key)
        length = min(length, size - start)
        if length <= 0:
            return b""
        return bytes(self._call(key, obstore.get_range, self.store, check_key(key), start=start, length=length))

    def size(self, key: str) -> int | None:
        found = self.identity(key)
        return None if found is None else found.size

    def identity(self, key: str) -> Identity | None:
        try:
            head = self._call(key, obstore.head, self.store, check_key(key))
        except IngotError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return None
            raise
        size, modified = int(head["size"]), head["last_modified"].timestamp()
        return Identity(size, _tag(head["e_tag"], size, modified), modified)

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        pages = self._call(
            prefix, lambda: iter(obstore.list(self.store, check_key(prefix) + "/", offset=after or None))
        )
        while page := self._call(prefix, next, pages, None):
            for item in sorted(page, key=lambda item: item["path"]):
                size, modified = int(item["size"]), item["last_modified"].timestamp()
                yield ObjectInfo(item["path"], size, modified, _tag(item["e_tag"], size, modified))

    def keys(self, prefix: str, after: str = "") -> Iterator[str]:
        return (info.key for info in self.list(prefix, after))

    def folders(self, prefix: str) -> tuple[str, ...]:
        found = self._call(prefix, obstore.list_with_delimiter, self.store, check_key(prefix) + "/")
        return tuple(sorted(path.rstrip("/").rpartition("/")[2] for path in found["common_prefixes"]))

    def delete_unused(self, key: str, before: float) -> bool:
        """NOTE: stores have no conditional deletion; what is written in the milliseconds between the two requests is deleted too."""
        found = self.identity(key)
        if found is None or found.modified >= before:
            return False
        self.delete(key)
        return True

    def delete(self, key: str) -> None:
        try:
            self._call(key, obstore.delete, self.store, check_key(key))
        except IngotError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise

    def local_path(self, key: str, limit: int | None = None) -> Path:
        head = self._call(key, obstore.head, self.store, check_key(key))
        size = int(head["size"])
        if limit is not None and size > limit:
            raise too_large(key, limit, size)
        version = head["e_tag"] or f"{head['last_modified']}"
        name = sha256_hex("\0".join((self.url, key, version, str(head["size"]))).encode())
        found = self.cache.find(name)
        if found is not None:
            return found
        result = self._call(key, obstore.get, self.store, check_key(key))
        if limit is not None and int(result.meta["size"]) > limit:  # it has changed since
            raise too_large(key, limit, int(result.meta["size"]))
        return self._call(key, lambda: self.cache.add(name, (bytes(chunk) for chunk in result.stream())))

    def holding(self) -> AbstractContextManager[None]:
        return self.cache.holding()

    def draft(self, key: str) -> ObjectDraft:
        return PartsDraft(self, check_key(key))

    def _call(self, key: str, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        """``function``, its errors in our words. FileExistsError passes: only a conditional put raises it."""
        try:
            return function(*arguments, **options)
        except (AlreadyExistsError, PreconditionError) as error:
            raise FileExistsError(key) from error
        except (NotFoundError, FileNotFoundError) as error:
            raise not_found(key) from error
        except BaseError as error:
            self.log.tell(f"{self.url}/{key}: {_said(error)}")
            raise IngotError(
                ErrorCode.UNAVAILABLE,
                "the object store did not do what it was asked to",
                field=key,
                received=_REASONS.get(type(error), "no answer, or an error of its own"),
                remedy="Try again; the log of the service says what the store answered.",
            ) from error


def _said(error: BaseError) -> str:
    """What the client says, without what it says to those who write it."""
    return str(error).partition("\n\nDebug source")[0]


def _tag(e_tag: str | None, size: int, modified: float) -> str:
    return f"{e_tag}-{size}-{modified}"
