"""What may be registered as a code generator, and under which names."""

from __future__ import annotations

import re

from shared_ir.errors import ErrorCode, IngotError

NAMES = "up to 32 small letters, digits and '_', a letter first"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")


def is_name(name: object) -> bool:
    """Whether a code generator can be called ``name``: :data:`NAMES`."""
    return isinstance(name, str) and _NAME.match(name) is not None


def check_generator(given: object, face: type, field: str, place: str) -> None:
    """Check that ``given`` is derived of ``face`` and has a version, a text.

    Args:
        field: how the argument is called.
        place: what it is registered for or as, for a sentence.

    Raises:
        IngotError: INVALID_ARGUMENT.
    """
    if not isinstance(given, face) or not isinstance(getattr(given, "version", None), str):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"what is registered {place} is no code generator",
            field=field,
            expected=f"an object of a class that is derived of {face.__name__}, whose version is a text",
            received=repr(given)[:200],
        )
