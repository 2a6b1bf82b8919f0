"""Rows that a Loop stacks: equally large in every iteration, or in some runs not, where the run has to be refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.oracle.builder import RUNS, Axis, Builder
from tests.oracle.families.table import family

_TRIPS = (1, 1, 2, 3, 4)
_MOST = 8


@dataclass
class Body:
    """A body under construction: ``trip`` is the number of the iteration, as a vector ``at`` too; ``value`` is what is carried."""

    b: Builder
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    trip: str = "i"
    at: str = "at"
    value: str = "v"

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        name = self.b.fresh(op.lower())
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, values: Sequence[int] | np.ndarray) -> str:
        return self.add("Constant", value=numpy_helper.from_array(np.asarray(values)))


Row = Callable[[Body], str]


def _whole(body: Body) -> str:
    return body.add("Relu", body.value)


def _carried(body: Body) -> str:
    return body.add("Identity", body.value)


def _up_to_trip(body: Body) -> str:
    return body.add("Slice", body.value, body.constant([0]), body.at)


def _behind_trip(body: Body) -> str:
    return body.add("Slice", body.value, body.at, body.constant([100]))


def _two(body: Body) -> str:
    return body.add("Slice", body.value, body.constant([0]), body.constant([2]))


def _above_zero(body: Body) -> str:
    condition = body.add("Greater", body.value, body.constant(np.zeros(1, np.float32)))
    return body.add("Compress", body.value, condition, axis=0)


def _found(body: Body) -> str:
    return body.add("Cast", body.add("NonZero", body.add("Relu", body.value)), to=TensorProto.FLOAT)


def _expanded(body: Body) -> str:
    return body.add("Expand", body.constant(np.ones(1, np.float32)), body.at)


def _range(body: Body) -> str:
    numbers = body.add("Range", body.constant(np.array(0)), body.trip, body.constant(np.array(1)))
    return body.add("Cast", numbers, to=TensorProto.FLOAT)


_ROWS: tuple[Row, ...] = (_whole, _carried, _up_to_trip, _behind_trip, _two, _above_zero, _found, _expanded, _range)


@family("rows of a loop")
def rows(b: Builder, op: str) -> None:
    """1 or 2 kinds of rows of what is carried, which stays as long as it is, or loses its first element each time."""
    axis = b.axis(0, _MOST)
    if axis.is_static:
        axis = Axis(b.fresh("d"), axis.extents)
    x = b.input((axis,), values="tame", low=-4, high=4)
    asked = b.given([np.array(b.draw.choose(_TRIPS)) for _ in range(RUNS)], ())
    trips = b.node("Min", asked, b.constant(np.array(_MOST)))  # whatever a request asks for, the run ends
    body = Body(b)
    body.nodes.append(helper.make_node("Reshape", [body.trip, body.constant([1])], [body.at]))
    stacked = [b.draw.choose(_ROWS)(body) for _ in range(b.draw.integer(1, 2))]
    following = body.add("Add", body.value, body.constant(np.full(1, -1, np.float32)))
    if b.draw.flag():
        following = body.add("Slice", following, body.constant([1]), body.constant([100]))
    going = body.add("Identity", "go")
    infos = [_info(body.trip, TensorProto.INT64, []), _info("go", TensorProto.BOOL, [])]
    infos.append(_info(body.value, TensorProto.FLOAT, [None]))
    outputs = [onnx.ValueInfoProto(name=going), _info(following, TensorProto.FLOAT, [None])]
    outputs += [onnx.ValueInfoProto(name=name) for name in stacked]
    graph = helper.make_graph(body.nodes, "body", infos, outputs)
    b.out(*b.multi("Loop", [trips, "", x], 1 + len(stacked), body=graph))
    b.checked = True


def _info(name: str, kind: int, dims: Sequence[int | None] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)
