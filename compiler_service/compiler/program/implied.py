"""Symbols that are no extent of an argument themselves, but follow from one: ``n`` of an argument of ``2 * n + 1`` elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from compiler_service.compiler.tensor_expr.assumptions import Assumption
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr, Var, lift
from shared_ir.expr.dim import Dim, as_dim, bind, dim_symbols, dim_text, evaluate, symbol

Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class ImpliedSymbols:
    """Extents in terms of symbols that arguments show.

    Attributes:
        values: what stands for each symbol that follows.
        extents: by number and axis of the argument, the symbol that its extent is.
        assumptions: what extents must be like so that it follows.
    """

    values: Mapping[str, Dim] = field(default_factory=dict)
    extents: Mapping[tuple[int, int], Dim] = field(default_factory=dict)
    assumptions: tuple[Assumption, ...] = ()

    @classmethod
    def of(cls, arguments: Sequence[tuple[str, Shape]], needed: Iterator[Dim]) -> ImpliedSymbols:
        """
        Args:
            arguments: their names and shapes.
            needed: extents of all that is computed.

        Raises:
            IngotError: INVALID_ARGUMENT, a symbol follows from no argument.
        """
        shown = {d.name for _, shape in arguments for d in shape if isinstance(d, Var)}
        hidden = dim_symbols((*needed, *(d for _, shape in arguments for d in shape))) - shown
        values: dict[str, Dim] = {}
        extents: dict[tuple[int, int], Dim] = {}
        assumptions = []
        for number, (name, shape) in enumerate(arguments):
            for axis, dim in enumerate(shape):
                found = _only_symbol(dim)
                line = None if found not in hidden or found in values else _line(dim, found)
                if line is None:
                    continue
                whole = symbol(_fresh(f"{name}_{axis}", shown | hidden | {str(v) for v in extents.values()}))
                values[found] = as_dim((whole - line[1]) // line[0])
                extents[number, axis] = whole
                if line[0] > 1:
                    assumptions.append(Assumption(whole, bind(dim, {found: values[found]})))
        missing = sorted(hidden - values.keys())
        if missing:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"no argument shows what {', '.join(missing)} is",
                expected="an extent of an argument such as n, n + 2 or 2 * n",
                received=", ".join(dim_text(d) for _, shape in arguments for d in shape),
            )
        return cls(values, extents, tuple(assumptions))

    def shape(self, shape: Shape) -> Shape:
        return tuple(bind(d, self.values) for d in shape)

    def argument(self, number: int, shape: Shape) -> Shape:
        """The shape of an argument, with the symbols that its extents are."""
        return tuple(self.extents.get((number, axis), dim) for axis, dim in enumerate(self.shape(shape)))

    def assumed(self, assumption: Assumption) -> Assumption:
        actual, expected = bind(assumption.actual, self.values), bind(assumption.expected, self.values)
        return Assumption(actual, expected, assumption.lower)


def _only_symbol(dim: Dim) -> str:
    names = tuple(dim_symbols((dim,)))
    return names[0] if len(names) == 1 and isinstance(dim, Expr) else ""


def _line(dim: Dim, name: str) -> tuple[int, int] | None:
    """``(a, b)`` where ``dim`` is ``a * name + b``, a at least 1."""
    start, after = (evaluate(dim, {name: value}) for value in (0, 1))
    rise = after - start
    same = as_dim(lift(dim) - (symbol(name) * rise + start)) == 0
    return (rise, start) if rise >= 1 and same else None


def _fresh(wanted: str, taken: set[str]) -> str:
    name = "".join(c if c.isalnum() else "_" for c in wanted)
    while name in taken:
        name += "_"
    return name
