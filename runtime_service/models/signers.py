"""Who signed what is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shared_ir.artifact.signature import Trust


@dataclass(frozen=True)
class Signers:
    """Ids of the keys that signed each version that was loaded, by its model and number."""

    _found: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)

    def note(self, name: str, version: int, signers: Iterable[str]) -> None:
        self._found[name, version] = frozenset(signers)

    def revoked(self, name: str, version: int, trust: Trust) -> bool:
        """Whether one of the keys is trusted no longer."""
        return not self._found.get((name, version), frozenset()) <= trust.keys.keys()
