"""Writing files so that a reader sees all of one or nothing, and mapping them in large pages."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import IO, BinaryIO

from shared_ir.errors import ErrorCode, IngotError

_BLOCK_BYTES = 4 * 1024 * 1024
"""Bytes of one write. The page cache keeps in one large page what one write puts at a multiple of 2 MiB, as far as the file
system can: such pages are mapped as a whole, and code that reads gigabytes of weights has few misses of the TLB."""


_SMALL_BYTES = 256 * 1024
"""Is written as it is: making a block takes longer than writing a record."""


def write_blocks(file: FileIO, pieces: Iterable[bytes | memoryview]) -> None:
    """Write ``pieces`` one after the other from the beginning of the unbuffered ``file``, in large aligned blocks.

    Each goes through a block in memory: where a write meets a page of its source that is not mapped yet, the kernel
    goes on in small pages.
    """
    block = memoryview(bytearray(_BLOCK_BYTES))
    filled = 0
    for piece in pieces:
        view = memoryview(piece).cast("B")
        while len(view):
            taken = min(_BLOCK_BYTES - filled, len(view))
            block[filled : filled + taken] = view[:taken]
            filled, view = filled + taken, view[taken:]
            if filled == _BLOCK_BYTES:
                _write_whole(file, block)
                filled = 0
    _write_whole(file, block[:filled])


def copy_file(source: Path, target: Path) -> None:
    with target.open("wb", buffering=0) as file:
        write_blocks(file, _blocks_of(source))


def _write_whole(file: FileIO, block: memoryview) -> None:
    while len(block):
        block = block[file.write(block) :]


def read_own(path: Path, limit: int) -> bytes:
    """The bytes of a file that a process of ours, which foreign data may have taken over, was to leave at ``path``.

    Raises:
        IngotError: COMPILER_FAULT, there is none, or something else lies there (a link to a file of somebody else), or too much.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= limit:
                return file.read(size)
            reason = f"it has {size} bytes"
    except OSError as error:
        reason = error.strerror or str(error)
    raise IngotError(
        ErrorCode.COMPILER_FAULT,
        f"a file that the compiler was to leave cannot be read: {reason}",
        field=path.name,
        expected=f"a file of at most {limit} bytes",
    )


def open_regular(path: Path) -> BinaryIO:
    """A file to read. Raises FileNotFoundError where there is none, or a link, a pipe, a folder."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileNotFoundError(errno.ENOENT, "a link, and no file", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "no regular file", str(path))
    return os.fdopen(descriptor, "rb")


def is_regular(path: Path) -> bool:
    """Whether a file lies at ``path`` itself, and no link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def map_file(path: Path) -> memoryview:
    """A shared read-only mapping, in large pages where the kernel has them; empty for an empty file."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(map_open_file(file))


def map_open_file(file: IO[bytes]) -> mmap.mmap:
    """A shared read-only mapping of a file that is not empty."""
    mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel that is built without them
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


def write_atomically(path: Path, data: bytes | memoryview | Path) -> None:
    """Write ``data`` (bytes, or the file that holds them) to a temporary name, fsync, rename over ``path``."""
    replace_atomically(path, write_temporary(path, data))


def replace_atomically(path: Path, temporary: Path) -> None:
    """The second half of :func:`write_atomically`."""
    try:
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def create_atomically(path: Path, data: bytes | memoryview | Path) -> bool:
    """Like :func:`write_atomically`, but leave an existing file alone and return False."""
    temporary = write_temporary(path, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)
    return True


def write_temporary(path: Path, data: bytes | memoryview | Path) -> Path:
    """Write and fsync ``data`` beside ``path`` under a temporary name; return that name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:80]}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb", buffering=0) as file:
            if not isinstance(data, Path) and len(data) <= _SMALL_BYTES:
                _write_whole(file, memoryview(data).cast("B"))
            else:
                write_blocks(file, _blocks_of(data) if isinstance(data, Path) else (data,))
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _blocks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as source:
        while block := source.read(_BLOCK_BYTES):
            yield block


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
