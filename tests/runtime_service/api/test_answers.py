"""Answers ask for their memory before they are made, and end where nobody waits for them."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from runtime_service.api import grpc_codec, rest_codec
from runtime_service.api.rest_document import BinaryOutputs
from runtime_service.arrays import Array
from runtime_service.batching.messages import Cancellation, InferRequest, InferResponse, Take, TensorData
from runtime_service.batching.taking import taking
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.memory.room import RequestRoom

SLACK = 3 << 20
"""Bytes of the elements that are written together."""


def strings(*texts: str) -> Array:
    found = np.empty(len(texts), object)
    found[:] = texts
    return found


ARRAYS: Mapping[str, tuple[DType, Array]] = {
    "floats": (DType.FLOAT32, np.linspace(-1e9, 1e-9, 200_000, dtype=np.float32)),
    "whole numbers": (DType.INT64, np.arange(200_000).reshape(2, -1)),
    "truth values": (DType.BOOL, np.zeros(300_000, np.bool_)),
    "short strings": (DType.STRING, strings(*["abc", "é"] * 50_000)),
    "long strings": (DType.STRING, strings(*["a" * 1_000_000] * 20)),
    "escaped strings": (DType.STRING, strings(*["\x01" * 700_000, "\U0001f600" * 700_000] * 3)),
}
WAYS: Mapping[str, Callable[[InferResponse, Take], object]] = {
    "json": lambda response, take: rest_codec.encode(response, BinaryOutputs(), take),
    "binary": lambda response, take: rest_codec.encode(response, BinaryOutputs(True), take),
    "grpc raw": lambda response, take: grpc_codec.encode(response, True, take),
    "grpc typed": lambda response, take: grpc_codec.encode(response, False, take),
}


def answer(name: str) -> InferResponse:
    return InferResponse("m", "1", "r", (TensorData("y", *ARRAYS[name]),))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ARRAYS)
def test_memory_is_asked_for_before_it_is_used(name: str, way: str) -> None:
    response = answer(name)
    taken = beyond = 0

    def take(size: int) -> None:
        nonlocal taken, beyond
        beyond = max(beyond, tracemalloc.get_traced_memory()[1] - start - taken)
        taken += size

    tracemalloc.start()
    start = tracemalloc.get_traced_memory()[0]
    try:
        made = WAYS[way](response, take)
        take(0)
    finally:
        tracemalloc.stop()
    assert beyond < SLACK
    parts = getattr(made, "parts", None)
    assert taken >= (made.ByteSize() if parts is None else sum(map(len, parts)) - 1000)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ARRAYS)
def test_json_is_that_of_the_whole(name: str) -> None:
    array = ARRAYS[name][1]
    made = rest_codec.encode(answer(name), BinaryOutputs(), lambda size: None)
    document = json.loads(b"".join(made.parts))
    assert document["outputs"][0]["data"] == array.ravel().tolist()
    assert (document["model_name"], document["model_version"], document["id"]) == ("m", "1", "r")
    assert document["outputs"][0]["shape"] == list(array.shape)


def test_several_outputs_of_both_kinds() -> None:
    outputs = (
        TensorData("a", DType.FLOAT32, np.ones(2, np.float32)),
        TensorData("b", DType.INT64, np.arange(3)),
        TensorData("c", DType.STRING, strings()),
    )
    made = rest_codec.encode(InferResponse("m", "1", "", outputs), BinaryOutputs(False, {"b": True}), print)
    body = b"".join(made.parts)
    length = int(made.headers["Inference-Header-Content-Length"])
    document: Any = json.loads(body[:length])
    assert [o.get("data") for o in document["outputs"]] == [[1.0, 1.0], None, []]
    assert np.frombuffer(body[length:], np.int64).tolist() == [0, 1, 2]


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_that_nobody_waits_for_is_not_made(way: str) -> None:
    late = InferRequest("m", (), deadline=time.monotonic() - 1)
    gone = InferRequest("m", (), cancellation=Cancellation(lambda: True))
    for request, code in ((late, ErrorCode.DEADLINE_EXCEEDED), (gone, ErrorCode.CANCELLED)):
        with pytest.raises(IngotError) as caught:
            WAYS[way](answer("floats"), taking(request))
        assert caught.value.code is code


def test_one_answer_may_not_need_the_whole_room() -> None:
    """A request alone is let in whatever it takes, since it was bounded before; answers are not."""
    room = RequestRoom(1 << 20)
    guest = room.enter("peer", lambda: None)
    guest.take(1 << 21)
    for _ in range(50):
        guest.grow(20_000)
    with pytest.raises(IngotError) as caught:
        guest.grow(50_000)
    assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
    guest.leave()
    assert room.held == 0


def test_what_was_taken_while_an_answer_was_made_is_given_back() -> None:
    room = RequestRoom(1 << 30)
    guest = room.enter("peer", lambda: None)
    for size, held in ((500_000, 500_000), (100, 0), (2_000_000, 2_000_000)):
        for _ in range(100):
            guest.grow(10_000)
        guest.settle(size)
        assert room.held == held
        guest.give(guest.held)
        assert room.held == 0
