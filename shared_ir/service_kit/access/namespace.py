"""Models of a namespace lie among all others under names of their own: ``resnet`` of ``vision`` is ``vision.resnet``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from shared_ir.errors import IngotError

_END = "."
_MOST_COMPARED = 100
"""Characters of a name: what tells of a longer one may have cut it short."""
ABOUT_MODEL = ("message", "field", "expected", "received", "remedy")
"""Of an error, that may say the name of a model that is at fault; nodes and tensors are of what is in a model."""


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

    def told(self, error: IngotError, stored: str) -> IngotError:
        """``error`` about a model that is ``stored`` among all, by the name that it has here."""
        if not self.name or not self.holds(stored):
            return error
        texts: dict[str, Any] = {name: self.text(getattr(error, name), stored) for name in ABOUT_MODEL}
        return replace(error, **texts)

    def text(self, text: str, stored: str) -> str:
        """``text`` about a model that it holds, which is ``stored`` among all, by the name that it has here."""
        for name in dict.fromkeys((stored, repr(stored)[1:-1])):
            end = r"(?![\w-]|\.\w)" if len(name) <= _MOST_COMPARED else ""
            start = name[:_MOST_COMPARED]
            shown = self.shown(start).replace("\\", r"\\")
            text = re.sub(rf"(?<![\w.-]){re.escape(start)}{end}", shown, text)
        return text
