"""Files read into memory that nobody else can change, for what is verified once and used for as long as a process runs.

A mapping of a file shows what others write into it later, and ends a process with SIGBUS where they cut it short. A copy in private
memory does neither. It is not shared with other processes; large pages make it as fast to read as a file in the page cache, which
a memfd is not where the kernel has no large pages for those (``shmem_enabled``). Processes that serve the same models together read
them from one memfd nevertheless, whose seals forbid writing: one of them lends it (:func:`borrow_from`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

from shared_ir.digest import TREE_CHUNK_BYTES, tree_of
from shared_ir.errors import ErrorCode, IngotError

_LARGE_PAGE_BYTES = 2 << 20
_PROT_READ = 1
_THREADS = 4


Read: TypeAlias = Callable[[Path, int], tuple[memoryview, str]]
"""As :func:`read_sealed`."""
_LENDERS: list[Read] = []


def borrow_from(lender: Read) -> None:
    """From now on this process has files from ``lender``, which is asked in place of reading them."""
    _LENDERS[:] = [lender]


def read_sealed(path: Path, size: int) -> tuple[memoryview, str]:
    """The ``size`` bytes of a file in read-only memory, and the tree digest of just these bytes.

    Raises:
        IngotError: ARTIFACT_CORRUPT, the file is shorter; RESOURCE_EXHAUSTED.
    """
    if not size:
        return memoryview(b""), tree_of(0, [])
    if _LENDERS:
        return _LENDERS[0](path, size)
    memory = _memory(size)
    digest = _read(path, memory)
    _forbid_writing(memory)
    return memory.toreadonly(), digest


def seal(path: Path, size: int) -> tuple[int, str]:
    """As :func:`read_sealed`, in memory that other processes can have too: its descriptor, which the caller closes. ``size`` > 0.

    Raises:
        IngotError: as there.
        OSError: the system has no such memory.
    """
    descriptor = os.memfd_create("ingot-weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(descriptor, 0, size)
        with mmap.mmap(descriptor, size) as mapping, memoryview(mapping) as memory:
            digest = _read(path, memory)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise _no_memory(size) from error
        raise
    return descriptor, digest


def _read(path: Path, memory: memoryview) -> str:
    """Fill ``memory`` from the start of a file; the tree digest of what is in it then."""
    starts = range(0, len(memory), TREE_CHUNK_BYTES)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:

        def leaf(start: int) -> bytes:
            with memory[start : start + TREE_CHUNK_BYTES] as part:
                _fill(descriptor, part, start, path)
                return hashlib.sha256(part).digest()

        with ThreadPoolExecutor(max_workers=min(_THREADS, len(starts))) as pool:
            leaves = list(pool.map(leaf, starts))
    finally:
        os.close(descriptor)
    return tree_of(len(memory), leaves)


def _memory(size: int) -> memoryview:
    """Private memory that starts where a large page may; what is not touched takes no room."""
    try:
        mapping = mmap.mmap(-1, size + _LARGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise _no_memory(size) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel that is built without them
            mapping.madvise(mmap.MADV_HUGEPAGE)
    view = memoryview(mapping)
    start = -_address(view) % _LARGE_PAGE_BYTES
    return view[start : start + size]


def _no_memory(size: int) -> IngotError:
    return IngotError(ErrorCode.RESOURCE_EXHAUSTED, "no memory for the weights of the model", received=f"{size} bytes")


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
