"""Bytes that tuners sent, by their digest, in sealed memory: what was compared with its digest once cannot change."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping

from shared_ir.errors import ErrorCode, IngotError

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class ContentCache:
    """Contents that take at most ``most_bytes`` together, in whole pages; those that were not used for longest make room."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Digest -> descriptor and bytes taken."""
        self._taken = 0

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Those that are not here; the others count as used."""
        with self._lock:
            found = [digest for digest in dict.fromkeys(digests) if digest not in self._held]
            for digest in dict.fromkeys(digests):
                if digest in self._held:
                    self._held.move_to_end(digest)
            return found

    def put(self, digest: str, size: int, pieces: Iterable[bytes]) -> None:
        """Keep ``pieces``, ``size`` bytes with the sha256 ``digest``.

        Raises:
            IngotError: LIMIT_EXCEEDED; CHECKSUM_MISMATCH, they are not what was announced; OUT_OF_MEMORY.
        """
        taken = max(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE, mmap.PAGESIZE)
        if taken > self.most_bytes:
            raise IngotError(
                ErrorCode.LIMIT_EXCEEDED,
                "the content is larger than all that the device keeps",
                field="size",
                expected=f"at most {self.most_bytes} bytes",
                received=f"{size} bytes",
                remedy="Start the measuring server with a larger --cache-bytes.",
            )
        descriptor = os.memfd_create("ingot-content", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            _fill(descriptor, digest, size, pieces)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            self._keep(digest, descriptor, taken)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                message = f"the device has no memory for a content: {error.strerror}"
                raise IngotError(ErrorCode.OUT_OF_MEMORY, message, received=f"{size} bytes") from error
            raise

    @contextlib.contextmanager
    def borrowed(self, digests: Collection[str]) -> Iterator[Mapping[str, int]]:
        """Descriptors of contents, which stay good in the block whatever leaves the cache.

        Raises:
            IngotError: NOT_FOUND, one is not here.
        """
        found: dict[str, int] = {}
        try:
            with self._lock:
                for digest in digests:
                    if digest not in self._held:
                        raise IngotError(
                            ErrorCode.NOT_FOUND,
                            "the device does not have a content that the order names",
                            field=digest[:64],
                            remedy="Send it first; together they must fit the cache of the device.",
                        )
                    self._held.move_to_end(digest)
                    found[digest] = os.dup(self._held[digest][0])
            yield found
        finally:
            for descriptor in found.values():
                os.close(descriptor)

    def close(self) -> None:
        with self._lock:
            for descriptor, _ in self._held.values():
                os.close(descriptor)
            self._held.clear()
            self._taken = 0

    def _keep(self, digest: str, descriptor: int, taken: int) -> None:
        with self._lock:
            if digest in self._held:  # another call was faster
                os.close(descriptor)
                return
            while self._held and self._taken + taken > self.most_bytes:
                _, (old, size) = self._held.popitem(last=False)
                os.close(old)
                self._taken -= size
            self._held[digest] = descriptor, taken
            self._taken += taken


def size_of(descriptor: int) -> int:
    return os.fstat(descriptor).st_size


def _fill(descriptor: int, digest: str, size: int, pieces: Iterable[bytes]) -> None:
    read, filled = hashlib.sha256(), 0
    for piece in pieces:
        filled += len(piece)
        if filled > size:
            break
        read.update(piece)
        view = memoryview(piece)
        while view:
            view = view[os.write(descriptor, view) :]
    if filled != size or read.hexdigest() != digest:
        raise IngotError(
            ErrorCode.CHECKSUM_MISMATCH,
            "the bytes that arrived are not those that were announced",
            field="digest",
            expected=f"{size} bytes with sha256 {digest[:64]}",
            received=f"{'more than ' if filled > size else ''}{min(filled, size)} bytes with sha256 {read.hexdigest()}",
            remedy="Send them again.",
        )
