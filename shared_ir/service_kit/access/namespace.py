"""Models of a namespace lie among all others under names of their own: ``resnet`` of ``vision`` is ``vision.resnet``."""

from __future__ import annotations

from dataclasses import dataclass

_END = "."


@dataclass(frozen=True)
class Namespace:
    """Empty for all of an installation."""

    name: str = ""

    def stored(self, shown: str) -> str:
        """The name among all of a model that is called ``shown`` here."""
        return f"{self.name}{_END}{shown}" if self.name else shown

    def holds(self, stored: str) -> bool:
        return not self.name or stored.startswith(self.name + _END)

    def shown(self, stored: str) -> str:
        """The name here of a model that it holds."""
        return stored.removeprefix(self.name + _END) if self.name else stored
