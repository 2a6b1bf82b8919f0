"""What functions of the executor may make of a request: strings and sequences count as memory of the run, before they are made."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from runtime_service.executors.stop import Stop
from runtime_service.loading.loader import load_model
from shared_ir.errors import ErrorCode, IngotError

ROOM = 1 << 20
Array = np.ndarray


def _graph(nodes: list[onnx.NodeProto], inputs: Mapping[str, Any], outputs: tuple[str, ...]) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(name, *type) for name, type in inputs.items()]
    graph = helper.make_graph(nodes, "calls", infos, [onnx.ValueInfoProto(name=n) for n in outputs])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


_KINDS = TensorProto
_TEXTS: Any = {"x": (_KINDS.STRING, ["n"])}
_EMPTY: Any = {"x": (_KINDS.FLOAT, ["n", "m"])}
_COUNT: Any = {"n": (_KINDS.INT64, [])}


def _constant(name: str, array: Array) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))


def _loop(nodes: list[onnx.NodeProto], state: onnx.TypeProto, start: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """``n`` times ``nodes`` from ``s`` to ``t``."""
    infos = [helper.make_tensor_value_info("i", _KINDS.INT64, []), helper.make_tensor_value_info("c", _KINDS.BOOL, [])]
    keep = helper.make_node("Identity", ["c"], ["d"])
    results = [helper.make_tensor_value_info("d", _KINDS.BOOL, []), helper.make_value_info("t", state)]
    body = helper.make_graph([keep, *nodes], "body", [*infos, helper.make_value_info("s", state)], results)
    return [*start, helper.make_node("Loop", ["n", "", "start"], ["end"], body=body, name="loop")]


def _inserting() -> onnx.ModelProto:
    element = helper.make_tensor_type_proto(_KINDS.FLOAT, [100])
    nodes = _loop(
        [_constant("z", np.zeros(100, np.float32)), helper.make_node("SequenceInsert", ["s", "z"], ["t"], name="node")],
        helper.make_sequence_type_proto(element),
        [helper.make_node("SequenceEmpty", [], ["start"])],
    )
    return _graph([*nodes, helper.make_node("SequenceLength", ["end"], ["y"])], _COUNT, ("y",))


def _doubling() -> onnx.ModelProto:
    state = helper.make_tensor_type_proto(_KINDS.STRING, [2])
    nodes = _loop(
        [helper.make_node("StringConcat", ["s", "s"], ["t"], name="node")],
        state,
        [_constant("start", np.array([b"ab", b"cd"], object))],
    )
    return _graph([*nodes, helper.make_node("Identity", ["end"], ["y"])], _COUNT, ("y",))


def _one(op: str, *outputs: str, domain: str = "", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, ["x"], list(outputs), name="node", domain=domain, **attributes)


_TOKENS = {"mark": 0, "mincharnum": 1, "pad_value": "", "separators": [" "]}
_PARTS = helper.make_node("SequenceLength", ["parts"], ["y"])
_WORDS = np.array(["a " * 500, *[""] * 1000], object)
MODELS: Mapping[str, tuple[onnx.ModelProto, Mapping[str, Array], Mapping[str, Array]]] = {
    "StringSplit": (_graph([_one("StringSplit", "y", "z")], _TEXTS, ("y", "z")), {"x": _WORDS}, {"x": _WORDS[:9]}),
    "Tokenizer": (
        _graph([_one("Tokenizer", "y", domain="com.microsoft", **_TOKENS)], _TEXTS, ("y",)),
        {"x": _WORDS},
        {"x": _WORDS[:9]},
    ),
    "SplitToSequence": (
        _graph([_one("SplitToSequence", "parts"), _PARTS], _EMPTY, ("y",)),
        {"x": np.zeros((50_000, 0), np.float32)},
        {"x": np.zeros((50, 0), np.float32)},
    ),
    "SequenceInsert": (_inserting(), {"n": np.array(5000)}, {"n": np.array(50)}),
    "StringConcat": (_doubling(), {"n": np.array(22)}, {"n": np.array(10)}),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_a_request_makes_is_bounded(name: str) -> None:
    """Each of these is small as a request, and grows by what it asks for."""
    proto, large, small = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        artifact = ingot.compile(proto)
    with load_model(artifact, threads=1, memory_bytes=ROOM) as model:
        model.run(small)
        with pytest.raises(IngotError) as caught:
            model.run(large)
        assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
        assert "node" in caught.value.node
        model.run(small)
    with load_model(artifact, threads=1) as model:
        model.run(large)


@pytest.mark.parametrize(
    ("name", "rows"), [("StringSplit", 40_000), ("Tokenizer", 40_000), ("SplitToSequence", 1_000_000)]
)
def test_making_it_is_stopped(name: str, rows: int) -> None:
    """In the middle: one function alone would take seconds."""
    proto = MODELS[name][0]
    words = np.array(["a " * 500, *[""] * rows], object)
    feeds = {"x": np.zeros((rows, 0), np.float32) if name == "SplitToSequence" else words}
    stop = Stop()
    with load_model(ingot.compile(proto), threads=1) as model:
        threading.Timer(0.1, stop.set).start()
        began = time.monotonic()
        with pytest.raises(IngotError) as caught:
            model.run(feeds, stop)
        assert caught.value.code is ErrorCode.CANCELLED
        assert time.monotonic() - began < 1.0


def test_strings_that_are_answered_count_as_long_as_they_are() -> None:
    """One string in memory, which an answer holds many times over."""
    nodes = [helper.make_node("Expand", ["x", "shape"], ["y"])]
    proto = _graph(nodes, {"x": (_KINDS.STRING, [1]), "shape": (_KINDS.INT64, [1])}, ("y",))
    text = np.array(["a" * 10_000], object)
    with load_model(ingot.compile(proto), threads=1, memory_bytes=ROOM) as model:
        assert model.run({"x": text, "shape": np.array([50])})["y"].shape == (50,)
        with pytest.raises(IngotError) as caught:
            model.run({"x": text, "shape": np.array([200])})
        assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("kind", ["of", "to"])
def test_casts_of_strings_are_stopped(kind: str) -> None:
    to, given = (_KINDS.STRING, _KINDS.FLOAT) if kind == "of" else (_KINDS.FLOAT, _KINDS.STRING)
    proto = _graph([helper.make_node("Cast", ["x"], ["y"], to=to)], {"x": (given, ["n"])}, ("y",))
    x = np.full(2_000_000, 1.25, np.float32) if kind == "of" else np.full(2_000_000, "1.25", object)
    stop = Stop()
    with load_model(ingot.compile(proto), threads=1) as model:
        threading.Timer(0.1, stop.set).start()
        began = time.monotonic()
        with pytest.raises(IngotError) as caught:
            model.run({"x": x}, stop)
    assert caught.value.code is ErrorCode.CANCELLED
    assert time.monotonic() - began < 2.0
