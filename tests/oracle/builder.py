"""Models under construction whose axes have an extent of their own in every run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.oracle.case import LAYOUTS, Array, Case
from tests.oracle.draw import Draw
from tests.oracle.values import drawn_array

EXTENTS = (3, 2, 1, 4, 5, 7, 8, 11, 13, 16, 17, 0)
RUNS = 2


@dataclass(frozen=True)
class Axis:
    """``name``: of its symbol, empty for one without a name, None where the model states the extent."""

    name: str | None
    extents: tuple[int, ...]

    @property
    def dim(self) -> int | str | None:
        return self.extents[0] if self.name is None else (self.name or None)

    @property
    def is_static(self) -> bool:
        return self.name is None


Shape = tuple[Axis, ...]


def fixed(*extents: int) -> Shape:
    return tuple(Axis(None, (e,) * RUNS) for e in extents)


def extents_of(shape: Shape, run: int) -> tuple[int, ...]:
    return tuple(axis.extents[run] for axis in shape)


@dataclass
class Builder:
    """Collects inputs, initializers and nodes; what is drawn comes from ``draw``.

    ``free``: inputs that may hold any elements. ``pointwise`` and ``checked`` as in :class:`Case`.
    """

    draw: Draw
    opset: int = 21
    domain_opsets: dict[str, int] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    free: set[str] = field(default_factory=set)
    runs: list[dict[str, Array]] = field(default_factory=lambda: [{} for _ in range(RUNS)])
    pointwise: bool = False
    checked: bool = False
    count: int = 0

    # -- axes

    def axis(self, least: int = 0, most: int = 17, multiple: int = 1) -> Axis:
        """Static, or a symbol with or without a name whose extents differ from run to run."""
        options = [e * multiple for e in EXTENTS if least <= e * multiple <= most]
        kind = self.draw.choose(("static", "named", "named", "unnamed"))
        first = self.draw.choose(options)
        if kind == "static":
            return Axis(None, (first,) * RUNS)
        others = tuple(self.draw.choose(options) for _ in range(RUNS - 1))
        return Axis("" if kind == "unnamed" else self.fresh("d"), (first, *others))

    def shape(self, least_rank: int = 0, most_rank: int = 4, least: int = 0, most: int = 17) -> Shape:
        rank = self.draw.integer(least_rank, most_rank)
        if rank > 3:
            most = min(most, 7)
        return tuple(self.axis(least, most) for _ in range(rank))

    def renamed(self, axis: Axis) -> Axis:
        """The same extents under another name."""
        return axis if axis.is_static else Axis(self.draw.choose(("", self.fresh("e"))), axis.extents)

    def broadcast(self, shape: Shape) -> Shape:
        """A shape that broadcasts to ``shape``: leading axes may lack, others be 1 always or in some runs, or be named otherwise."""
        kept = shape[self.draw.choose((0, 0, 0, *range(len(shape) + 1))) :] if shape else ()
        return tuple(self._narrowed(axis) for axis in kept)

    def _narrowed(self, axis: Axis) -> Axis:
        match self.draw.choose(("same", "same", "one", "renamed", "sometimes one")):
            case "one":
                return Axis(None, (1,) * RUNS)
            case "renamed":
                return self.renamed(axis)
            case "sometimes one":
                extents = tuple(self.draw.choose((1, e)) for e in axis.extents)
                return Axis(self.draw.choose((self.fresh("o"), "")), extents)
        return axis

    # -- values

    def fresh(self, label: str) -> str:
        self.count += 1
        return f"{label}{self.count}"

    def input(self, shape: Shape, dtype: Any = np.float32, values: str = "any", **limits: float) -> str:
        """A graph input with drawn elements; see :func:`drawn_array` for ``values``."""
        numbers, style = self.draw.numbers(), self.draw.below(8)
        arrays = [drawn_array(numbers, extents_of(shape, r), dtype, values, style, **limits) for r in range(RUNS)]
        name = self.given(arrays, shape)
        if not limits:
            self.free.add(self.inputs[-1].name)
        return name

    def given(self, arrays: Sequence[Array], shape: Shape) -> str:
        """A graph input with these elements. Types that no feed may have come as float32 and are cast."""
        name = self.fresh("x")
        narrow = arrays[0].dtype == ml_dtypes.bfloat16
        fed = [a.astype(np.float32) for a in arrays] if narrow else list(arrays)
        kind = helper.np_dtype_to_tensor_dtype(fed[0].dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, [a.dim for a in shape]))
        for feeds, array in zip(self.runs, fed, strict=True):
            feeds[name] = array
        return self.node("Cast", name, to=TensorProto.BFLOAT16) if narrow else name

    def constant(self, array: Array | Sequence[int] | int, label: str = "c") -> str:
        """An initializer; ints are int64."""
        name = self.fresh(label)
        held = array if isinstance(array, np.ndarray | np.generic) else np.array(array, np.int64)
        self.initializers.append(numpy_helper.from_array(np.asarray(held), name))
        return name

    def parameter(self, per_run: Sequence[Any], dtype: Any = np.int64) -> str:
        """Numbers that an operator takes as an operand: a constant where all runs agree and the draw says so, else an input."""
        arrays = [np.asarray(p, dtype) for p in per_run]
        alike = all(a.shape == arrays[0].shape and np.array_equal(a, arrays[0]) for a in arrays)
        if alike and not self.draw.rarely():
            return self.constant(arrays[0])
        return self.given(arrays, tuple(Axis(None, (e,) * RUNS) for e in arrays[0].shape))

    def either(self, shape: Shape, dtype: Any = np.float32, values: str = "any", **limits: float) -> str:
        """An input, or, where the shape is static, perhaps a constant."""
        if all(a.is_static for a in shape) and self.draw.flag():
            numbers, style = self.draw.numbers(), self.draw.below(8)
            return self.constant(drawn_array(numbers, extents_of(shape, 0), dtype, values, style, **limits))
        return self.input(shape, dtype, values, **limits)

    # -- nodes

    def node(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        return self.multi(op, inputs, 1, domain, **attributes)[0]

    def multi(self, op: str, inputs: Sequence[str], outputs: int, domain: str = "", **attributes: Any) -> list[str]:
        names = [self.fresh("v") for _ in range(outputs)]
        held = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(helper.make_node(op, inputs, names, domain=domain, **held))
        return names

    def out(self, *names: str, dtype: Any = None) -> None:
        """Make these outputs of the graph; bfloat16 ones are cast to float32."""
        if dtype == ml_dtypes.bfloat16:
            names = tuple(self.node("Cast", n, to=TensorProto.FLOAT) for n in names)
        self.outputs.extend(names)

    # -- the whole

    def case(self, family: str) -> Case:
        draw = self.draw
        levels = draw.choose(((0, 3), (0, 3), (0, 3), (1, 3), (2, 3)))
        calls = draw.choose(((("aot", 1), ("graph", 2)), (("aot", 2), ("graph", 1))))
        layouts = {i.name: draw.choose(LAYOUTS) for i in self.inputs if draw.rarely(6)}
        aliases = self._aliases()
        model, runs = self.model(), tuple(self.runs)
        return Case(family, model, runs, levels, calls, layouts, aliases, self.pointwise, self.checked)

    def _aliases(self) -> tuple[tuple[str, str], ...]:
        """Two inputs that are one array, if some fit and the draw says so."""
        pairs = [
            (a.name, b.name)
            for i, a in enumerate(self.inputs)
            for b in self.inputs[i + 1 :]
            if {a.name, b.name} <= self.free and all(_alike(feeds[a.name], feeds[b.name]) for feeds in self.runs)
        ]
        if not pairs or not self.draw.rarely():
            return ()
        first, copy = self.draw.choose(pairs)
        for feeds in self.runs:
            feeds[copy] = feeds[first]
        return ((first, copy),)

    def model(self) -> onnx.ModelProto:
        infos = [onnx.ValueInfoProto(name=n) for n in dict.fromkeys(self.outputs)]
        graph = helper.make_graph(self.nodes, "g", self.inputs, infos, self.initializers)
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(domain, version) for domain, version in self.domain_opsets.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _alike(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.dtype.kind == "f"


Family = Callable[[Builder, str], None]
