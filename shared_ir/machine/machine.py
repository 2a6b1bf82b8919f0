"""What a machine can run, itself or under emulators: enough to tell elsewhere whether it can run code for a target."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

from shared_ir.digest import sha256_hex
from shared_ir.errors import IngotError
from shared_ir.machine.target import architecture_of

_KIND_DIGITS = 12


@dataclass(frozen=True)
class Machine:
    """A machine that runs code.

    Attributes:
        triple: LLVM target triple of what it runs by itself.
        features: LLVM feature flags that it has, ``+avx2``.
        emulates: architectures of which an emulator runs any code.
    """

    triple: str
    features: frozenset[str] = frozenset()
    emulates: frozenset[str] = frozenset()

    def runs(self, triple: str, features: Collection[str]) -> bool:
        """Whether it has the architecture, and every feature that the code may use."""
        needed = {name for name in features if name.startswith("+")}
        return triple.split("-")[0] == self.triple.split("-")[0] and needed <= self.features

    def can_run(self, triple: str, features: Collection[str]) -> bool:
        """Whether it does so by itself or emulates it."""
        if self.runs(triple, features):
            return True
        try:
            return architecture_of(triple) in self.emulates
        except IngotError:
            return False

    @property
    def kind(self) -> str:
        """Hexadecimal digits: machines that run the same have the same."""
        return sha256_hex(json.dumps(self.to_dict()).encode())[:_KIND_DIGITS]

    def to_dict(self) -> dict[str, Any]:
        return {"triple": self.triple, "features": sorted(self.features), "emulates": sorted(self.emulates)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises LookupError, TypeError."""
        return cls(str(data["triple"]), frozenset(data["features"]), frozenset(data["emulates"]))
