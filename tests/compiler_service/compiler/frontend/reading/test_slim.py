"""A model without the bytes of its tensors: everything else is as it was."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compiler_service.compiler.frontend.reading.slim import OWN_FILE, without_tensors
from shared_ir.wire.fields import FIXED32, VARINT, WireError, numbers_of, spans


def model_of(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    return helper.make_model(helper.make_graph(list(nodes), "g", [], []))


def slim(model: onnx.ModelProto) -> bytes:
    return without_tensors(memoryview(model.SerializeToString()))


def test_lists_of_numbers_and_names_stay() -> None:
    lists = {
        "ints": [0, -1, 127, 128, 2**62, -(2**63)] * 3000,
        "floats": np.arange(9000, dtype=np.float32).tolist(),
        "strings": ["BRANCH_LEQ", "LEAF"] * 900,
    }
    model = model_of(helper.make_node("TreeEnsembleRegressor", [], [], domain="ai.onnx.ml", **lists))
    assert slim(model) == model.SerializeToString()


def test_a_tensor_behind_numbers_is_left_out() -> None:
    array = np.arange(5000, dtype=np.float32)
    node = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(array))
    node.attribute[0].ints.extend(range(-500, 500))
    node.attribute[0].floats.extend([0.5] * 100)
    model = model_of(node)
    whole = model.SerializeToString()
    found = onnx.ModelProto.FromString(slim(model)).graph.node[0].attribute[0]
    assert (found.ints, found.floats) == (node.attribute[0].ints, node.attribute[0].floats)
    place = {entry.key: entry.value for entry in found.t.external_data}
    start, length = int(place["offset"]), int(place["length"])
    assert place["location"] == OWN_FILE
    assert whole[start : start + length] == array.tobytes()


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_a_number_that_is_cut_off_is_no_number(cut: int) -> None:
    """Two fields of each kind, of which the last lacks its end."""
    fields = helper.make_attribute("a", [0.5, 0.25]).SerializeToString()
    numbers = helper.make_attribute("a", [300, 70000]).SerializeToString()
    pattern = numbers_of((7, FIXED32), (8, VARINT))
    whole = [f[:2] for f in spans(memoryview(numbers), 0, len(numbers), pattern)]
    assert whole == [(1, 2), (20, 0)]
    for message in (b"\x3d\x00\x00\x00\x3f" * 2, b"\x40\x80\x80\x80\x80\x80\x01" * 2):
        ends = message[:-cut]
        with pytest.raises(WireError):
            list(spans(memoryview(ends), 0, len(ends), pattern))
    assert [f[0] for f in spans(memoryview(fields), 0, len(fields), pattern)] == [1, 20]
