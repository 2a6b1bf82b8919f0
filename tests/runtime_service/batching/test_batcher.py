"""The batcher: everyone gets their own rows, in time, whatever the neighbours do."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_service.arrays import Array
from runtime_service.batching.batcher import Batcher
from runtime_service.batching.execution import BatchOptions, BatchResult, Execution, ReleaseReason
from runtime_service.batching.messages import Cancellation
from runtime_service.executors.resources import Resources
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.waiting import WouldWait
from tests.runtime_service.toy_models import ToyModel, fixed_model, scale_model, wait_until


class Recorder:
    """A :class:`BatchObserver` that remembers."""

    def __init__(self) -> None:
        self.executions: list[Execution] = []
        self.queue: list[int] = []

    def executed(self, execution: Execution) -> None:
        self.executions.append(execution)

    def pending(self, requests: int) -> None:
        self.queue.append(requests)


class Rig:
    """A batcher over one gated model, and threads that call it."""

    def __init__(self, model: ToyModel | None = None, instances: int = 1, **options: Any) -> None:
        self.model = model or scale_model()
        self.observer = Recorder()
        self.batcher = Batcher([self.model] * instances, BatchOptions(**{"max_batch_size": 8} | options), self.observer)
        self._pool = ThreadPoolExecutor(64)

    def send(self, value: float, rows: int = 1, width: int = 4, **arguments: Any) -> Future[BatchResult]:
        inputs = {"x": np.full((rows, width), value, np.float32)}
        return self._pool.submit(self.batcher.run, inputs, **arguments)

    def send_queued(self, value: float, rows: int = 1, **arguments: Any) -> Future[BatchResult]:
        """As :meth:`send`, returning when the request waits in the queue."""
        before = len(self.observer.queue)
        future = self.send(value, rows, **arguments)
        wait_until(lambda: len(self.observer.queue) > before)
        return future

    def block(self) -> Future[BatchResult]:
        """Occupy the instance until the gate opens."""
        self.model.gate.clear()
        future = self.send(-1.0)
        wait_until(lambda: not self.batcher._idle)
        return future

    def close(self) -> None:
        self.model.gate.set()
        self.batcher.close()
        self._pool.shutdown()


def value_of(future: Future[BatchResult]) -> Array:
    return future.result(10).outputs["y"]


@pytest.mark.slow
@given(
    requests=st.lists(st.tuples(st.integers(0, 11), st.sampled_from([1, 3])), min_size=1, max_size=12),
    failing=st.sets(st.integers(0, 11)),
    cancelled=st.sets(st.integers(0, 11)),
    maximum=st.integers(1, 9),
    instances=st.integers(1, 2),
)
@settings(max_examples=60, deadline=None)
def test_everyone_gets_their_own_rows(
    requests: list[tuple[int, int]], failing: set[int], cancelled: set[int], maximum: int, instances: int
) -> None:
    def function(inputs: Mapping[str, Array]) -> dict[str, Array]:
        if np.isin(inputs["x"], [float(i) for i in failing]).any():
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "the model dislikes a value")
        return {"y": inputs["x"] * 2}

    model = scale_model()
    model.function = function
    rig = Rig(model, instances, max_batch_size=maximum)
    try:
        model.gate.clear()
        blockers = [rig.send(-1.0) for _ in range(instances)]
        wait_until(lambda: not rig.batcher._idle)
        cancellations = {i: Cancellation() for i in range(len(requests))}
        futures = [
            rig.send_queued(float(i), rows, width=width, cancellation=cancellations[i])
            for i, (rows, width) in enumerate(requests)
        ]
        for i in cancelled & set(range(len(requests))):
            cancellations[i].cancel()
        model.gate.set()
        for i, (future, (rows, width)) in enumerate(zip(futures, requests, strict=True)):
            if i in cancelled:
                with pytest.raises(IngotError, match="cancelled"):
                    future.result(10)
            elif i in failing and rows:
                with pytest.raises(IngotError, match="dislikes"):
                    future.result(10)
            else:
                assert np.array_equal(value_of(future), np.full((rows, width), 2.0 * i, np.float32))
        assert all(value_of(blocker).tolist() == [[-2.0] * 4] for blocker in blockers)
        assert max(model.runs) <= maximum
    finally:
        rig.close()


@pytest.fixture
def rig(request: pytest.FixtureRequest) -> Any:
    made = Rig(**getattr(request, "param", {}))
    yield made
    made.close()


def test_what_waits_is_merged_when_an_instance_becomes_free(rig: Rig) -> None:
    blocker = rig.block()
    futures = [rig.send_queued(float(i), rows=2) for i in range(3)]
    rig.model.gate.set()
    assert [value_of(f)[0, 0] for f in futures] == [0.0, 2.0, 4.0]
    blocker.result(10)
    assert rig.model.runs == [1, 6]
    assert [(e.requests, e.rows, e.reason) for e in rig.observer.executions] == [
        (1, 1, ReleaseReason.IDLE),
        (3, 6, ReleaseReason.IDLE),
    ]
    assert futures[0].result().queue_time > 0


def test_rows_are_counted_not_requests(rig: Rig) -> None:
    rig.block()
    futures = [rig.send_queued(1.0, rows=5), rig.send_queued(2.0, rows=4), rig.send_queued(3.0, rows=3)]
    rig.model.gate.set()
    for future in futures:
        future.result(10)
    assert rig.model.runs == [1, 8, 4]  # 5 + 3 fit into 8, 4 comes after
    assert rig.observer.executions[1].reason is ReleaseReason.FULL


def test_a_request_above_the_limit_is_computed_in_pieces(rig: Rig) -> None:
    inputs = {"x": np.arange(80, dtype=np.float32).reshape(20, 4)}
    result = rig.batcher.run(inputs)
    assert np.array_equal(result.outputs["y"], inputs["x"] * 2)
    assert rig.model.runs == [8, 8, 4]


@pytest.mark.parametrize("rig", [{"resources": Resources(memory_bytes=300)}], indirect=True)
def test_pieces_together_take_no_more_than_a_run_may(rig: Rig) -> None:
    """What would come of all pieces is known from the first."""
    whole = {"x": np.ones((18, 4), np.float32)}
    assert rig.batcher.run(whole).outputs["y"].nbytes == 288
    rig.model.runs.clear()
    with pytest.raises(IngotError) as caught:
        rig.batcher.run({"x": np.ones((20, 4), np.float32)})
    assert (caught.value.code, rig.model.runs) == (ErrorCode.RESOURCE_EXHAUSTED, [8])
    rig.model.function = lambda inputs: {"y": np.array(["x" * 30] * len(inputs["x"]), object)}
    rig.model.runs.clear()
    with pytest.raises(IngotError) as caught:  # how long texts are is not known before
        rig.batcher.run({"x": np.ones((34, 4), np.float32)})
    assert (caught.value.code, rig.model.runs) == (ErrorCode.RESOURCE_EXHAUSTED, [8, 8])


def test_rows_of_nothing_are_one_piece(rig: Rig) -> None:
    rows = 2**40
    assert rig.batcher.run({"x": np.zeros((rows, 0), np.float32)}).outputs["y"].shape == (rows, 0)
    assert rig.model.runs == [rows]


@pytest.mark.parametrize("rows", [9, 16])
def test_a_piece_with_too_few_rows_is_a_fault(rig: Rig, rows: int) -> None:
    rig.model.function = lambda inputs: {"y": inputs["x"][:1]}
    with pytest.raises(IngotError, match="another number of rows"):
        rig.batcher.run({"x": np.zeros((rows, 4), np.float32)})


def test_a_request_without_rows(rig: Rig) -> None:
    assert rig.batcher.run({"x": np.zeros((0, 4), np.float32)}).outputs["y"].shape == (0, 4)


@pytest.mark.parametrize("rig", [{"max_queue_delay": 0.15}], indirect=True)
def test_delay_bounds_the_wait_for_company(rig: Rig) -> None:
    begin = time.monotonic()
    futures = [rig.send_queued(1.0), rig.send_queued(2.0)]
    assert [value_of(f)[0, 0] for f in futures] == [2.0, 4.0]
    assert 0.1 < time.monotonic() - begin < 2
    assert [(e.rows, e.reason) for e in rig.observer.executions] == [(2, ReleaseReason.DELAY)]


@pytest.mark.parametrize("rig", [{"max_queue_delay": 30.0}], indirect=True)
def test_a_full_batch_does_not_wait(rig: Rig) -> None:
    futures = [rig.send(float(i), rows=4) for i in range(2)]
    for future in futures:
        future.result(5)
    assert [(e.rows, e.reason) for e in rig.observer.executions] == [(8, ReleaseReason.FULL)]


@pytest.mark.parametrize("rig", [{"max_queue_delay": 30.0}], indirect=True)
def test_closing_does_not_wait_for_company(rig: Rig) -> None:
    future = rig.send_queued(1.0)
    rig.batcher.close()
    assert value_of(future)[0, 0] == 2.0
    assert rig.observer.executions[0].reason is ReleaseReason.CLOSING
    with pytest.raises(IngotError) as caught:
        rig.batcher.run({"x": np.zeros((1, 4), np.float32)})
    assert caught.value.code is ErrorCode.UNAVAILABLE


@pytest.mark.parametrize("rig", [{"max_queue_size": 2}], indirect=True)
def test_a_full_queue_refuses_at_once(rig: Rig) -> None:
    rig.block()
    rig.send_queued(1.0)
    rig.send_queued(2.0)
    with pytest.raises(IngotError) as caught:
        rig.send(3.0).result(1)
    assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED


def test_what_is_late_is_not_computed(rig: Rig) -> None:
    rig.block()
    late = rig.send_queued(1.0, deadline=time.monotonic() + 0.05)
    in_time = rig.send_queued(2.0, deadline=time.monotonic() + 30)
    with pytest.raises(IngotError) as caught:
        late.result(1)  # answered while the instance is still busy
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
    assert rig.batcher.oldest_wait > 0
    rig.model.gate.set()
    assert value_of(in_time)[0, 0] == 4.0
    assert rig.model.runs == [1, 1]


def test_a_deadline_that_passes_in_the_queue_is_seen_before_computing() -> None:
    now = [0.0]
    model, observer = scale_model(), Recorder()
    batcher = Batcher([model], BatchOptions(8), observer, clock=lambda: now[0])
    model.gate.clear()
    inputs = {"x": np.ones((1, 4), np.float32)}
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(batcher.run, inputs)
        wait_until(lambda: not batcher._idle)
        late = pool.submit(batcher.run, inputs, 60.0)  # its own clock would let it wait for a minute
        wait_until(lambda: observer.queue == [1])
        now[0] = 61.0
        model.gate.set()
        with pytest.raises(IngotError) as caught:
            late.result(10)
        assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
        first.result(10)
    batcher.close()
    assert model.runs == [1]


def test_other_shapes_are_left_for_a_batch_of_their_own(rig: Rig) -> None:
    rig.block()
    futures = [rig.send_queued(1.0, width=w) for w in (4, 3, 4, 3, 3)]
    rig.model.gate.set()
    for future in futures:
        future.result(10)
    assert [e.requests for e in rig.observer.executions] == [1, 2, 3]
    assert rig.model.runs == [1, 2, 3]  # nothing was tried that had to be repeated


def test_a_deadline_that_has_passed_computes_nothing(rig: Rig) -> None:
    with pytest.raises(IngotError) as caught:
        rig.batcher.run({"x": np.zeros((1, 4), np.float32)}, deadline=time.monotonic() - 1)
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
    assert rig.model.runs == []


def test_a_cancelled_request_leaves_the_queue(rig: Rig) -> None:
    rig.block()
    cancellation = Cancellation()
    gone = rig.send_queued(1.0, cancellation=cancellation)
    cancellation.cancel()
    with pytest.raises(IngotError) as caught:
        gone.result(1)
    assert caught.value.code is ErrorCode.CANCELLED
    assert rig.observer.queue[-1] == 0


def test_a_model_that_returns_too_few_rows_is_a_fault(rig: Rig) -> None:
    rig.model.function = lambda inputs: {"y": inputs["x"][:1]}
    rig.block()
    futures = [rig.send_queued(1.0), rig.send_queued(2.0)]
    rig.model.gate.set()
    assert [value_of(f)[0, 0] for f in futures] == [1.0, 2.0]  # alone, each is right
    with pytest.raises(IngotError, match="another number of rows"):
        rig.batcher.run({"x": np.zeros((2, 4), np.float32)})


def test_models_without_batch_run_one_by_one() -> None:
    rig = Rig(fixed_model(), max_batch_size=0)
    inputs = {"x": np.ones((2, 3), np.int32)}
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: rig.batcher.run(inputs), range(8)))
    assert all((r.outputs["y"] == 2).all() for r in results)
    assert rig.model.runs == [2] * 8
    assert {e.reason for e in rig.observer.executions} == {ReleaseReason.UNBATCHED}
    rig.close()


def test_instances_run_side_by_side() -> None:
    both = threading.Barrier(2, timeout=5)

    def function(inputs: Mapping[str, Array]) -> dict[str, Array]:
        both.wait()  # passes only when two runs overlap
        return {"y": inputs["x"]}

    model = scale_model()
    model.function = function
    rig = Rig(model, instances=2)
    futures = [rig.send(1.0), rig.send(2.0)]
    assert sorted(value_of(f)[0, 0] for f in futures) == [1.0, 2.0]
    rig.close()


def test_many_callers_at_once() -> None:
    rig = Rig(max_batch_size=16, instances=2, max_queue_delay=0.0005)
    futures = [rig.send(float(i), rows=1 + i % 3) for i in range(300)]
    for i, future in enumerate(futures):
        assert np.array_equal(value_of(future), np.full((1 + i % 3, 4), 2.0 * i, np.float32))
    rig.close()
    assert sum(e.rows for e in rig.observer.executions) == sum(1 + i % 3 for i in range(300))


@pytest.mark.parametrize("rig", [{"preferred_batch_sizes": (2, 4), "max_queue_delay": 30.0}], indirect=True)
def test_a_preferred_size_does_not_wait(rig: Rig) -> None:
    futures = [rig.send_queued(float(i)) for i in range(2)]
    assert [value_of(f)[0, 0] for f in futures] == [0.0, 2.0]
    rig.model.gate.clear()
    blockers = [rig.send_queued(1.0), rig.send_queued(1.0)]
    wait_until(lambda: not rig.batcher._idle)
    futures = [rig.send_queued(float(i)) for i in range(7)]
    rig.model.gate.set()
    assert [value_of(f)[0, 0] for f in (*blockers, *futures[:6])] == [2.0, 2.0, *(2.0 * i for i in range(6))]
    assert rig.model.runs == [2, 2, 4, 2]
    assert {e.reason for e in rig.observer.executions} == {ReleaseReason.PREFERRED}


@pytest.mark.parametrize(
    "rig", [{"priority_levels": 3, "default_priority_level": 2, "max_batch_size": 1}], indirect=True
)
def test_priorities_go_first(rig: Rig) -> None:
    order: list[float] = []

    def function(inputs: Mapping[str, Array]) -> dict[str, Array]:
        order.append(float(inputs["x"][0, 0]))
        return {"y": inputs["x"]}

    rig.model.function = function
    rig.block()
    futures = [rig.send_queued(float(i), priority=p) for i, p in enumerate([3, 0, 1, 2, 1])]
    rig.model.gate.set()
    for future in futures:
        future.result(10)
    assert order == [-1.0, 2.0, 4.0, 1.0, 3.0, 0.0]


@pytest.mark.parametrize(
    "rig", [{"priority_levels": 2, "default_priority_level": 2, "max_queue_size": 1}], indirect=True
)
def test_each_priority_has_a_queue_of_its_own(rig: Rig) -> None:
    rig.block()
    rig.send_queued(1.0)
    with pytest.raises(IngotError) as caught:
        rig.send(2.0, priority=2).result(1)
    assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
    urgent = rig.send_queued(3.0, priority=1)
    rig.model.gate.set()
    assert value_of(urgent)[0, 0] == 6.0


@pytest.mark.parametrize("priority", [-1, 1, 2**63])
def test_a_priority_that_the_model_does_not_have_is_refused(rig: Rig, priority: int) -> None:
    with pytest.raises(IngotError) as caught:
        rig.batcher.run({"x": np.zeros((1, 4), np.float32)}, priority=priority)
    assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, "priority")


def test_neighbours_are_computed_between_the_pieces_of_a_long_request(rig: Rig) -> None:
    seen: list[bool] = []

    def function(inputs: Mapping[str, Array]) -> dict[str, Array]:
        seen.append(bool((inputs["x"] == 2.0).any()))
        return {"y": inputs["x"] * 2}

    rig.model.function = function
    rig.model.gate.clear()
    long = rig.send(1.0, rows=8000)
    wait_until(lambda: not rig.batcher._idle)
    short = rig.send_queued(2.0)
    rig.model.gate.set()
    assert value_of(short).tolist() == [[4.0] * 4]
    assert value_of(long).tolist() == [[2.0] * 4] * 8000
    assert seen.index(True) == 1


def test_a_long_request_is_left_between_its_pieces(rig: Rig) -> None:
    cancellation = Cancellation()

    def function(inputs: Mapping[str, Array]) -> dict[str, Array]:
        if len(rig.model.runs) == 3:
            cancellation.cancel()
        return {"y": inputs["x"]}

    rig.model.function = function
    with pytest.raises(IngotError) as caught:
        rig.send(1.0, rows=8000, cancellation=cancellation).result(10)
    assert caught.value.code is ErrorCode.CANCELLED
    wait_until(lambda: bool(rig.batcher._idle))
    assert len(rig.model.runs) <= 4
    assert rig.batcher.oldest_wait == 0


def test_who_does_not_wait_is_told_what_others_have_to_leave(rig: Rig) -> None:
    x = {"x": np.zeros((1, 4), np.float32)}
    rig.block()
    waiting = rig.send_queued(1.0)
    with pytest.raises(WouldWait) as caught:
        rig.batcher.run(x, waits=False)
    place = caught.value.place
    assert place is not None
    assert not place.is_free
    rig.model.gate.set()
    waiting.result(10)
    wait_until(lambda: place.is_free)
    rig.batcher.run(x, waits=False)
    with pytest.raises(WouldWait) as caught:
        rig.batcher.run({"x": np.zeros((9, 4), np.float32)}, waits=False)
    assert caught.value.place is None, "there is nobody to wait for, but more than one run"


@pytest.mark.parametrize("rig", [{"priority_levels": 2, "default_priority_level": 2}], indirect=True)
def test_where_requests_have_priorities_nobody_is_put_off_beside_the_queue(rig: Rig) -> None:
    rig.block()
    with pytest.raises(WouldWait) as caught:
        rig.batcher.run({"x": np.zeros((1, 4), np.float32)}, waits=False, priority=1)
    assert caught.value.place is None
