"""Values of operands that operators may rule out: what both oracles refuse must be refused, of every operator of the standard.

The models are those of onnx's own node tests, with the extents of their first operand symbolic. Every small operand holds, in turn,
0, a negative number, a small and a large one, infinity and NaN; the first operand has, in turn, axes of nothing and of one element.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

Array = np.ndarray

CASES = 4
"""Node tests of one operator that differ in attributes, types or numbers of axes."""
RUNS = 400
"""Of one model."""
MOST_ELEMENTS, MOST_COMBINED = 8, 3
_LEFT_OUT = frozenset({"If", "Loop", "Scan", "SequenceMap", "Attention"})
"""Operators with bodies, and one whose numbers are no positions and take long."""


@dataclass(frozen=True)
class Published:
    """A node test with some operands of few elements, those at ``small``.

    Attributes:
        model: with symbolic extents.
        fixed: with those of the test, but for its outputs.
    """

    name: str
    model: onnx.ModelProto
    fixed: onnx.ModelProto
    inputs: tuple[Array, ...]
    small: tuple[int, ...]

    @property
    def op(self) -> str:
        return str(self.model.graph.node[0].op_type)

    def runs(self) -> list[tuple[str, dict[str, Array]]]:
        """What differs from the test, and the feeds; first nothing."""
        return list(itertools.islice(self._runs(), RUNS))

    def _runs(self) -> Iterator[tuple[str, dict[str, Array]]]:
        names = [i.name for i in self.model.graph.input]
        given = dict(zip(names, self.inputs, strict=True))
        bases = [("as published", given)]
        x = self.inputs[0]
        for axis, extent in enumerate(x.shape if 0 not in self.small else ()):
            for count in (0, 1):
                if extent > count:
                    few = np.take(x, range(count), axis)
                    bases.append((f"{names[0]} with {count} along {axis}", {**given, names[0]: few}))
        yield from bases
        for (label, base), index in itertools.product(bases, self.small):
            for array in _variants(self.inputs[index]):
                yield f"{label}, {names[index]} = {array.tolist()}", {**base, names[index]: array}


@cache
def published() -> tuple[Published, ...]:
    """Node tests of the standard whose operands are tensors."""
    counts: dict[str, set[str]] = {}
    found = []
    with warnings.catch_warnings(action="ignore"):
        for case in load_model_tests(kind="node"):
            entry = (
                None if case.model is None or not case.data_sets else _published(case.name, case.model, case.data_sets)
            )
            if entry is None:
                continue
            seen, kind = counts.setdefault(entry.op, set()), _kind(entry)
            if kind not in seen and len(seen) < CASES:
                seen.add(kind)
                found.append(entry)
    return tuple(found)


def _published(
    name: str, model: onnx.ModelProto, data_sets: list[tuple[list[object], list[object]]]
) -> Published | None:
    nodes = model.graph.node
    if len(nodes) != 1 or nodes[0].domain or nodes[0].op_type in _LEFT_OUT or model.graph.initializer:
        return None
    given = [np.asarray(x) if isinstance(x, np.generic) else x for x in data_sets[0][0]]
    arrays = tuple(x for x in given if isinstance(x, Array))
    small = tuple(i for i, x in enumerate(arrays) if _is_small(x))
    if len(arrays) != len(given) or not small or (len(arrays) == 1 and arrays[0].ndim > 1):
        return None
    return Published(name, _loose(model, small), _loose(model), arrays, small)


def _kind(entry: Published) -> str:
    node = entry.model.graph.node[0]
    return f"{node.attribute} {[(x.ndim, x.dtype) for x in entry.inputs]} {[bool(name) for name in node.input]}"


def _is_small(x: Array) -> bool:
    most = MOST_ELEMENTS if x.dtype.kind in "iu" else 1 if x.dtype.kind == "f" else 0
    return x.ndim <= 1 and 0 < x.size <= most


def _loose(model: onnx.ModelProto, but: tuple[int, ...] | None = None) -> onnx.ModelProto:
    """``model`` without the extents of its outputs, and those of its inputs symbolic unless their number is among ``but``."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    for index, value in enumerate(found.graph.input):
        if but is not None and (index == 0 or index not in but):
            for axis, dim in enumerate(value.type.tensor_type.shape.dim):
                dim.dim_param = f"{value.name}_{axis}"
    for value in found.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    return found


def _variants(x: Array) -> list[Array]:
    flat, numbers = x.reshape(-1).tolist(), _numbers(x.dtype)
    if x.size <= MOST_COMBINED:
        rows = list(itertools.product(*([own, *numbers] for own in flat)))[1:]
    else:
        rows = [(*flat[:i], n, *flat[i + 1 :]) for i in range(x.size) for n in numbers]
    return [np.array(row, x.dtype).reshape(x.shape) for row in rows]


def _numbers(dtype: np.dtype) -> list[float]:
    if dtype.kind == "f":
        return [0.0, -1.0, 1.5, 1000.0, float("nan"), float("inf")]
    large = 100
    return [0, 3, large] if dtype.kind == "u" else [0, -1, 3, large]
