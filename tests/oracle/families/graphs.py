"""Graphs of a few operators whose shapes are computed, broadcast and checked as they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.oracle.builder import RUNS, Axis, Builder, Shape, fixed
from tests.oracle.case import Array
from tests.oracle.families.table import family

_MOST = 4096
_LARGEST = 1e4


@dataclass(frozen=True)
class Value:
    """``arrays``: per run; None in a run that cannot compute it, which no longer than the first must do."""

    name: str
    arrays: tuple[Array | None, ...]

    @property
    def first(self) -> Array:
        assert self.arrays[0] is not None
        return self.arrays[0]

    @property
    def rank(self) -> int:
        return self.first.ndim


@dataclass
class Growing:
    """A graph whose every value is known in every run."""

    b: Builder
    values: list[Value] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    def pick(self, accepts: Callable[[Value], bool]) -> Value | None:
        fitting = [v for v in reversed(self.values) if accepts(v)]
        return self.b.draw.choose(fitting) if fitting else None

    def floats(self, least_rank: int = 0) -> Value | None:
        return self.pick(lambda v: v.first.dtype == np.float32 and v.rank >= least_rank)

    def input(self, shape: Shape) -> None:
        name = self.b.input(shape, values="tame", low=-4, high=4)
        self.values.append(Value(name, tuple(feeds[name] for feeds in self.b.runs)))

    def constant(self, array: Any) -> Value:
        held = np.asarray(array, None if isinstance(array, np.ndarray) else np.int64)
        return Value(self.b.constant(held), (held,) * RUNS)

    def add(self, op: str, *operands: Value, **attributes: Any) -> Value | None:
        """A node, if it can be computed in the first run and stays small."""
        found = [self._computed(op, operands, run, attributes) for run in range(RUNS)]
        if found[0] is None:
            return None
        value = Value(self.b.node(op, *(v.name for v in operands), **attributes), tuple(found))
        self.read |= {v.name for v in operands}
        self.values.append(value)
        return value

    def _computed(self, op: str, operands: Sequence[Value], run: int, attributes: dict[str, Any]) -> Array | None:
        arrays = [a for v in operands if (a := v.arrays[run]) is not None]
        if len(arrays) < len(operands):
            return None
        names = [f"i{i}" for i in range(len(arrays))]
        node = helper.make_node(op, names, ["o"], **attributes)
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, arrays, strict=True)
        ]
        graph = helper.make_graph([node], "step", infos, [onnx.ValueInfoProto(name="o")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.b.opset)], ir_version=10)
        try:
            result = np.asarray(ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))[0])
        except Exception:  # operands that do not fit
            return None
        tame = result.size <= _MOST and result.ndim <= 5 and (result.dtype == bool or np.all(np.abs(result) < _LARGEST))
        return result if tame else None


Step = Callable[[Growing], Value | None]


def binary(g: Growing) -> Value | None:
    """Of two values that fit in the first run; what the other runs make of it is asked."""
    a, c = g.floats(), g.floats()
    return g.add(g.b.draw.choose(("Add", "Mul", "Sub", "Max", "Min")), a, c) if a and c else None


def neutral(g: Growing) -> Value | None:
    """What an optimiser removes."""
    x = g.floats()
    if x is None:
        return None
    op, number = g.b.draw.choose((("Mul", 1.0), ("Add", 0.0), ("Sub", 0.0), ("Div", 1.0)))
    shape = g.b.draw.choose(((), (1,), (1, 1), x.first.shape[-1:]))
    return g.add(op, x, g.constant(np.full(shape, number, np.float32)))


def expand_as(g: Growing) -> Value | None:
    x, like = g.floats(), g.floats()
    if x is None or like is None:
        return None
    shape = g.add("Shape", like)
    return g.add("Expand", x, shape) if shape else None


def like(g: Growing) -> Value | None:
    """Zeros or ones of the shape of a value."""
    x = g.floats()
    shape = g.add("Shape", x) if x else None
    if shape is None:
        return None
    value = helper.make_tensor("value", 1, [1], [g.b.draw.choose((0.0, 1.0))])
    return g.add("ConstantOfShape", shape, value=value)


def size(g: Growing) -> Value | None:
    x = g.floats()
    return g.add(g.b.draw.choose(("Size", "Shape")), x) if x else None


def where(g: Growing) -> Value | None:
    a, c, d = g.floats(), g.floats(), g.floats()
    if a is None or c is None or d is None:
        return None
    condition = g.add(g.b.draw.choose(("Less", "Equal", "GreaterOrEqual")), a, g.constant(np.array(0.5, np.float32)))
    return g.add("Where", condition, c, d) if condition else None


def extent(g: Growing) -> Value | None:
    """One extent of a value, perhaps after some arithmetic, as a vector of one element."""
    x = g.floats(1)
    if x is None:
        return None
    at = g.b.draw.integer(0, x.rank - 1)
    found = g.add("Shape", x, start=at, end=at + 1)
    if found is None or g.b.draw.flag():
        return found
    op, number = g.b.draw.choose((("Div", 2), ("Mul", 2), ("Add", 1), ("Sub", 1), ("Div", 3), ("Mul", -1)))
    return g.add(op, found, g.constant([number]))


def _vector(g: Growing) -> Value | None:
    return g.pick(lambda v: v.first.dtype == np.int64 and v.first.shape == (1,)) or extent(g)


def reshape(g: Growing) -> Value | None:
    x, one = g.floats(1), _vector(g)
    if x is None or one is None:
        return None
    rest = g.constant(g.b.draw.choose(([-1], [-1, 1], [1, -1], [2, -1])))
    parts = (one, rest) if g.b.draw.flag() else (rest, one)
    target = g.add("Concat", *parts, axis=0)
    return g.add("Reshape", x, target) if target else None


def flatten(g: Growing) -> Value | None:
    x = g.floats(1)
    return g.add("Reshape", x, g.constant(g.b.draw.choose(([-1], [0, -1], [-1, 1], [1, -1])))) if x else None


def cut(g: Growing) -> Value | None:
    """A slice up to, or from, an extent of another value."""
    x, one = g.floats(1), _vector(g)
    if x is None or one is None:
        return None
    axis = g.constant([g.b.draw.integer(0, x.rank - 1)])
    if g.b.draw.flag():
        return g.add("Slice", x, g.constant([0]), one, axis)
    return g.add("Slice", x, one, g.constant([2**40]), axis)


def tile(g: Growing) -> Value | None:
    x, one = g.floats(1), _vector(g)
    if x is None or one is None:
        return None
    counts = g.add("Concat", one, *(g.constant([1]) for _ in range(x.rank - 1)), axis=0)
    return g.add("Tile", x, counts) if counts else None


def positions(g: Growing) -> Value | None:
    """The numbers up to an extent, as floats that others may be added to."""
    one = _vector(g)
    limit = g.add("Squeeze", one) if one else None
    if limit is None:
        return None
    found = g.add("Range", g.constant(np.array(0)), limit, g.constant(np.array(1)))
    return g.add("Cast", found, to=1) if found else None


def concat(g: Growing) -> Value | None:
    x = g.floats(1)
    other = g.pick(lambda v: x is not None and v.first.dtype == np.float32 and v.rank == x.rank)
    if x is None or other is None:
        return None
    return g.add("Concat", x, other, axis=g.b.draw.integer(0, x.rank - 1))


def turn(g: Growing) -> Value | None:
    x = g.floats(2)
    return g.add("Transpose", x, perm=g.b.draw.order(x.rank)) if x else None


def axes(g: Growing) -> Value | None:
    x = g.floats()
    if x is None:
        return None
    ones = [i for i, e in enumerate(x.first.shape) if e == 1]
    if ones and g.b.draw.flag():
        return g.add("Squeeze", x, g.constant([g.b.draw.choose(ones)]))
    return g.add("Unsqueeze", x, g.constant([g.b.draw.integer(0, x.rank)]))


def reduce(g: Growing) -> Value | None:
    x = g.floats(1)
    if x is None:
        return None
    axis = g.constant([g.b.draw.integer(0, x.rank - 1)])
    return g.add(g.b.draw.choose(("ReduceSum", "ReduceMax", "ReduceMean")), x, axis, keepdims=g.b.draw.choose((1, 0)))


def product(g: Growing) -> Value | None:
    a, c = g.floats(2), g.floats(2)
    if a is None or c is None:
        return None
    turned = g.add("Transpose", c, perm=[*range(c.rank - 2), c.rank - 1, c.rank - 2]) if g.b.draw.flag() else c
    return g.add("MatMul", a, turned) if turned else None


def gather(g: Growing) -> Value | None:
    x = g.floats(1)
    return g.add("Gather", x, g.constant(g.b.draw.choose(([0], [-1], [0, 0]))), axis=0) if x else None


def pad(g: Growing) -> Value | None:
    x, one = g.floats(1), _vector(g)
    if x is None or one is None:
        return None
    zeros = g.constant([0] * (2 * x.rank - 1))
    pads = g.add("Concat", *((one, zeros) if g.b.draw.flag() else (zeros, one)), axis=0)
    return g.add("Pad", x, pads) if pads else None


def told(g: Growing) -> Value | None:
    """A reshape to what is an input of the model: all in one axis, or axes in another order or split by one of 1."""
    x = g.floats(1)
    if x is None:
        return None
    form = g.b.draw.choose(("flat", "turned", "longer", "rest"))
    targets = []
    for array in x.arrays:
        shape = list(x.first.shape if array is None else array.shape)
        made = {"flat": [int(np.prod(shape))], "turned": shape[::-1], "longer": [1, *shape], "rest": [*shape[:-1], -1]}
        targets.append(np.array(made[form], np.int64))
    if form == "rest" and not all(t[:-1].all() for t in targets):
        return None
    name = g.b.given(targets, fixed(len(targets[0])))
    return g.add("Reshape", x, Value(name, tuple(targets)))


def squeezed(g: Growing) -> Value | None:
    """Without whatever is 1 in the run."""
    x = g.floats(1)
    return g.add("Squeeze", x) if x else None


_STEPS: tuple[Step, ...] = (
    binary, binary, binary, neutral, expand_as, like, size, where, extent, reshape, flatten, cut, tile, positions, concat, turn,
    axes, reduce, product, gather, pad, told, squeezed,
)  # fmt: skip


@family("graph of shapes")
def shapes(b: Builder, op: str) -> None:
    """2 to 6 steps on inputs that share some of their axes."""
    g = Growing(b)
    pool = [b.axis(0, 7) for _ in range(b.draw.integer(1, 3))]
    for _ in range(b.draw.integer(1, 3)):
        shape: list[Axis] = []
        for _ in range(b.draw.integer(1, 3)):
            axis = b.draw.choose(pool)
            match b.draw.choose(("same", "same", "renamed", "one")):
                case "renamed":
                    axis = b.renamed(axis)
                case "one":
                    axis = Axis(b.draw.choose((None, b.fresh("o"))), (1,) * RUNS)
            shape.append(axis)
        g.input(tuple(shape))
    made, wanted = 0, b.draw.integer(1, 5)
    for _ in range(3 * wanted):
        if made < wanted and b.draw.choose(_STEPS)(g) is not None:
            made += 1
    inputs = {i.name for i in b.inputs}
    ends = [v.name for v in g.values if v.name not in g.read and v.name not in inputs]
    b.out(*ends)
    b.checked = True
