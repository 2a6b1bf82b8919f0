"""Models that must agree with themselves: told otherwise, in parts, or row by row. No other implementation is asked."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference, utils

from tests.conformance.compiled import run_compiled
from tests.oracle.case import Array
from tests.oracle.vote import close, difference

Dims = Sequence[int | str]
LEVELS = (0, 3)


@dataclass(frozen=True)
class Subject:
    """A model of one input ``x``, whose first axis is the batch ``n``, and one output ``y``."""

    name: str
    dims: Dims
    nodes: tuple[onnx.NodeProto, ...]
    weights: dict[str, tuple[int, ...]]

    def model(self) -> onnx.ModelProto:
        numbers = np.random.default_rng(0)
        held = [
            numpy_helper.from_array((numbers.integers(-8, 9, shape) / 8).astype(np.float32), name)
            for name, shape in self.weights.items()
        ]
        read = {name for node in self.nodes for name in node.input}
        held += [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in _INTEGERS.items() if n in read]
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.dims)
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph(list(self.nodes), "g", [x], [y], held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)

    def feed(self, batch: int) -> dict[str, Array]:
        shape = [batch, *(d if isinstance(d, int) else 6 for d in self.dims[1:])]
        return {"x": np.random.default_rng(batch).normal(size=shape).astype(np.float32)}


_INTEGERS = {"rows": [0, -1, 8], "last": [-1], "heads": [0, 0, 2, 4], "axis": 1}
_node = helper.make_node

SUBJECTS = (
    Subject("mlp", ["n", 8], (
        _node("Gemm", ["x", "w"], ["h"]), _node("Sigmoid", ["h"], ["s"]), _node("Mul", ["h", "s"], ["g"]),
        _node("MatMul", ["g", "v"], ["m"]), _node("Add", ["m", "b"], ["y"]),
    ), {"w": (8, 12), "v": (12, 5), "b": (5,)}),
    Subject("convolutions", ["n", 4, "h", 9], (
        _node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]), _node("Relu", ["c"], ["r"]),
        _node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]), _node("Conv", ["p", "v"], ["d"], pads=[1, 1, 1, 1]),
        _node("Add", ["d", "p"], ["a"]), _node("GlobalAveragePool", ["a"], ["y"]),
    ), {"w": (6, 4, 3, 3), "b": (6,), "v": (6, 6, 3, 3)}),
    Subject("attention", ["n", "t", 8], (
        _node("MatMul", ["x", "w"], ["q"]), _node("Reshape", ["q", "heads"], ["qh"]),
        _node("Transpose", ["qh"], ["qt"], perm=[0, 2, 1, 3]), _node("Transpose", ["qh"], ["kt"], perm=[0, 2, 3, 1]),
        _node("MatMul", ["qt", "kt"], ["s"]), _node("Softmax", ["s"], ["p"], axis=-1), _node("MatMul", ["p", "qt"], ["o"]),
        _node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]), _node("Reshape", ["ot", "rows"], ["f"]),
        _node("Add", ["f", "x"], ["a"]), _node("LayerNormalization", ["a", "g", "b"], ["y"]),
    ), {"w": (8, 8), "g": (8,), "b": (8,)}),
    Subject("pieces", ["n", "t", 8], (
        _node("Split", ["x"], ["l", "r"], axis=2, num_outputs=2), _node("Tanh", ["l"], ["lt"]),
        _node("Concat", ["r", "lt", "l"], ["c"], axis=2), _node("ReduceSum", ["c", "last"], ["s"], keepdims=1),
        _node("Mul", ["c", "s"], ["m"]), _node("CumSum", ["m", "axis"], ["y"]),
    ), {}),
    Subject("recurrent", ["n", "t", 4], (
        _node("Transpose", ["x"], ["xt"], perm=[1, 0, 2]),
        _node("LSTM", ["xt", "w", "r"], ["o"], hidden_size=3), _node("Transpose", ["o"], ["y"], perm=[2, 0, 1, 3]),
    ), {"w": (1, 12, 4), "r": (1, 12, 3)}),
)  # fmt: skip


def _subjects(test: Callable[..., None]) -> Callable[..., None]:
    marked: Callable[..., None] = pytest.mark.slow(pytest.mark.parametrize("level", LEVELS)(test))
    named: Callable[..., None] = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: s.name)(marked)
    sampled: Callable[..., None] = pytest.mark.sampled(named)
    return sampled


def _outputs(model: onnx.ModelProto, feeds: dict[str, Array], level: int) -> Array:
    return run_compiled(model, feeds, level)[0]


def _assert_close(found: Array, wanted: Array) -> None:
    assert close(found, wanted, loosest=2e-5), difference([found], [wanted], loosest=2e-5)


@_subjects
def test_a_batch_is_as_many_batches_of_one(subject: Subject, level: int) -> None:
    model, feeds = subject.model(), subject.feed(4)
    whole = _outputs(model, feeds, level)
    rows = [_outputs(model, {"x": feeds["x"][i : i + 1]}, level) for i in range(4)]
    _assert_close(whole, np.concatenate(rows))


@_subjects
def test_nothing_changes_behind_identities(subject: Subject, level: int) -> None:
    model, feeds = subject.model(), subject.feed(3)
    _assert_close(_outputs(_behind(model, "Identity"), feeds, level), _outputs(model, feeds, level))


@_subjects
def test_nothing_changes_behind_casts_there_and_back(subject: Subject, level: int) -> None:
    model, feeds = subject.model(), subject.feed(3)
    _assert_close(_outputs(_behind(model, "Cast"), feeds, level), _outputs(model, feeds, level))


@_subjects
def test_two_halves_are_the_whole(subject: Subject, level: int) -> None:
    model, feeds = subject.model(), subject.feed(3)
    known = shape_inference.infer_shapes(model)
    between = _cuts(model)
    assert between
    values = feeds
    for begin, end in (("x", between[0]), (between[0], "y")):
        part = utils.Extractor(known).extract_model([begin], [end])
        values = {end: _outputs(part, values, level)}
    _assert_close(values["y"], _outputs(model, feeds, level))


@_subjects
def test_padding_and_slicing_commute_with_the_model(subject: Subject, level: int) -> None:
    """Rows of zeros at the end of the batch, cut off again behind it, leave the others alone."""
    model, feeds = subject.model(), subject.feed(3)
    padded = copy.deepcopy(model)
    rank = len(subject.dims)
    padded.graph.initializer.extend(
        numpy_helper.from_array(np.array(v, np.int64), n)
        for n, v in {"pads": [0] * rank + [2] + [0] * (rank - 1), "begin": [0], "end": [-2], "batch": [0]}.items()
    )
    for node in padded.graph.node:
        node.input[:] = ["padded" if n == "x" else n for n in node.input]
        node.output[:] = ["long" if n == "y" else n for n in node.output]
    padded.graph.node.insert(0, _node("Pad", ["x", "pads"], ["padded"]))
    padded.graph.node.append(_node("Slice", ["long", "begin", "end", "batch"], ["y"]))
    _assert_close(_outputs(padded, feeds, level), _outputs(model, feeds, level))


def _behind(model: onnx.ModelProto, op: str) -> onnx.ModelProto:
    """The same graph with a node, or a wider type and back, behind every float value."""
    told = shape_inference.infer_shapes(model)
    floats = {v.name for v in told.graph.value_info if v.type.tensor_type.elem_type == TensorProto.FLOAT} | {"x"}
    changed = copy.deepcopy(model)
    del changed.graph.node[:]
    changed.graph.node.extend(_echo(op, "x", 0))
    for number, node in enumerate(model.graph.node):
        copied = copy.deepcopy(node)
        copied.input[:] = [f"{n}_again" if n in floats else n for n in node.input]
        changed.graph.node.append(copied)
        for place, name in enumerate(node.output):
            if name in floats:
                changed.graph.node.extend(_echo(op, name, 100 * (number + 1) + place))
    return changed


def _echo(op: str, name: str, number: int) -> list[onnx.NodeProto]:
    if op == "Identity":
        return [_node("Identity", [name], [f"{name}_again"])]
    wide = f"wide_{number}"
    to, back = TensorProto.DOUBLE, TensorProto.FLOAT
    return [_node("Cast", [name], [wide], to=to), _node("Cast", [wide], [f"{name}_again"], to=back)]


def _cuts(model: onnx.ModelProto) -> list[str]:
    """Values that alone lead from the input to the output."""
    nodes = list(model.graph.node)
    held = {i.name for i in model.graph.initializer}
    found: list[str] = []
    for at in range(1, len(nodes)):
        made = {"x", *(o for n in nodes[:at] for o in n.output)}
        crossing = {i for n in nodes[at:] for i in n.input if i in made and i not in held}
        if len(crossing) == 1 and crossing != {"x"}:
            found += crossing
    return found
