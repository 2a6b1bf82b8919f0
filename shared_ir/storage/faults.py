"""What the file system refuses, in a sentence; and where files are going to be written, asked before the work for them begins."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared_ir.errors import ErrorCode, IngotError

_PROBE_BYTES = 4096
"""A disk without room for one block has room for nothing."""
_ABSENT = frozenset({errno.ENOENT})
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What passes once somebody makes room."""
_BUSY = frozenset({errno.EMFILE, errno.ENFILE, errno.EIO, errno.ETXTBSY, errno.EBUSY, errno.ESTALE, errno.ETIMEDOUT})
_REMEDIES = {
    errno.ENOENT: "Look whether its name is right.",
    errno.EACCES: "Name another place, or get the right to use this one.",
    errno.EPERM: "Name another place, or get the right to use this one.",
    errno.EROFS: "Name a place on a file system that can be written.",
    errno.ENOTDIR: "A part of the path is a file: name a folder.",
    errno.EISDIR: "It is a folder: name a file.",
    errno.EEXIST: "Something else lies there: name another place.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.ENOSPC: "Make room on the disk, or name another place.",
    errno.EDQUOT: "Make room within the quota, or name another place.",
    errno.EFBIG: "Raise the limit on the size of files (ulimit -f), or name another place.",
    errno.EMFILE: "Raise the limit on open files (ulimit -n).",
}


def want_of_room(error: BaseException) -> OSError | None:
    """Of ``error`` and what it was raised from, what says that a disk is full, or a quota used up."""
    full = (own for own in causes(error) if isinstance(own, OSError) and own.errno in NO_ROOM)
    return next(full, None)


def lacks_room(error: BaseException) -> bool:
    """Whether a disk was full, or a quota used up, for this process or for one that it asked: of that one's error only the code is left,
    and nothing that it was raised from."""
    own = list(causes(error))
    told_so = any(isinstance(one, IngotError) and one.code is ErrorCode.DISK_FULL for one in own)
    return want_of_room(error) is not None or (told_so and not any(isinstance(one, OSError) for one in own))


def causes(error: BaseException) -> Iterator[BaseException]:
    """``error``, what it was raised from, and so on."""
    seen = set[int]()
    own: BaseException | None = error
    while own is not None and id(own) not in seen:
        yield own
        seen.add(id(own))
        own = own.__cause__


def file_error(error: OSError, what: str = "a file or folder cannot be used", path: Path | None = None) -> IngotError:
    """``error`` as one that may leave: NOT_FOUND, DISK_FULL, UNAVAILABLE for a disk that fails, RESOURCE_LIMIT for that of a file's size,
    else INVALID_ARGUMENT, naming the file.

    Args:
        what: the beginning of the sentence.
        path: for errors that name no file themselves.
    """
    number = error.errno or 0
    code = ErrorCode.INVALID_ARGUMENT
    code = ErrorCode.NOT_FOUND if number in _ABSENT else code
    code = ErrorCode.DISK_FULL if number in NO_ROOM else code
    code = ErrorCode.RESOURCE_LIMIT if number == errno.EFBIG else code
    code = ErrorCode.UNAVAILABLE if number in _BUSY else code
    named = error.filename2 or error.filename
    field = os.fsdecode(named) if isinstance(named, str | bytes) else str(path or "")
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    return IngotError(code, f"{what}: {reason}", field=field, remedy=_REMEDIES.get(number, ""))


@contextmanager
def told(what: str, path: Path | None = None) -> Iterator[None]:
    """Around the use of files: what the system refuses becomes an IngotError, as :func:`file_error` makes it."""
    try:
        yield
    except (BrokenPipeError, ConnectionError):  # of a peer, and no matter of files
        raise
    except OSError as error:
        raise file_error(error, what, path) from error


def require_file(path: Path, what: str, remedy: str) -> os.stat_result:
    """What the system knows of a file that is going to be read.

    Args:
        what: as in "there is no such ``what``".

    Raises:
        IngotError: NOT_FOUND; INVALID_ARGUMENT, it is a folder, or out of reach.
    """
    with told(f"the {what} cannot be read", path):
        if path.is_file():
            with path.open("rb"):
                return path.stat()
        if path.is_dir():
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT, f"a folder is no {what}", field=str(path), expected="a file", remedy=remedy
            )
    raise IngotError(ErrorCode.NOT_FOUND, f"there is no such {what}", field=str(path), remedy=remedy)


def require_writable(folder: Path, what: str) -> None:
    """Refuse a folder that files cannot be written into, before anything is computed for them; nothing is left behind.

    A folder that does not exist yet is as good as the nearest one above it that does.

    Args:
        what: what the folder is for, as in "``what`` cannot be written".

    Raises:
        IngotError: as :func:`file_error`.
    """
    try:
        above = next(place for place in (folder, *folder.absolute().parents) if _exists(place))
        if not above.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        with tempfile.TemporaryFile(dir=above) as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise file_error(OSError(error.errno, error.strerror), f"{what} cannot be written", folder) from error


def _exists(path: Path) -> bool:
    """Unlike :meth:`Path.exists`, raises OSError for names that are too long and folders that may not be looked into."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
