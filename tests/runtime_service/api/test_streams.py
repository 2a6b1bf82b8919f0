"""``ModelStreamInfer``, by Triton's clients and plain stubs."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_aio

from runtime_service.arrays import Array
from runtime_service.server import RuntimeServer
from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from shared_ir.pb.inference.v2.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from tests.runtime_service.toy_models import (
    ToyModel,
    ToySource,
    running_server,
    sample,
    scale_model,
    tensor,
    wait_until,
)

pytestmark = pytest.mark.services
MOST_AT_ONCE = 16


def moody_model() -> ToyModel:
    """The identity; a request takes as long as its first number says in milliseconds, at most half a second."""
    model = scale_model(1.0)
    function = model.function

    def slow(inputs: Any) -> dict[str, Array]:
        time.sleep(min(0.5, max(0.0, float(inputs["x"][0, 0]) / 1e3)))
        return function(inputs)

    model.function = slow
    model.batch = ""
    return model


@pytest.fixture(scope="module")
def source() -> ToySource:
    made = ToySource()
    made.publish("scale", 1, scale_model, "stable")
    made.publish("moody", 1, moody_model, "stable")
    made.publish("gated", 1, partial(scale_model, 1.0), "stable")
    return made


@pytest.fixture(scope="module")
def server(source: ToySource) -> Iterator[RuntimeServer]:
    with running_server(source, models="*", instances=32, max_in_flight=64) as running:
        yield running


@pytest.fixture
def stub(server: RuntimeServer) -> Iterator[Any]:
    with grpc.insecure_channel(server.addresses["grpc"]) as channel:
        yield GRPCInferenceServiceStub(channel)


def request(model: str = "scale", value: float = 1.0, name: str = "", shape: tuple[int, ...] = (1, 4)) -> Any:
    made = pb.ModelInferRequest(model_name=model, id=name)
    made.inputs.add(name="x", datatype="FP32", shape=shape)
    made.raw_input_contents.append(np.full(shape, value, np.float32).tobytes())
    return made


def first(answer: Any) -> float:
    return float(np.frombuffer(answer.infer_response.raw_output_contents[0], np.float32)[0])


class Talk:
    """A stream whose requests are sent one after the other."""

    def __init__(self, stub: Any, **options: Any) -> None:
        self._requests: queue.Queue[Any] = queue.Queue()
        self.answers = stub.ModelStreamInfer(iter(self._requests.get, None), **options)

    def send(self, *requests: Any) -> None:
        for each in requests:
            self._requests.put(each)

    def end(self) -> None:
        self._requests.put(None)


def test_the_client_that_calls_back(server: RuntimeServer) -> None:
    client, found = triton_grpc.InferenceServerClient(server.addresses["grpc"]), queue.Queue[Any]()
    client.start_stream(lambda result, error: found.put((result, error)))
    for value in range(50):
        x = tensor(triton_grpc, "x", np.full((1, 4), value, np.float32), "FP32")
        client.async_stream_infer("scale" if value % 10 else "none", [x], request_id=str(value))
    for value in range(50):
        result, error = found.get(timeout=10)
        if value % 10:
            assert (result.get_response().id, result.as_numpy("y")[0, 0]) == (str(value), 2 * value)
            assert result.get_response().parameters["triton_final_response"].bool_param
        else:
            assert "no model 'none'" in str(error)
    client.stop_stream()
    client.close()


def test_the_client_of_asyncio(server: RuntimeServer) -> None:
    async def requests() -> AsyncIterator[Any]:
        for value in range(20):
            x = tensor(triton_aio, "x", np.full((1, 4), value, np.float32), "FP32")
            yield {"model_name": "scale", "inputs": [x], "request_id": str(value)}

    async def talk() -> list[Any]:
        client = triton_aio.InferenceServerClient(server.addresses["grpc"])
        found = [pair async for pair in client.stream_infer(requests())]
        await client.close()
        return found

    found = asyncio.run(talk())
    assert all(error is None for _, error in found)
    assert [result.as_numpy("y")[0, 0] for result, _ in found] == [2 * value for value in range(20)]


def test_answers_come_in_order_though_the_first_takes_longest(stub: Any) -> None:
    values = [float(200 - 20 * at) if at < 10 else 0.0 for at in range(40)]
    answers = list(stub.ModelStreamInfer(request("moody", value, str(at)) for at, value in enumerate(values)))
    assert [answer.infer_response.id for answer in answers] == [str(at) for at in range(40)]
    assert [first(answer) for answer in answers] == values


def test_errors_have_their_place_and_the_stream_goes_on(stub: Any) -> None:
    wrong = request(name="wrong", shape=(1, 3))
    answers = list(stub.ModelStreamInfer(iter([request(), wrong, request("absent", name="a"), request(value=3.0)])))
    assert [first(answer) for answer in (answers[0], answers[3])] == [2.0, 6.0]
    assert [answer.infer_response.id for answer in answers[1:3]] == ["wrong", "a"]
    assert "'x'" in answers[1].error_message
    assert "no model 'absent'" in answers[2].error_message
    assert not answers[0].error_message


def test_long_errors_are_shortened(stub: Any) -> None:
    (answer,) = stub.ModelStreamInfer(iter([request("é" * 100_000)]))
    assert 20 < len(answer.error_message.encode()) <= 1000


def test_requests_of_one_stream_are_computed_together(source: ToySource, server: RuntimeServer, stub: Any) -> None:
    """And no more of them than a stream may have: the next one is not read before the first is answered."""
    models = [model for name, _, model in source.loaded if name == "gated"]
    for model in models:
        model.gate.clear()
    talk = Talk(stub)
    talk.send(*(request("gated", at) for at in range(3 * MOST_AT_ONCE)))
    talk.end()
    wait_until(lambda: server.lifecycle.in_flight == MOST_AT_ONCE)
    time.sleep(0.2)
    assert server.lifecycle.in_flight == MOST_AT_ONCE
    for model in models:
        model.gate.set()
    assert [first(answer) for answer in talk.answers] == list(range(3 * MOST_AT_ONCE))


def test_a_stream_that_is_cancelled_ends_its_requests(source: ToySource, server: RuntimeServer, stub: Any) -> None:
    models = [model for name, _, model in source.loaded if name == "gated"]
    for model in models:
        model.gate.clear()
    talk = Talk(stub)
    talk.send(*(request("gated") for _ in range(MOST_AT_ONCE)))
    wait_until(lambda: server.lifecycle.in_flight == MOST_AT_ONCE)
    talk.answers.cancel()
    wait_until(lambda: server.lifecycle.in_flight == 0)
    for model in models:
        model.gate.set()
    talk.end()
    assert first(next(iter(stub.ModelStreamInfer(iter([request()]))))) == 2.0


def test_the_deadline_of_a_stream_and_of_a_request(source: ToySource, server: RuntimeServer, stub: Any) -> None:
    models = [model for name, _, model in source.loaded if name == "gated"]
    for model in models:
        model.gate.clear()
    hurried = request("gated")
    hurried.parameters["timeout"].int64_param = 50_000
    talk = Talk(stub, timeout=5.0)
    talk.send(hurried, request("gated"))
    assert "deadline" in next(talk.answers).error_message
    with pytest.raises(grpc.RpcError) as caught:
        next(talk.answers)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until(lambda: server.lifecycle.in_flight == 0)
    for model in models:
        model.gate.set()
    talk.end()


def test_bytes_that_are_no_message_have_their_answer(server: RuntimeServer) -> None:
    with grpc.insecure_channel(server.addresses["grpc"]) as channel:
        call = channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            request_serializer=bytes,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        answers = list(call(iter([b"\xff" * 10, request().SerializeToString(), b"\x0a\xff" * 3000])))
    assert "no message of this method" in answers[0].error_message
    assert first(answers[1]) == 2.0
    assert answers[2].error_message


def test_room_is_held_for_each_request_and_given_back(source: ToySource) -> None:
    with (
        running_server(source, models="scale", max_request_bytes=1 << 20, max_bytes_in_flight=1 << 22) as server,
        grpc.insecure_channel(server.addresses["grpc"]) as channel,
    ):
        assert server._grpc is not None
        room = server._grpc.room
        talk = Talk(GRPCInferenceServiceStub(channel))
        rows = (10_000, 4)
        for _ in range(5):
            talk.send(*(request(shape=rows) for _ in range(8)))
            for _ in range(8):
                answer = next(talk.answers)
                assert not answer.error_message or "leave no room" in answer.error_message
            wait_until(lambda: room.held == 0)
        talk.end()
        assert list(talk.answers) == []


def test_room_is_held_while_requests_are_computed(source: ToySource, server: RuntimeServer, stub: Any) -> None:
    assert server._grpc is not None
    room = server._grpc.room
    models = [model for name, _, model in source.loaded if name == "gated"]
    for model in models:
        model.gate.clear()
    rows = (10_000, 4)
    answers = stub.ModelStreamInfer(request("gated", shape=rows) for _ in range(4))
    wait_until(lambda: server.lifecycle.in_flight == 4)
    assert room.held >= 4 * 160_000
    for model in models:
        model.gate.set()
    assert len(list(answers)) == 4
    wait_until(lambda: room.held == 0)


def test_a_client_that_reads_nothing_holds_a_bounded_number(server: RuntimeServer, stub: Any) -> None:
    """And the other streams have their threads."""
    rows = (50_000, 4)
    talks = [Talk(stub) for _ in range(4)]
    for talk in talks:
        talk.send(*(request(shape=rows) for _ in range(2 * MOST_AT_ONCE)))
    assert first(next(iter(stub.ModelStreamInfer(iter([request()]))))) == 2.0
    for talk in talks:
        talk.answers.cancel()
        talk.end()
    assert server._grpc is not None
    room = server._grpc.room
    wait_until(lambda: room.held == 0)


def test_streams_that_are_silent_do_not_hold_up_the_end(source: ToySource) -> None:
    with (
        running_server(source, models="scale", drain_timeout=60.0) as server,
        grpc.insecure_channel(server.addresses["grpc"]) as channel,
    ):
        talk = Talk(GRPCInferenceServiceStub(channel), timeout=15.0)
        talk.send(request())
        assert first(next(talk.answers)) == 2.0
        ended = threading.Thread(target=server.drain, args=(threading.Event(),))
        ended.start()
        with pytest.raises(grpc.RpcError) as caught:
            next(talk.answers)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        talk.end()
        ended.join(10)
        assert not ended.is_alive()


def test_requests_of_streams_are_counted_as_others(source: ToySource) -> None:
    with (
        running_server(source, models="scale") as server,
        grpc.insecure_channel(server.addresses["grpc"]) as channel,
    ):
        list(GRPCInferenceServiceStub(channel).ModelStreamInfer(request() for _ in range(10)))
        counted = sample(server, "ingot_inference_request_success_total", model="scale", version="1")
        assert counted == 10


def test_streams_need_the_token(source: ToySource) -> None:
    with (
        running_server(source, models="scale", token="secret") as server,
        grpc.insecure_channel(server.addresses["grpc"]) as channel,
    ):
        stub = GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            list(stub.ModelStreamInfer(iter([request()])))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        (answer,) = stub.ModelStreamInfer(iter([request()]), metadata=(("authorization", "Bearer secret"),))
        assert first(answer) == 2.0
