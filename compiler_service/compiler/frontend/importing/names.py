"""ONNX names to identifiers: value names are unique in the whole module, dim symbols in the whole model."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass, field

from shared_ir.expr import Var
from shared_ir.expr.dim import symbol

_DIM_FUNCTIONS = frozenset({"min", "max", "select"})


def identifier(name: str, prefix: str) -> str:
    """``name`` with every other character than ``[A-Za-z0-9_]`` made ``_``; ``prefix`` where it would start with a digit."""
    text = re.sub(r"[^0-9A-Za-z_]", "_", name)[:200]
    if not text or text[0].isdigit():
        text = f"{prefix}{text}"
    return f"{text}_" if keyword.iskeyword(text) or text in _DIM_FUNCTIONS or text == "_" else text


@dataclass
class Names:
    """A source of unused identifiers."""

    used: set[str] = field(default_factory=set)
    _counters: dict[str, int] = field(default_factory=dict)

    def fresh(self, name: str, prefix: str = "v") -> str:
        """An identifier like ``name`` that was not handed out before: ``x``, ``x_1``, ``x_2``, ..."""
        base = identifier(name, prefix)
        found = base
        while found in self.used:
            self._counters[base] = self._counters.get(base, 0) + 1
            found = f"{base}_{self._counters[base]}"
        self.used.add(found)
        return found


@dataclass
class Symbols:
    """Dim symbols of a model: one per dim_param, and fresh ones for what has no name."""

    names: Names = field(default_factory=Names)
    _by_parameter: dict[str, Var] = field(default_factory=dict)

    def named(self, parameter: str) -> Var:
        """The symbol of a dim_param; the same for the same text."""
        found = self._by_parameter.get(parameter)
        if found is None:
            found = self._by_parameter[parameter] = self.fresh(parameter)
        return found

    def fresh(self, name: str) -> Var:
        """A symbol that stands for nothing else."""
        return symbol(self.names.fresh(name, "d"))
