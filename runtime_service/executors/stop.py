"""A flag that ends a run from another thread."""

from __future__ import annotations

import ctypes

from shared_ir.errors import ErrorCode, IngotError


class Stop:
    """Of one run, or of several that end together. Native code reads it between kernels and at each round of a loop.

    Attributes:
        address: where the flag lies, for native code.
    """

    __slots__ = ("_flag", "address")

    def __init__(self) -> None:
        self._flag = ctypes.c_int32()
        self.address: int = ctypes.addressof(self._flag)

    def set(self) -> None:
        """The run ends soon, with CANCELLED."""
        self._flag.value = 1

    @property
    def is_set(self) -> bool:
        """Whether somebody has ended the run."""
        return self._flag.value != 0

    def check(self) -> None:
        """Raises IngotError CANCELLED where it is set."""
        if self._flag.value:
            raise IngotError(ErrorCode.CANCELLED, "the run was stopped")
