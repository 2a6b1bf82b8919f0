"""The versions of a model, read from its bytes as they come, however they are cut and in whatever order its fields lie."""

from __future__ import annotations

import random
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from shared_ir.wire.fields import TruncatedError, WireError, varint_bytes
from shared_ir.wire.model_head import MOST_FIELDS, ModelHead


def model() -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.arange(500, dtype=np.float32), "w")
    given, wanted = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [500]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [given], [wanted], [weight])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="somebody")
    made.metadata_props.add(key="k", value="v")
    return made


def field(number: int, content: bytes) -> bytes:
    return varint_bytes(number << 3 | 2) + varint_bytes(len(content)) + content


def shuffled(seed: int) -> bytes:
    """The same model with its fields in another order; ``opset_import`` first of all where ``seed`` is 0."""
    made = model()
    fields = [field(7, made.graph.SerializeToString()), b"\x08\x08", field(2, b"somebody")]
    fields += [field(8, opset.SerializeToString()) for opset in made.opset_import]
    random.Random(seed).shuffle(fields)
    return b"".join(fields if seed else fields[::-1])


def read(data: bytes, size: int) -> ModelHead:
    head = ModelHead(len(data))
    for at in range(0, len(data), size):
        head.feed(data[at : at + size], at)
    return head


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000, 10_000])
@pytest.mark.parametrize("data", [model().SerializeToString(), *map(shuffled, range(4))])
def test_any_cut_and_any_order(data: bytes, size: int) -> None:
    head = read(data, size)
    assert head.found.ir_version == 8
    assert head.found.opsets == {"": 17, "com.microsoft": 1}
    assert (head.found.graphs, head.found.foreign_fields, head.is_known) == (1, 0, True)
    assert head.wanted == len(data)


def test_the_graph_need_not_be_read() -> None:
    data, read = model().SerializeToString(), 0
    head = ModelHead(len(data))
    while head.wanted < len(data):
        at = head.wanted
        piece = data[at : at + 32]
        head.feed(piece, at)
        read += len(piece)
    assert head.found.opsets[""] == 17
    assert read < 200 < len(data)


@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_what_ends_too_early_is_told_by_its_size(size: int) -> None:
    data = model().SerializeToString()
    for end in (1, 5, 60, len(data) - 1):
        with pytest.raises(TruncatedError):
            read(data[:end], size)


@pytest.mark.parametrize("data", [b"\x00\x01", b"\xff" * 12, b"\x0b\x0c", b"\x0f", bytes([0x80] * 11)])
def test_what_is_no_protobuf(data: bytes) -> None:
    for size in (1, 100):
        with pytest.raises(WireError):
            read(data, size)


@pytest.mark.parametrize("size", [1000, 1 << 20])
def test_an_operator_set_that_is_larger_than_any_is_not_known(size: int) -> None:
    data = b"\x08\x08" + field(8, b"\x0a\x00" * 40_000) + field(8, b"\x10\x11")
    head = read(data, size)
    assert not head.is_known
    assert head.found.ir_version == 8
    assert head.wanted == len(data)


def test_millions_of_fields_take_no_time() -> None:
    data = b"\x08\x08" * 3_000_000
    start = time.process_time()
    head = read(data, 1 << 20)
    assert time.process_time() - start < 1.0
    assert not head.is_known
    assert head.found.known_fields == MOST_FIELDS
    assert head.wanted == len(data)
