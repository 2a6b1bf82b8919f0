"""What callers of Python hand over, checked where it comes in: a value of another kind is said at once, by the name of its argument."""

from __future__ import annotations

from shared_ir.errors import ErrorCode, IngotError

_MOST_SHOWN = 80
"""Characters of a value in an error."""


def require_kind(value: object, kinds: type | tuple[type, ...], field: str, expected: str) -> None:
    """Raises IngotError: INVALID_ARGUMENT, ``value`` is none of ``kinds``; a bool is no int."""
    is_bool = isinstance(value, bool) and bool not in (kinds if isinstance(kinds, tuple) else (kinds,))
    if is_bool or not isinstance(value, kinds):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"{field} is of another kind",
            field=field,
            expected=expected,
            received=f"{type(value).__name__} {value!r}"[:_MOST_SHOWN],
        )


def require_threads(threads: object) -> None:
    """Raises IngotError: INVALID_ARGUMENT, it is neither None nor a whole number of at least 1."""
    if threads is None:
        return
    require_kind(threads, int, "threads", "a whole number, or None for one per core")
    if isinstance(threads, int) and threads < 1:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "a call has at least one thread",
            field="threads",
            expected="at least 1, or None for one per core",
            received=str(threads),
        )
