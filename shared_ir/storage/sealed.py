"""Files read into memory that nobody else can change, for what is verified once and used for as long as a process runs.

A mapping of a file shows what others write into it later, and ends a process with SIGBUS where they cut it short. A copy in private
memory does neither. It is not shared with other processes; large pages make it as fast to read as a file in the page cache, which
a memfd is not where the kernel has no large pages for those (``shmem_enabled``).
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shared_ir.digest import TREE_CHUNK_BYTES, tree_of
from shared_ir.errors import ErrorCode, IngotError

_LARGE_PAGE = 2 << 20
_PROT_READ = 1


def read_sealed(path: Path, size: int, threads: int = 4) -> tuple[memoryview, str]:
    """The ``size`` bytes of a file in read-only memory of this process, and the tree digest of just these bytes.

    Raises:
        IngotError: ARTIFACT_CORRUPT, the file is shorter; RESOURCE_EXHAUSTED.
    """
    if not size:
        return memoryview(b""), tree_of(0, [])
    memory = _memory(size)
    starts = range(0, size, TREE_CHUNK_BYTES)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:

        def leaf(start: int) -> bytes:
            part = memory[start : start + TREE_CHUNK_BYTES]
            _fill(descriptor, part, start, path)
            return hashlib.sha256(part).digest()

        with ThreadPoolExecutor(max_workers=min(threads, len(starts))) as pool:
            leaves = list(pool.map(leaf, starts))
    finally:
        os.close(descriptor)
    _forbid_writing(memory)
    return memory.toreadonly(), tree_of(size, leaves)


def _memory(size: int) -> memoryview:
    """Private memory that starts where a large page may; what is not touched takes no room."""
    try:
        mapping = mmap.mmap(-1, size + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise IngotError(
            ErrorCode.RESOURCE_EXHAUSTED, "no memory for the weights of the model", received=f"{size} bytes"
        ) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel that is built without them
            mapping.madvise(mmap.MADV_HUGEPAGE)
    view = memoryview(mapping)
    start = -_address(view) % _LARGE_PAGE
    return view[start : start + size]


def _fill(descriptor: int, part: memoryview, start: int, path: Path) -> None:
    """NOTE: its pages are made first: where a read meets one that is not there yet, the kernel goes on in small pieces, which
    takes up to twenty times as long."""
    ctypes.memset(_address(part), 0, len(part))
    filled = 0
    while filled < len(part):
        count = os.preadv(descriptor, [part[filled:]], start + filled)
        if not count:
            raise IngotError(
                ErrorCode.ARTIFACT_CORRUPT,
                "a file became shorter while it was read",
                field=str(path),
                remedy="Fetch the artifact again from its source, or compile it again.",
            )
        filled += count


def _forbid_writing(memory: memoryview) -> None:
    """NOTE: what a kernel would write here by mistake ends the process, as with a read-only mapping of a file."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(_address(memory)), ctypes.c_size_t(len(memory)), _PROT_READ):
        raise OSError(ctypes.get_errno(), "mprotect")


def _address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))
