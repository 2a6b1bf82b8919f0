"""A run ends when nobody wants its result any more: in the middle of a loop, between kernels, and its instance serves the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.pipeline import ModelSource, compile_model
from runtime_service.batching.batcher import Batcher
from runtime_service.batching.execution import BatchOptions
from runtime_service.batching.messages import Cancellation
from runtime_service.batching.watch import Watch
from runtime_service.executors.stop import Stop
from runtime_service.loading.loader import ExecutorKind, load_model
from runtime_service.loading.model import Model
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from tests.native_models import build_model, toy_feeds
from tests.runtime_service.batching.test_batcher import Recorder

ENDLESS = 1 << 40
PATIENCE = 5.0
"""Seconds; a run that is stopped takes some hundredths."""


def counting_model() -> onnx.ModelProto:
    """``y`` = x + the number of rounds, ``t`` of them."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["goes_on"], ["still"]),
            helper.make_node("Add", ["sum", "one"], ["more"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", TensorProto.FLOAT, [1]),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("more", TensorProto.FLOAT, [1]),
        ],
        [helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["t", "", "x"], ["y"], body=body)],
        "g",
        [
            helper.make_tensor_value_info("t", TensorProto.INT64, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture(scope="module")
def counting() -> CompiledArtifact:
    return compile_model(ModelSource.of(counting_model().SerializeToString()), host_target(), workers=0)


@pytest.fixture(params=["aot", "graph"])
def model(request: pytest.FixtureRequest, counting: CompiledArtifact) -> Iterator[Model]:
    with load_model(counting, threads=1, executor=request.param) as found:
        yield found


def feeds(rounds: int) -> dict[str, np.ndarray]:
    return {"t": np.array(rounds, np.int64), "x": np.zeros(1, np.float32)}


def test_an_endless_loop_is_stopped_and_the_next_run_is_right(model: Model) -> None:
    stop, begun = Stop(), time.monotonic()
    threading.Timer(0.1, stop.set).start()
    with pytest.raises(IngotError, match="stopped") as caught:
        model.run(feeds(ENDLESS), stop)
    assert caught.value.code is ErrorCode.CANCELLED
    assert 0.1 <= time.monotonic() - begun < PATIENCE
    assert model.run(feeds(7), Stop())["y"] == 7
    assert model.run(feeds(8))["y"] == 8


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_a_run_that_is_stopped_before_it_begins_computes_nothing(executor: ExecutorKind, threads: int) -> None:
    stop = Stop()
    stop.set()
    with load_model(build_model().artifact(), threads=threads, executor=executor) as model:
        with pytest.raises(IngotError, match="stopped"):
            model.run(toy_feeds(10), stop)
        assert set(model.run(toy_feeds(10), Stop())) == {"sum", "pairs"}


def suppression_model() -> onnx.ModelProto:
    """One task that compares all boxes with each other."""
    limits = {"most": np.array(1 << 40), "overlap": np.array(0.5, np.float32), "least": np.array(0, np.float32)}
    graph = helper.make_graph(
        [helper.make_node("NonMaxSuppression", ["boxes", "scores", *limits], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, "n", 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 1, "n"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT64, ["m", 3])],
        [numpy_helper.from_array(value, name) for name, value in limits.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def boxes(count: int) -> dict[str, np.ndarray]:
    """All apart from each other."""
    corners = np.arange(count, dtype=np.float32)[None, :, None] * 2 + np.array([0, 0, 1, 1], np.float32)
    return {"boxes": corners, "scores": np.ones((1, 1, count), np.float32)}


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_a_task_that_takes_long_is_stopped_inside(executor: ExecutorKind) -> None:
    artifact = compile_model(ModelSource.of(suppression_model().SerializeToString()), host_target(), workers=0)
    with load_model(artifact, threads=1, executor=executor) as model:
        stop, begun = Stop(), time.monotonic()
        threading.Timer(0.1, stop.set).start()
        with pytest.raises(IngotError, match="stopped") as caught:
            model.run(boxes(200_000), stop)  # minutes
        assert caught.value.code is ErrorCode.CANCELLED
        assert time.monotonic() - begun < PATIENCE
        assert model.run(boxes(30), Stop())["y"][:, 2].tolist() == list(range(30))


@pytest.fixture
def batcher(model: Model) -> Iterator[tuple[Batcher, Watch]]:
    watch = Watch()
    found = Batcher([model], BatchOptions(), Recorder(), watch=watch)
    yield found, watch
    found.close()


def test_a_deadline_reaches_inside_of_a_loop(batcher: tuple[Batcher, Watch]) -> None:
    queue, _ = batcher
    begun = time.monotonic()
    with pytest.raises(IngotError) as caught:
        queue.run(feeds(ENDLESS), deadline=begun + 0.2)
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
    assert 0.2 <= time.monotonic() - begun < PATIENCE
    assert queue.run(feeds(3), deadline=time.monotonic() + 60).outputs["y"] == 3


def test_a_client_that_goes_away_frees_its_instance(batcher: tuple[Batcher, Watch]) -> None:
    queue, _ = batcher
    gone = Cancellation()
    threading.Timer(0.1, gone.cancel).start()
    with pytest.raises(IngotError) as caught:
        queue.run(feeds(ENDLESS), cancellation=gone)
    assert caught.value.code is ErrorCode.CANCELLED
    assert queue.run(feeds(3)).outputs["y"] == 3


def test_a_server_that_ends_stops_what_runs(batcher: tuple[Batcher, Watch]) -> None:
    queue, watch = batcher
    threading.Timer(0.2, watch.stop_all).start()
    with pytest.raises(IngotError) as caught:
        queue.run(feeds(ENDLESS))
    assert caught.value.code is ErrorCode.UNAVAILABLE


def test_a_watch_that_slept_sees_the_next_run(monkeypatch: pytest.MonkeyPatch, batcher: tuple[Batcher, Watch]) -> None:
    monkeypatch.setattr("runtime_service.batching.watch._IDLE_SECONDS", 0.0)
    queue, _ = batcher
    for _ in range(3):
        with pytest.raises(IngotError):
            queue.run(feeds(ENDLESS), deadline=time.monotonic() + 0.1)
        time.sleep(0.1)
    assert queue.run(feeds(2)).outputs["y"] == 2
