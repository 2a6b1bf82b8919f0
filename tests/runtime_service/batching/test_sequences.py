"""Sequences of requests: each goes on from its own state, in its order, and nobody else's."""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.utils import InferenceServerException

from runtime_service.arrays import Array
from runtime_service.batching.execution import BatchResult, Execution, ReleaseReason
from runtime_service.batching.messages import Cancellation, InferRequest
from runtime_service.batching.rows import Arrays
from runtime_service.batching.sequences import Sequences, Step, step_of
from runtime_service.batching.watch import Watch
from runtime_service.policies import SequenceOptions
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import symbol
from shared_ir.plan.program import TensorSpec
from tests.runtime_service.toy_models import ToyModel, ToySource, running_server, tensor, wait_until

BATCH = symbol("batch")
X, STATE, Y, NEXT = (TensorSpec(name, DType.FLOAT32, (BATCH, 2)) for name in ("x", "state", "y", "next"))
OPTIONS = SequenceOptions({"state": "next"})


def sums(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """``y`` is the sum of all ``x`` so far."""
    y = inputs["state"] + inputs["x"]
    return {"y": y * 1, "next": y}


def computed(inputs: Arrays) -> BatchResult:
    return BatchResult(sums(inputs), 0.0, Execution(1, 1, 0.0, 0.0, 0.0, ReleaseReason.UNBATCHED))


def asked(
    sequences: Sequences, name: int, value: float, *, start: bool = False, end: bool = False, peer: str = "a"
) -> float:
    step = Step((peer, name), start, end)
    return float(sequences.run(step, {"x": np.full((1, 2), value, np.float32)}, None, computed).outputs["y"][0, 0])


def code_of(error: pytest.ExceptionInfo[IngotError]) -> ErrorCode:
    return error.value.code


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(0, 9), st.booleans(), st.booleans()),
        max_size=40,
    )
)
def test_each_goes_on_from_its_own_state(steps: list[tuple[str, int, int, bool, bool]]) -> None:
    sequences = Sequences(OPTIONS, (X, STATE), (Y, NEXT))
    known: dict[tuple[str, int], float] = {}
    for peer, name, value, start, end in steps:
        before = 0.0 if start else known.get((peer, name))
        if before is None:
            with pytest.raises(IngotError) as caught:
                asked(sequences, name, value, end=end, peer=peer)
            assert code_of(caught) is ErrorCode.INVALID_ARGUMENT
        else:
            assert asked(sequences, name, value, start=start, end=end, peer=peer) == before + value
            known[peer, name] = before + value
            if end:
                del known[peer, name]
        assert len(sequences) == len(known)
        assert sequences.held_bytes == 8 * len(known)


def test_a_failed_request_leaves_the_state_as_it_was() -> None:
    sequences = Sequences(OPTIONS, (X, STATE), (Y, NEXT))
    asked(sequences, 1, 3.0, start=True)

    def failing(inputs: Arrays) -> BatchResult:
        raise IngotError(ErrorCode.INVALID_ARGUMENT, "the model dislikes a value")

    for start, end in ((False, False), (True, False), (False, True), (True, True)):
        with pytest.raises(IngotError, match="dislikes"):
            sequences.run(Step(("a", 1), start, end), {"x": np.ones((1, 2), np.float32)}, None, failing)
    assert asked(sequences, 1, 4.0) == 7.0
    with pytest.raises(IngotError, match="dislikes"):
        sequences.run(Step(("a", 2), True, False), {"x": np.ones((1, 2), np.float32)}, None, failing)
    assert len(sequences) == 1
    assert asked(sequences, 1, 1.0, end=True) == 8.0
    assert len(sequences) == 0


def test_requests_of_one_sequence_are_computed_one_by_one() -> None:
    sequences = Sequences(OPTIONS, (X, STATE), (Y, NEXT))
    asked(sequences, 1, 0.0, start=True)
    running = threading.Lock()

    def alone(inputs: Arrays) -> BatchResult:
        assert running.acquire(blocking=False)
        try:
            return computed(inputs)
        finally:
            running.release()

    with ThreadPoolExecutor(8) as pool:
        step, one = Step(("a", 1), False, False), {"x": np.ones((1, 2), np.float32)}
        results = [pool.submit(sequences.run, step, one, None, alone) for _ in range(50)]
        found = sorted(float(r.result(10).outputs["y"][0, 0]) for r in results)
    assert found == [float(i) for i in range(1, 51)]


def test_who_waits_for_a_sequence_that_ends_goes_on_with_none() -> None:
    sequences = Sequences(OPTIONS, (X, STATE), (Y, NEXT))
    asked(sequences, 1, 5.0, start=True)
    gate, entered = threading.Event(), threading.Event()

    def slow(inputs: Arrays) -> BatchResult:
        entered.set()
        gate.wait(10)
        return computed(inputs)

    one = {"x": np.ones((1, 2), np.float32)}
    with ThreadPoolExecutor(3) as pool:
        last = pool.submit(sequences.run, Step(("a", 1), False, True), one, None, slow)
        entered.wait(10)
        late = pool.submit(sequences.run, Step(("a", 1), False, False), one, None, computed)
        again = pool.submit(sequences.run, Step(("a", 1), False, False), one, 0.0, computed)
        with pytest.raises(IngotError) as caught:
            again.result(10)
        assert code_of(caught) is ErrorCode.DEADLINE_EXCEEDED
        gate.set()
        assert last.result(10).outputs["y"][0, 0] == 6.0
        with pytest.raises(IngotError) as caught:
            late.result(10)
    assert code_of(caught) is ErrorCode.INVALID_ARGUMENT
    assert (len(sequences), sequences.held_bytes) == (0, 0)


def test_who_has_gone_does_not_wait_for_its_turn() -> None:
    sequences = Sequences(OPTIONS, (X, STATE), (Y, NEXT))
    asked(sequences, 1, 5.0, start=True)
    gate, entered, cancellation = threading.Event(), threading.Event(), Cancellation()

    def slow(inputs: Arrays) -> BatchResult:
        entered.set()
        gate.wait(20)
        return computed(inputs)

    one = {"x": np.ones((1, 2), np.float32)}
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(sequences.run, Step(("a", 1), False, False), one, None, slow)
        entered.wait(10)
        second = pool.submit(sequences.run, Step(("a", 1), False, False), one, None, computed, cancellation)
        cancellation.cancel()
        try:
            with pytest.raises(IngotError) as caught:
                second.result(10)
        finally:
            gate.set()
        assert first.result(10).outputs["y"][0, 0] == 6.0
    assert code_of(caught) is ErrorCode.CANCELLED
    assert asked(sequences, 1, 1.0) == 7.0


def test_sequences_expire() -> None:
    now = [0.0]
    sequences = Sequences(SequenceOptions({"state": "next"}, idle_seconds=10), (X, STATE), (Y, NEXT), lambda: now[0])
    asked(sequences, 1, 1.0, start=True)
    asked(sequences, 2, 1.0, start=True)
    now[0] = 9.0
    assert asked(sequences, 1, 1.0) == 2.0
    now[0] = 11.0
    with pytest.raises(IngotError, match="not there"):
        asked(sequences, 2, 1.0)
    assert (len(sequences), sequences.held_bytes) == (1, 8)
    assert asked(sequences, 1, 1.0) == 3.0


class Reminders(Watch):
    """A watch whose time passes when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[float, Callable[[], object]]] = []

    def remind(self, seconds: float, action: Callable[[], object]) -> None:
        self.asked.append((seconds, action))

    def remind_now(self) -> None:
        (_, action), self.asked = self.asked[0], self.asked[1:]
        action()


def test_the_last_sequences_of_a_quiet_model_expire_as_well() -> None:
    now, reminders = [0.0], Reminders()
    options = SequenceOptions({"state": "next"}, idle_seconds=10)
    sequences = Sequences(options, (X, STATE), (Y, NEXT), lambda: now[0], reminders)
    asked(sequences, 1, 1.0, start=True)
    asked(sequences, 2, 1.0, start=True)
    assert [seconds for seconds, _ in reminders.asked] == [10.0]
    now[0] = 4.0
    asked(sequences, 1, 1.0)
    now[0] = 10.0
    reminders.remind_now()
    assert (len(sequences), sequences.held_bytes) == (1, 8)
    assert [seconds for seconds, _ in reminders.asked] == [4.0]
    now[0] = 14.0
    reminders.remind_now()
    assert (len(sequences), sequences.held_bytes, reminders.asked) == (0, 0, [])
    asked(sequences, 3, 1.0, start=True)
    kept = weakref.ref(sequences)
    del sequences
    assert kept() is None  # a model that is unloaded is kept by nobody
    reminders.remind_now()


def test_sequences_are_bounded_in_number_and_bytes() -> None:
    sequences = Sequences(SequenceOptions({"state": "next"}, most=2), (X, STATE), (Y, NEXT))
    for name in (1, 2):
        asked(sequences, name, 1.0, start=True)
    for _ in range(2):
        with pytest.raises(IngotError) as caught:
            asked(sequences, 3, 1.0, start=True)
        assert code_of(caught) is ErrorCode.RESOURCE_EXHAUSTED
    asked(sequences, 1, 1.0, end=True)
    asked(sequences, 3, 1.0, start=True)
    small = Sequences(SequenceOptions({"state": "next"}, most_bytes=20), (X, STATE), (Y, NEXT))
    for name in (1, 2):
        asked(small, name, 1.0, start=True)
    with pytest.raises(IngotError) as caught:
        asked(small, 3, 1.0, start=True)
    assert code_of(caught) is ErrorCode.RESOURCE_EXHAUSTED
    assert (len(small), small.held_bytes) == (2, 16)
    assert asked(small, 1, 1.0) == 2.0


@pytest.mark.parametrize(
    "options", [SequenceOptions({"state": "next"}, most=8), SequenceOptions({"state": "next"}, most_bytes=64)]
)
def test_one_address_does_not_take_all_sequences(options: SequenceOptions) -> None:
    sequences = Sequences(options, (X, STATE), (Y, NEXT))
    for name in range(6):
        asked(sequences, name, 1.0, start=True)
    for _ in range(2):
        with pytest.raises(IngotError, match="for other addresses") as caught:
            asked(sequences, 6, 1.0, start=True)
        assert code_of(caught) is ErrorCode.RESOURCE_EXHAUSTED
    for name in range(2):
        asked(sequences, name, 1.0, start=True, peer="b")
    assert asked(sequences, 0, 1.0) == 2.0, "those that have begun go on"
    asked(sequences, 0, 1.0, end=True, peer="b")
    asked(sequences, 0, 1.0, end=True)
    asked(sequences, 7, 1.0, start=True, peer="b")
    for name in (1, 2, 3):
        asked(sequences, name, 1.0, end=True)
    asked(sequences, 9, 1.0, start=True)


def test_a_state_holds_nothing_of_a_batch() -> None:
    sequences = Sequences(OPTIONS, (X, STATE), (Y, NEXT))
    batch = np.zeros((1000, 2), np.float32)

    def merged(inputs: Arrays) -> BatchResult:
        return BatchResult({"y": batch[:1], "next": batch[1:2]}, 0.0, computed(inputs).execution)

    sequences.run(Step(("a", 1), True, False), {"x": np.ones((1, 2), np.float32)}, None, merged)
    batch[:] = 7  # somebody else's
    assert asked(sequences, 1, 1.0) == 1.0


def test_a_first_state_may_be_sent_and_a_later_one_may_not() -> None:
    sequences = Sequences(OPTIONS, (X, STATE), (Y, NEXT))
    both = {"x": np.ones((1, 2), np.float32), "state": np.full((1, 2), 40, np.float32)}
    assert sequences.run(Step(("a", 1), True, False), both, None, computed).outputs["y"][0, 0] == 41.0
    with pytest.raises(IngotError) as caught:
        sequences.run(Step(("a", 1), False, False), both, None, computed)
    assert (code_of(caught), caught.value.tensor) == (ErrorCode.INVALID_ARGUMENT, "state")


@pytest.mark.parametrize(
    "parameters",
    [
        {"sequence_id": True},
        {"sequence_id": 1.5},
        {"sequence_id": "x" * 129},
        {"sequence_id": 1, "sequence_start": 1},
        {"sequence_start": True},
        {"sequence_id": "", "sequence_end": True},
    ],
)
def test_malformed_parameters(parameters: dict[str, Any]) -> None:
    with pytest.raises(IngotError) as caught:
        step_of(InferRequest("m", (), parameters=parameters))
    assert code_of(caught) is ErrorCode.INVALID_ARGUMENT
    assert step_of(InferRequest("m", (), parameters={"sequence_id": 0, "sequence_start": False})) is None


@pytest.mark.parametrize(
    ("options", "state"),
    [
        (SequenceOptions({"none": "next"}), STATE),
        (SequenceOptions({"state": "none"}), STATE),
        (OPTIONS, TensorSpec("state", DType.FLOAT64, (BATCH, 2))),
        (OPTIONS, TensorSpec("state", DType.FLOAT32, (BATCH,))),
        (OPTIONS, TensorSpec("state", DType.FLOAT32, (symbol("hidden"), 2))),
    ],
)
def test_what_is_no_state_is_refused_at_load(options: SequenceOptions, state: TensorSpec) -> None:
    with pytest.raises(IngotError) as caught:
        Sequences(options, (X, state), (Y, NEXT))
    assert caught.value.field == "sequence"
    assert Sequences(SequenceOptions({"state": "next"}, {"hidden": 1}), (X, STATE), (Y, NEXT)).inputs == {"state"}


@pytest.fixture
def recurrent() -> ToySource:
    source = ToySource()
    source.publish("m", 1, lambda: ToyModel((X, STATE), (Y, NEXT), sums), "stable")
    source.publish("plain", 1, lambda: ToyModel((X,), (Y,), lambda i: {"y": i["x"]}), "stable")
    return source


@pytest.mark.parametrize("module", [triton_grpc, triton_http])
def test_clients_of_triton_send_sequences(recurrent: ToySource, tmp_path: Path, module: Any) -> None:
    file = tmp_path / "models.json"
    file.write_text(json.dumps({"m": {"sequence": {"state": {"state": "next"}}}, "plain": {}}))
    with running_server(recurrent, models_file=str(file)) as server:
        client = module.InferenceServerClient(server.addresses["grpc" if module is triton_grpc else "http"])

        def ask(name: int | str, value: float, model: str = "m", **edges: bool) -> float:
            x = tensor(module, "x", np.full((1, 2), value, np.float32), "FP32")
            answer = client.infer(model, [x], sequence_id=name, **edges)
            assert answer.as_numpy("next") is None
            return float(answer.as_numpy("y")[0, 0])

        wait_until(server.dataplane.ready)
        assert ask(7, 1.0, sequence_start=True) == 1.0
        assert ask("of-a-name", 10.0, sequence_start=True) == 10.0
        assert ask(7, 2.0) == 3.0
        assert ask("of-a-name", 5.0) == 15.0
        assert ask(7, 4.0, sequence_end=True) == 7.0
        with pytest.raises(InferenceServerException, match="not there"):
            ask(7, 1.0)
        with pytest.raises(InferenceServerException, match="keeps no state"):
            ask(7, 1.0, model="plain", sequence_start=True)
        whole = [tensor(module, name, np.ones((1, 2), np.float32), "FP32") for name in ("x", "state")]
        assert client.infer("m", whole).as_numpy("next").tolist() == [[2.0, 2.0]]
        client.close()
