"""What a graph with control flow means: a plain interpreter of ONNX graphs over arrays that nobody writes to twice.

onnx.reference hands arrays on by reference and is wrong where a body returns what it also updates; this shares nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
Environment = Mapping[str, Array]


def run_model(model: onnx.ModelProto, feeds: Environment) -> list[Array]:
    """The outputs of ``model``."""
    sizes = {
        d.dim_param: size
        for i in model.graph.input
        for d, size in zip(i.type.tensor_type.shape.dim, feeds[i.name].shape, strict=True)
    }
    with np.errstate(all="ignore"):
        return _Interpreter(sizes).run(model.graph, dict(feeds))


@dataclass(frozen=True)
class _Interpreter:
    """``sizes`` are those that the inputs name."""

    sizes: Mapping[str, int]

    def run(self, graph: onnx.GraphProto, known: Environment) -> list[Array]:
        values = {**known, **{i.name: numpy_helper.to_array(i) for i in graph.initializer}}
        for node in graph.node:
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            match node.op_type:
                case "If":
                    results = self.run(
                        attributes["then_branch" if values[node.input[0]].item() else "else_branch"], values
                    )
                case "Loop":
                    results = self._loop(attributes["body"], [values[n] if n else None for n in node.input], values)
                case "Scan":
                    results = self._scan(attributes, [values[n] for n in node.input], values)
                case _:
                    results = [OPERATORS[node.op_type](attributes, *(values[n] if n else None for n in node.input))]
            for name, result in zip(node.output, results, strict=False):
                values[name] = np.array(result)  # a copy: nothing is shared
                values[name].flags.writeable = False
        return [values[o.name] for o in graph.output]

    def _loop(self, body: onnx.GraphProto, inputs: Sequence[Array | None], known: Environment) -> list[Array]:
        limit, condition, *initial = inputs
        carried = [v for v in initial if v is not None]
        trips = 1 << 62 if limit is None else int(limit.item())
        running = True if condition is None else bool(condition.item())
        names = [i.name for i in body.input]
        rows: list[list[Array]] = [[] for _ in body.output[1 + len(carried) :]]
        step = 0
        while running and step < trips:
            given = dict(zip(names, [np.array(step, np.int64), np.array(running), *carried], strict=True))
            found = self.run(body, {**known, **given})
            running, carried = bool(found[0].item()), found[1 : 1 + len(carried)]
            for row, item in zip(rows, found[1 + len(carried) :], strict=True):
                row.append(item)
            step += 1
        kinds = body.output[1 + len(carried) :]
        return [*carried, *(self._stacked(row, kind) for row, kind in zip(rows, kinds, strict=True))]

    def _scan(self, attributes: Mapping[str, Any], inputs: Sequence[Array], known: Environment) -> list[Array]:
        body, count = attributes["body"], attributes["num_scan_inputs"]
        carried, sequences = list(inputs[:-count]), inputs[-count:]
        kinds = body.output[len(carried) :]
        axes = attributes.get("scan_input_axes", [0] * count)
        backward = attributes.get("scan_input_directions", [0] * count)
        names = [i.name for i in body.input]
        length = sequences[0].shape[axes[0]]
        rows: list[list[Array]] = [[] for _ in kinds]
        for step in range(length):
            elements = [
                np.take(s, length - 1 - step if back else step, axis)
                for s, axis, back in zip(sequences, axes, backward, strict=True)
            ]
            found = self.run(body, {**known, **dict(zip(names, [*carried, *elements], strict=True))})
            carried = found[: len(carried)]
            for row, item in zip(rows, found[len(carried) :], strict=True):
                row.append(item)
        directions = attributes.get("scan_output_directions", [0] * len(kinds))
        out_axes = attributes.get("scan_output_axes", [0] * len(kinds))
        return [
            *carried,
            *(
                np.moveaxis(self._stacked(row[::-1] if back else row, kind), 0, axis)
                for row, kind, back, axis in zip(rows, kinds, directions, out_axes, strict=True)
            ),
        ]

    def _stacked(self, rows: Sequence[Array], kind: onnx.ValueInfoProto) -> Array:
        if rows:
            return np.stack(rows)
        own = kind.type.tensor_type
        dims = [d.dim_value or self.sizes.get(d.dim_param, 0) for d in own.shape.dim]
        return np.zeros((0, *dims), helper.tensor_dtype_to_np_dtype(own.elem_type))


def _slice(_: object, data: Array, starts: Array, ends: Array, axes: Array, steps: Array | None = None) -> Array:
    index = [slice(None)] * data.ndim
    strides = np.ones_like(starts) if steps is None else steps
    for start, end, axis, step in zip(starts.tolist(), ends.tolist(), axes.tolist(), strides.tolist(), strict=True):
        index[axis] = slice(start, None if step < 0 and end < -data.shape[axis] else end, step)
    return data[tuple(index)]


def _transpose(attributes: Mapping[str, Any], data: Array) -> Array:
    return np.transpose(data, attributes.get("perm"))


def _sum(attributes: Mapping[str, Any], data: Array, axes: Array | None = None) -> Array:
    keeps = bool(attributes.get("keepdims", 1))
    return np.sum(data, None if axes is None else tuple(axes.tolist()), data.dtype.type, keepdims=keeps)


def _scatter(_: object, data: Array, indices: Array, updates: Array) -> Array:
    found = data.copy()
    for place, update in zip(indices.reshape(-1, indices.shape[-1]), updates, strict=True):
        found[tuple(place)] = update
    return found


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "Identity": lambda _, x: x,
    "Constant": lambda a: numpy_helper.to_array(a["value"]),
    "Add": lambda _, x, y: x + y,
    "Sub": lambda _, x, y: x - y,
    "Mul": lambda _, x, y: x * y,
    "Max": lambda _, x, y: np.maximum(x, y),
    "Min": lambda _, x, y: np.minimum(x, y),
    "Neg": lambda _, x: -x,
    "Abs": lambda _, x: np.abs(x),
    "Mod": lambda _, x, y: np.mod(x, y),
    "Where": lambda _, c, x, y: np.where(c, x, y),
    "Less": lambda _, x, y: x < y,
    "Equal": lambda _, x, y: x == y,
    "And": lambda _, x, y: x & y,
    "Not": lambda _, x: ~x,
    "Cast": lambda a, x: x.astype(helper.tensor_dtype_to_np_dtype(a["to"])),
    "Shape": lambda _, x: np.array(x.shape, np.int64),
    "Reshape": lambda _, x, shape: x.reshape(shape.tolist()),
    "Transpose": _transpose,
    "Squeeze": lambda _, x, axes: np.squeeze(x, tuple(axes.tolist())),
    "Unsqueeze": lambda _, x, axes: np.expand_dims(x, tuple(axes.tolist())),
    "Concat": lambda a, *xs: np.concatenate(xs, a["axis"]),
    "Gather": lambda a, x, i: np.take(x, i, a.get("axis", 0)),
    "Slice": _slice,
    "ReduceSum": _sum,
    "ScatterND": _scatter,
    "MatMul": lambda _, x, y: x @ y,
}
