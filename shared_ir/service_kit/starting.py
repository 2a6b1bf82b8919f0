"""What keeps a service from starting is told in a sentence to whoever starts it, and not by a traceback."""

from __future__ import annotations

import functools
import os
import resource
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.memory.trimming import share_arenas
from shared_ir.storage.faults import file_error, require_writable

_Given = ParamSpec("_Given")
_T = TypeVar("_T")


def at_start(function: Callable[_Given, _T]) -> Callable[_Given, _T]:
    """``function``, of which nothing but IngotError leaves. ``DEBUG=1`` shows where what it became came from."""

    @functools.wraps(function)
    def call(*given: _Given.args, **named: _Given.kwargs) -> _T:
        try:
            return function(*given, **named)
        except IngotError:
            raise
        except OSError as error:
            raise file_error(error, "the service cannot start") from error
        except Exception as error:
            if os.environ.get("DEBUG"):
                traceback.print_exception(error)
            message = f"the service cannot start: {type(error).__name__}: {error}"[:500]
            raise IngotError(ErrorCode.INTERNAL, message, remedy="DEBUG=1 shows where that came from.") from error

    return call


def prepare_process() -> None:
    """At the start of a server: as many descriptors as the system allows, and memory that goes back when threads are done with it."""
    share_arenas()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def require_place(path: Path, name: str) -> None:
    """Refuse a setting that names a file which cannot be written.

    Raises:
        IngotError: as :func:`shared_ir.storage.faults.file_error`, naming the variable ``name``.
    """
    if path.is_dir():
        message = f"{name} is a folder where a file belongs"
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field=name, expected="a file", received=str(path))
    require_writable(path.parent, f"the file of {name}")
