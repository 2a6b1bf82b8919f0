"""How many elements an operand must have whose elements decide a shape: what the rest of the node says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from compiler_service.compiler.frontend.importing.node import SourceNode
from shared_ir.graph.ir import Value

Operands: TypeAlias = Sequence[Value | None]
Length: TypeAlias = Callable[[SourceNode, Operands], int | None]


def decided_length(source: SourceNode, operands: Operands, index: int) -> int | None:
    """The number of elements of operand ``index``; None where nothing else decides it."""
    rule = _LENGTHS.get((source.qualified, index))
    return None if rule is None else rule(source, operands)


def _length(operands: Operands, index: int) -> int | None:
    value = operands[index] if index < len(operands) else None
    extent = value.shape[0] if value is not None and value.type.rank == 1 else None
    return extent if isinstance(extent, int) else None


def _rank(operands: Operands) -> int | None:
    return None if operands[0] is None else operands[0].type.rank


def _bounds(_: SourceNode, operands: Operands) -> int | None:
    """Starts, ends, axes and steps are equally many."""
    return next((n for i in (1, 2, 3, 4) if (n := _length(operands, i)) is not None), None)


def _pads(_: SourceNode, operands: Operands) -> int | None:
    """One before and one behind each axis."""
    axes = operands[3] if len(operands) > 3 else None
    count = _rank(operands) if axes is None else _length(operands, 3)
    return None if count is None else 2 * count


def _padded_axes(_: SourceNode, operands: Operands) -> int | None:
    pads = _length(operands, 1)
    return None if pads is None else pads // 2


def _axes(source: SourceNode, operands: Operands) -> int | None:
    """One for each axis, or for each that the attribute names."""
    named = source.attributes.get("axes")
    return len(named) if named else _rank(operands)


def _parts(source: SourceNode, _: Operands) -> int | None:
    return len(source.outputs)


def _result(source: SourceNode, _: Operands) -> int | None:
    """One for each axis of the result, where the model says how many that has."""
    return source.result_rank


def _expanded(source: SourceNode, operands: Operands) -> int | None:
    """The result has more axes than what is expanded: one for each."""
    rank, result = _rank(operands), source.result_rank
    return result if rank is not None and result is not None and result > rank else None


_LENGTHS: Mapping[tuple[str, int], Length] = MappingProxyType(
    {
        **{("Slice", i): _bounds for i in (1, 2, 3, 4)},
        ("Pad", 1): _pads,
        ("Pad", 3): _padded_axes,
        ("Tile", 1): _axes,
        ("Resize", 2): _axes,
        ("Resize", 3): _axes,
        ("Split", 1): _parts,
        ("Reshape", 1): _result,
        ("ConstantOfShape", 0): _result,
        ("Expand", 1): _expanded,
    }
)
"""By operator and number of the operand."""
