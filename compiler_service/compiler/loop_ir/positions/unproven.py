"""What is said of an access that may be outside."""

from __future__ import annotations

from dataclasses import fields

from shared_ir.errors import ErrorCode, IngotError


class UnprovenPositionError(IngotError):
    """An access at a position from data is not proven to be inside: a fault of whoever wrote the function."""

    def of_the_author(self) -> IngotError:
        """The same of what a user wrote."""
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        remedy = "Say what is read elsewhere: te.select(te.all_of(p >= 0, p < n), A[p], 0.0)."
        return IngotError(**told | {"code": ErrorCode.INVALID_ARGUMENT, "remedy": remedy})
