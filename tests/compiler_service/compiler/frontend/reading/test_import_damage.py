"""Damaged files and any bytes at all: imported, or refused with a typed error."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared_ir.errors import Blame, ErrorCode, IngotError
from tests.compiler_service.compiler.frontend.onnx_models import BOOL, INT64, constant, graph, load, model, node, tensor

X = tensor("x", ["n", 4])


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_refused_or_imported(data: bytes) -> None:
    _only_typed_errors(data)


def _sample() -> bytes:
    inner = graph([node("Relu", ["h"], ["t"])], [], ["t"])
    other = graph([node("Neg", ["h"], ["e"])], [], ["e"])
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Shape", ["h"], ["s"]),
        node("Slice", ["s", "one", "two"], ["last"]),
        node("Concat", ["minus", "last"], ["target"], axis=0),
        node("Reshape", ["h", "target"], ["r"]),
        node("ReduceMean", ["r"], ["m"], axes=[1], keepdims=1),
        node("If", ["flag"], ["i"], then_branch=inner, else_branch=other),
        node("Add", ["m", "i"], ["y"]),
    ]
    constants = [
        constant("w", np.ones((4, 4), np.float32)),
        constant("one", [1]),
        constant("two", [2]),
        constant("minus", [-1]),
    ]
    return bytes(model(nodes, [X, tensor("flag", [], BOOL)], [tensor("y", ["n", 4])], constants).SerializeToString())


SAMPLE = _sample()


def test_the_sample_itself_is_imported() -> None:
    assert str(load(SAMPLE).graph.outputs[0].type) == "float32[n, 4]"


@pytest.mark.parametrize("start", range(7))
def test_truncations_are_refused(start: int) -> None:
    for length in range(start, len(SAMPLE), 7):
        _only_typed_errors(SAMPLE[:length])


def test_an_absent_part_of_a_concatenation_is_a_fault_of_the_model() -> None:
    position = 107  # the first letter of the first input of Concat
    _only_typed_errors(SAMPLE[:position] + b"\0" + SAMPLE[position + 1 :])
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[4] y) { y = Concat<axis=0>(x, x) }'
    )
    model.graph.node[0].input[0] = ""
    with pytest.raises(IngotError, match="lacks one of its inputs") as caught:
        load(model)
    assert caught.value.code is ErrorCode.INVALID_MODEL


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_models_are_refused_or_imported(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SAMPLE)
    for position, byte in changes:
        data[position] = byte
    _only_typed_errors(bytes(data))


def _sliced(*inputs: str) -> bytes:
    constants = [constant("scalar", 1, np.int64), constant("one", [1]), constant("two", [2])]
    built = model([node("Slice", inputs, ["y"])], [X, tensor("free", [1], INT64)], ["y"], constants)
    return bytes(built.SerializeToString())


@pytest.mark.parametrize("inputs", [("x",), ("x", "scalar", "two", "free")], ids=len)
def test_a_slice_with_operands_that_do_not_fit_is_a_fault_of_the_model(inputs: tuple[str, ...]) -> None:
    with pytest.raises(IngotError) as caught:
        load(_sliced(*inputs))
    assert caught.value.blame is Blame.USER


def test_a_slice_from_a_scalar_is_one_from_a_list_of_it() -> None:
    scalar, listed = (load(_sliced("x", start, "two")).graph.outputs[0].type for start in ("scalar", "one"))
    assert scalar == listed


_FIELDS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 5))


@given(
    st.lists(_FIELDS, max_size=4),
    st.lists(_FIELDS, max_size=4),
    st.sampled_from(["Reshape", "Tile", "Expand", "Slice", "Pad"]),
)
@settings(max_examples=300, deadline=None)
def test_any_numbers_in_shape_inputs(first: list[int], second: list[int], op: str) -> None:
    inputs = ["x", "a", "b"] if op == "Slice" else ["x", "a"]
    constants = [constant("a", first, np.int64), constant("b", second, np.int64)]
    _only_typed_errors(model([node(op, inputs, ["y"])], [X], ["y"], constants).SerializeToString())


def _only_typed_errors(data: bytes) -> None:
    found: IngotError | None = None
    try:
        load(data)
    except IngotError as error:
        found = error
    assert found is None or found.blame is Blame.USER
