"""Secrets out of files: ``NAME_FILE`` names the file that holds what ``NAME`` would, as mounted secrets are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from shared_ir.errors import ErrorCode, IngotError

SUFFIX = "_FILE"
_MOST_BYTES = 64 * 1024


def with_secret_files(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """``environment`` with what the files hold under each of ``names`` that has one, and without the names of the files.

    Raises:
        IngotError: INVALID_ARGUMENT, a file cannot be read or holds nothing, or the secret is given twice.
    """
    found = dict(environment)
    for name in names:
        path = found.pop(name + SUFFIX, None)
        if path is None:
            continue
        if name in found:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "a secret is given twice",
                field=name + SUFFIX,
                expected=f"{name} or {name}{SUFFIX}",
                received="both",
                remedy="Unset one of them.",
            )
        found[name] = read_secret(Path(path), name + SUFFIX)
    return found


def file_variables(names: Iterable[str]) -> tuple[str, ...]:
    """The variables that name files of secrets."""
    return tuple(name + SUFFIX for name in names)


def read_secret(path: Path, variable: str) -> str:
    """The text of a file without white space around it. Raises IngotError INVALID_ARGUMENT, without anything of the text."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode().strip()
    except OSError as error:
        raise _unusable(variable, path, error.strerror or type(error).__name__) from error
    except ValueError as error:
        raise _unusable(variable, path, "bytes that are no text") from error
    if not text or len(data) > _MOST_BYTES or not text.isprintable():
        reason = "nothing" if not text else "a longer text" if len(data) > _MOST_BYTES else "several lines"
        raise _unusable(variable, path, reason)
    return text


def _unusable(variable: str, path: Path, received: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        f"the secret that {variable} names cannot be used",
        field=str(path),
        expected="a file with one line of text",
        received=received,
        remedy="Name a file that the process may read, or unset the variable.",
    )
