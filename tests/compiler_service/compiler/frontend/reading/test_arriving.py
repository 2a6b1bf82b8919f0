"""A model that is refused while it comes is one that import refuses with the same words; others pass."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import onnx
import pytest
from onnx import helper

from compiler_service.compiler.frontend.reading.arriving import ArrivingModel
from compiler_service.compiler.frontend.reading.limits import FrontendLimits
from compiler_service.compiler.frontend.reading.source import NEWEST_OPSET, parse_model
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.wire.fields import varint_bytes

Change = Callable[[onnx.ModelProto], object]


def good_model() -> bytes:
    given, wanted = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [given], [wanted])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def changed(change: Change) -> bytes:
    made = onnx.ModelProto.FromString(good_model())
    change(made)
    return bytes(made.SerializeToString())


def weighted(change: Change) -> bytes:
    """With a megabyte of weights before what lies behind them."""
    weight = helper.make_tensor("w", onnx.TensorProto.UINT8, [1 << 20], bytes(1 << 20), raw=True)
    return changed(lambda made: (made.graph.initializer.append(weight), change(made)))


def opset(version: int) -> Change:
    return lambda made: setattr(made.opset_import[0], "version", version)


def imported(domain: str, version: int, spare: int = 0) -> bytes:
    """The field of an operator set; ``spare`` bytes of it are of a field that nobody knows."""
    body = bytes(helper.make_opsetid(domain, version).SerializeToString())
    if spare:
        body += b"\x7a" + varint_bytes(spare) + bytes(spare)
    return b"\x42" + varint_bytes(len(body)) + body


REFUSED = {
    "an archive": b"PK\x03\x04" + bytes(100),
    "a gzipped model": gzip.compress(good_model()),
    "a picture": b"\xff\xd8\xff\xe0" + bytes(100),
    "JSON": b'{"model": 1}',
    "text": b"model one " * 20,
    "random": bytes(range(7, 255)),
    "half": good_model()[:-10],
    "IR version": changed(lambda made: setattr(made, "ir_version", 99)),
    "no IR version": changed(lambda made: made.ClearField("ir_version")),
    "opset": changed(opset(99)),
    "no opset": changed(lambda made: made.ClearField("opset_import")),
    "no graph": changed(lambda made: made.ClearField("graph")),
    "two graphs": good_model() + b"\x3a\x00",
    "another message": b"\x78\x01" * 30,
}

TAKEN = {
    "IR version twice": b"\x08\x63" + weighted(lambda made: made.ClearField("ir_version")) + b"\x08\x08",
    "opset twice": imported("", 99) + weighted(lambda made: None),
    "both names of the domain": imported("ai.onnx", 9999) + weighted(lambda made: None),
    "a long opset": changed(lambda made: made.ClearField("opset_import")) + imported("", 17, spare=80_000),
    "a long opset behind another": imported("ai.onnx", 9999)
    + changed(lambda made: made.ClearField("opset_import"))
    + imported("", 17, spare=80_000),
}


def arrive(data: bytes, size: int = 1000) -> int:
    """How many bytes were sent when it was refused; all of them where it was not."""
    model, sent = ArrivingModel(len(data)), 0
    for start in range(0, len(data), size):
        sent += len(data[start : start + size])
        try:
            model.feed(data[start : start + size])
        except IngotError:
            return sent
    return sent


def told(call: Callable[[], object]) -> str:
    with pytest.raises(IngotError) as caught:
        call()
    assert caught.value.expected
    assert caught.value.received
    return str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_what_import_refuses(name: str) -> None:
    data = REFUSED[name]
    sentence = told(lambda: parse_model(memoryview(data), FrontendLimits()))
    assert told(lambda: ArrivingModel(len(data)).feed(data)) == sentence

    def in_pieces() -> None:
        model = ArrivingModel(len(data))
        for start in range(0, len(data), 7):
            model.feed(data[start : start + 7])

    assert told(in_pieces).split(",")[0] == sentence.split(",")[0]


@pytest.mark.parametrize("size", [1, 10, 1000, 1 << 22])
@pytest.mark.parametrize("version", [1, 7, NEWEST_OPSET])
def test_a_model_passes(size: int, version: int) -> None:
    data = changed(opset(version))
    model = ArrivingModel(len(data))
    for start in range(0, len(data), size):
        model.feed(data[start : start + size])


def test_what_only_import_can_tell_passes() -> None:
    data = changed(lambda made: setattr(made.graph.node[0], "op_type", "Frobnicate"))
    ArrivingModel(len(data)).feed(data)
    many = good_model() + b"".join(b"\x72" + varint_bytes(0) for _ in range(30_000))
    assert arrive(many) == len(many)


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("size", [7, 1000, 1 << 22])
def test_what_import_takes_passes(name: str, size: int) -> None:
    """Of several values the last counts, and they may be of any length."""
    data = TAKEN[name]
    assert parse_model(memoryview(data), FrontendLimits()).ir_version == 8
    model = ArrivingModel(len(data))
    for start in range(0, len(data), size):
        model.feed(data[start : start + size])


def test_it_is_refused_before_the_rest_is_sent() -> None:
    assert arrive(b"\xff\xd8\xff\xe0" + bytes(1 << 20)) == 1000
    assert arrive(b"\x08\x08" + b"\xff" * (1 << 20)) == 1000
    for change in (opset(99), lambda made: setattr(made, "ir_version", 99)):
        data = weighted(change)
        with pytest.raises(IngotError, match="99"):
            ArrivingModel(len(data)).feed(data)


@pytest.mark.parametrize(
    ("ir_version", "opsets", "code"),
    [
        (99, {}, ErrorCode.INVALID_MODEL),
        (8, {"": 99}, ErrorCode.UNSUPPORTED_OPSET),
        (0, {"ai.onnx": 99, "com.acme": 1}, ErrorCode.UNSUPPORTED_OPSET),
    ],
)
def test_what_the_sender_says_is_enough(ir_version: int, opsets: dict[str, int], code: ErrorCode) -> None:
    with pytest.raises(IngotError) as caught:
        ArrivingModel(100).declared(ir_version, opsets)
    assert caught.value.code is code
    assert "99" in caught.value.received


def test_a_sender_need_not_say_anything() -> None:
    ArrivingModel(100).declared(0, {})
    ArrivingModel(100).declared(8, {"": 17, "com.acme": 999})
