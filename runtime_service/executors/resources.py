"""What one run of a model may use."""

from __future__ import annotations

from dataclasses import dataclass

from shared_ir.errors import ErrorCode, IngotError


@dataclass(frozen=True)
class Resources:
    """Of each instance.

    Attributes:
        threads: 0: as many as the cgroup quota or the cores allow.
        memory_bytes: what the outputs of a run may take, and again its intermediate values; 0: as much as there is.
        kept_bytes: of intermediate values, what stays for the next run; 0: all.
    """

    threads: int = 0
    memory_bytes: int = 0
    kept_bytes: int = 0

    def require(self, size: int, what: str) -> None:
        """Raises IngotError RESOURCE_EXHAUSTED: ``what`` would take ``size`` bytes, which is too much for a run."""
        if 0 < self.memory_bytes < size:
            raise IngotError(
                ErrorCode.RESOURCE_EXHAUSTED,
                f"{what} of a run may not take this much memory",
                expected=f"{self.memory_bytes} bytes at most",
                received=f"{size} bytes",
                remedy="Send a smaller batch, or let runs take more memory.",
            )

    def is_more_than_kept(self, size: int) -> bool:
        """Whether ``size`` bytes are given back after a run."""
        return 0 < self.kept_bytes < size


UNBOUNDED = Resources()
