"""Random ONNX models: a graph under construction whose every value is known, so that each operator is drawn to fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = np.ndarray
T = TypeVar("T")
OPSET = 18
MOST_ELEMENTS = 4096
LARGEST = 1e4


@dataclass(frozen=True)
class Entry:
    """A value of the graph: its elements for the feeds at hand.

    ``exact``: computed without rounding, so that what jumps (comparisons, rounding, sorting) may be applied to it and every
    implementation takes the same side.
    """

    name: str
    array: Array
    exact: bool

    @property
    def kind(self) -> str:
        return {"f": "float", "i": "int", "u": "int", "b": "bool"}[self.array.dtype.kind]

    @property
    def rank(self) -> int:
        return self.array.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


@dataclass
class Maker:
    """Draws nodes; ``choose`` picks one of several, ``random`` fills weights."""

    choose: Callable[[Sequence[Any]], Any]
    random: np.random.Generator
    values: list[Entry] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    feeds: dict[str, Array] = field(default_factory=dict)
    count: int = 0

    # -- drawing

    def pick(self, accepts: Callable[[Entry], bool]) -> Entry | None:
        """One of the values that fit, later ones as likely as earlier ones."""
        fitting = [v for v in self.values if accepts(v)]
        return self.choose(fitting) if fitting else None

    def integer(self, low: int, high: int) -> int:
        """From ``low`` to ``high``, both included."""
        return int(self.choose(list(range(low, high + 1))))

    def flag(self) -> bool:
        return bool(self.choose([False, True]))

    # -- building

    def fresh(self, label: str) -> str:
        self.count += 1
        return f"{label}{self.count}"

    def input(self, array: Array, dims: Sequence[str | int]) -> Entry:
        name = self.fresh("x")
        self.inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims))
        self.feeds[name] = array
        entry = Entry(name, array, True)
        self.values.append(entry)
        return entry

    def constant(self, array: Array | Sequence[int], label: str = "c") -> str:
        """An initializer; a list of ints is int64."""
        name = self.fresh(label)
        held = array if isinstance(array, np.ndarray) else np.array(array, np.int64)
        self.initializers.append(numpy_helper.from_array(held, name))
        return name

    def weights(self, *shape: int, dtype: Any = np.float32) -> str:
        """Multiples of 1/8 below 1."""
        return self.constant((self.random.integers(-8, 9, shape) / 8).astype(dtype), "w")

    def add(self, op: str, *inputs: str, outputs: int = 1, exact: bool = False, **attributes: Any) -> Entry | None:
        """The first output of a new node, if the operator takes its operands and the result is small and finite."""
        names = [self.fresh("v") for _ in range(outputs)]
        node = helper.make_node(op, inputs, names, name=self.fresh("n"), **attributes)
        results = self._evaluated([node], names)
        if results is None:
            return None
        self.nodes.append(node)
        entries = [Entry(n, a, exact) for n, a in zip(names, results, strict=True)]
        self.values.extend(entries)
        return entries[0]

    def _evaluated(self, nodes: list[onnx.NodeProto], names: list[str]) -> list[Array] | None:
        known = {v.name: v.array for v in self.values}
        inner = {n for node in nodes for a in node.attribute for m in a.g.node for n in m.input}
        read = [n for n in dict.fromkeys([*(n for node in nodes for n in node.input), *sorted(inner)]) if n in known]
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(known[n].dtype), known[n].shape)
            for n in read
        ]
        outputs = [onnx.ValueInfoProto(name=n) for n in names]
        graph = helper.make_graph(nodes, "step", infos, outputs, self.initializers)
        try:
            with np.errstate(all="ignore"):
                results = ReferenceEvaluator(model_of(graph)).run(None, {n: known[n] for n in read})
        except Exception:  # whatever the oracle cannot do is not drawn
            return None
        arrays = [np.asarray(r) for r in results]
        return arrays if all(map(_is_tame, arrays)) else None

    def model(self) -> onnx.ModelProto:
        """The graph, with what nothing reads as outputs."""
        read = {n for node in self.nodes for n in node.input}
        read |= {n for node in self.nodes for a in node.attribute for m in a.g.node for n in m.input}
        made = {o for node in self.nodes for o in node.output}
        ends = [v for v in self.values if v.name in made and v.name not in read]
        outputs = [
            helper.make_tensor_value_info(v.name, helper.np_dtype_to_tensor_dtype(v.array.dtype), [None] * v.rank)
            for v in ends
        ]
        return model_of(helper.make_graph(self.nodes, "random", self.inputs, outputs, self.initializers))


def model_of(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def _is_tame(array: Array) -> bool:
    if array.dtype.kind not in "fiub" or array.size > MOST_ELEMENTS or array.ndim > 5:
        return False
    return array.dtype.kind == "b" or bool(np.all(np.abs(array.astype(np.float64)) < LARGEST))
