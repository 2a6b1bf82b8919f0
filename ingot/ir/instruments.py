"""Instruments for a :class:`ingot.ir.PassContext`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ingot.ir.module import Module
from ingot.pass_context import Instrument


@dataclass
class Timing(Instrument):
    """Measures passes: ``seconds`` holds (pass, seconds) in the order in which they ran, ``str()`` is a table."""

    seconds: list[tuple[str, float]] = field(default_factory=list)

    def after(self, name: str, module: Module, seconds: float) -> None:
        self.seconds.append((name, seconds))

    def __str__(self) -> str:
        return "\n".join(f"{seconds * 1e3:8.1f} ms  {name}" for name, seconds in self.seconds)


@dataclass
class Printing(Instrument):
    """Hands the name of each pass to ``write``, and the text of the module where the pass changed it.

    Attributes:
        names: passes of which the text is wanted; none: of all.
    """

    write: Callable[[str], object] = print
    names: tuple[str, ...] = ()
    _given: Module | None = field(default=None, repr=False)

    def before(self, name: str, module: Module) -> None:
        self._given = module

    def after(self, name: str, module: Module, seconds: float) -> None:
        if self.names and name not in self.names:
            return
        self.write(f"# {name}: nothing changed" if module is self._given else f"# {name}\n{module}")
