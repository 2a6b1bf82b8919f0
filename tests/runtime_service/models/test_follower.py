"""Following versions and labels: what answers, what is ready, what happens when loading fails."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_service.batching.messages import InferRequest, TensorData
from runtime_service.dataplane import DataPlane
from runtime_service.lifecycle import Lifecycle, Phase
from runtime_service.metrics import Metrics
from runtime_service.models.follower import Follower
from runtime_service.models.registry import ModelRegistry
from runtime_service.models.source import VersionSource
from runtime_service.models.versions import ModelLoader
from runtime_service.settings import Settings
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from tests.runtime_service.toy_models import ToyModel, ToySource, mixing_model, sample_of, scale_model, wait_until


class Service:
    """The service without its servers; passes are made by hand, time stands still until it is moved."""

    def __init__(self, source: VersionSource, explicit: bool = False, **settings: Any) -> None:
        self.source, self.now = source, 0.0
        self.metrics = Metrics()
        self.lifecycle = Lifecycle(16)
        made = Settings(**settings)
        registry = ModelRegistry(self.metrics)
        loader = ModelLoader(source, made, self.metrics)
        self.follower = Follower(registry, loader, self.metrics, clock=lambda: self.now)
        self.follower.configure(made.model_settings())
        self.dataplane = DataPlane(
            registry, self.follower, self.lifecycle, self.metrics, version="1", explicit_control=explicit
        )

    def infer(self, model: str = "m", version: str = "", value: float = 1.0) -> tuple[float, str]:
        """One value of the answer and the version that gave it."""
        x = TensorData("x", DType.FLOAT32, np.full((1, 4), value, np.float32))
        response = self.dataplane.infer(InferRequest(model, (x,), version))
        return float(response.outputs[0].array[0, 0]), response.model_version

    def index(self) -> list[tuple[str, int, str]]:
        return [(s.name, s.version, s.state.value) for s in self.dataplane.repository_index()]

    def code(self, call: Callable[[], object]) -> ErrorCode:
        with pytest.raises(IngotError) as caught:
            call()
        return caught.value.code


def factor(value: float) -> Callable[[], ToyModel]:
    return lambda: scale_model(value)


def broken() -> ToyModel:
    raise IngotError(ErrorCode.ARTIFACT_CORRUPT, "a byte was flipped")


@pytest.fixture
def source() -> ToySource:
    made = ToySource()
    made.publish("m", 1, factor(10.0), "stable")
    return made


def test_not_ready_before_everything_is_loaded(source: ToySource) -> None:
    source.publish("n", 1, broken, "stable")
    service = Service(source, models="m,n")
    assert not service.dataplane.ready()
    assert service.code(service.infer) is ErrorCode.UNAVAILABLE
    assert not service.dataplane.model_ready("m")
    service.follower.reconcile()
    assert service.dataplane.model_ready("m")
    assert not service.dataplane.model_ready("n")
    assert not service.dataplane.ready()
    source.publish("n", 1, factor(1.0))
    service.now = 10
    service.follower.reconcile()
    assert service.dataplane.ready()
    service.follower.close()
    assert not service.dataplane.ready()


def test_an_empty_server_is_not_ready() -> None:
    service = Service(ToySource())
    service.follower.reconcile()
    assert not service.dataplane.ready()
    assert service.dataplane.live()
    assert service.code(service.infer) is ErrorCode.NOT_FOUND


def test_a_model_that_is_not_in_the_store_yet(source: ToySource) -> None:
    service = Service(source, models="later")
    service.follower.reconcile()
    assert service.code(lambda: service.infer("later")) is ErrorCode.UNAVAILABLE
    assert service.index() == [("later", 0, "UNAVAILABLE")]
    source.publish("later", 1, factor(3.0), "stable")
    service.follower.reconcile()
    assert service.infer("later") == (3.0, "1")
    assert service.index() == [("later", 1, "READY")]


def test_a_moved_label_swaps_versions_and_closes_the_old_one_after_its_last_request(source: ToySource) -> None:
    service = Service(source, models="m@stable")
    service.follower.reconcile()
    assert service.infer() == (10.0, "1")
    old = source.model("m", 1)
    old.gate.clear()
    answers: list[tuple[float, str]] = []
    in_flight = threading.Thread(target=lambda: answers.append(service.infer()))
    in_flight.start()
    wait_until(lambda: service.lifecycle.in_flight == 1)
    source.publish("m", 2, factor(20.0), "stable")
    service.follower.reconcile()
    assert service.infer() == (20.0, "2")
    assert service.dataplane.ready()
    assert not old.closed
    old.gate.set()
    in_flight.join(10)
    assert answers == [(10.0, "1")]
    wait_until(lambda: old.closed)
    assert service.index() == [("m", 2, "READY")]
    assert service.code(lambda: service.infer(version="1")) is ErrorCode.NOT_FOUND


def test_the_old_version_stays_when_the_new_one_fails(source: ToySource) -> None:
    service = Service(source, models="m@stable")
    service.follower.reconcile()
    source.publish("m", 2, broken, "stable")
    for attempt in (1, 2, 3):
        service.follower.reconcile()
        status = service.dataplane.repository_index()[1]
        assert (status.version, status.state.value, status.attempts) == (2, "FAILED", attempt)
        assert "a byte was flipped" in status.reason
        assert service.infer() == (10.0, "1")
        assert service.dataplane.ready()  # a failed update must not take the replicas out of service
        service.follower.reconcile()  # too soon: no new attempt
        assert service.dataplane.repository_index()[1].attempts == attempt
        service.now += 2.0**attempt
    source.publish("m", 2, factor(20.0), "stable")
    service.follower.reconcile()
    assert service.infer() == (20.0, "2")


def test_an_unreachable_store_changes_nothing(source: ToySource) -> None:
    service = Service(source, models="m,*@stable")
    service.follower.reconcile()
    source.down = True
    service.follower.reconcile()
    assert service.infer() == (10.0, "1")
    assert service.dataplane.ready()
    assert sample_of(service.metrics, "ingot_repository_poll_failure_total") == 2
    source.down = False
    source.make["m"].clear()  # a store that has lost everything does not unload models either
    service.follower.reconcile()
    assert service.infer() == (10.0, "1")


def test_several_versions_and_labels(source: ToySource) -> None:
    source.publish("m", 2, factor(20.0), "canary")
    source.publish("m", 3, factor(30.0))
    service = Service(source, models="m@stable+canary")
    service.follower.reconcile()
    assert service.infer() == (10.0, "1")
    assert service.infer(version="canary") == (20.0, "2")
    assert service.infer(version="stable") == (10.0, "1")
    assert service.infer(version="2") == (20.0, "2")
    assert service.infer(version="latest") == (20.0, "2")
    for unknown in ("3", "beta", "0", "-1", "1.0", "9" * 400, "²"):
        assert service.code(partial(service.infer, version=unknown)) is ErrorCode.NOT_FOUND


def test_a_broken_canary_does_not_hold_up_the_stable_version(source: ToySource) -> None:
    source.publish("m", 2, factor(20.0), "canary")
    service = Service(source, models="m@stable+canary")
    service.follower.reconcile()
    source.publish("m", 3, factor(30.0), "stable")
    source.publish("m", 4, broken, "canary")
    service.follower.reconcile()
    assert service.infer() == (30.0, "3")
    assert service.infer(version="stable") == (30.0, "3")
    assert service.infer(version="canary") == (20.0, "2")  # the old canary stays
    assert service.index() == [("m", 2, "READY"), ("m", 3, "READY"), ("m", 4, "FAILED")]
    source.publish("m", 4, factor(40.0))
    service.now = 10
    service.follower.reconcile()
    assert service.infer(version="canary") == (40.0, "4")
    assert service.index() == [("m", 3, "READY"), ("m", 4, "READY")]
    del source.marks["m"]["canary"]
    service.follower.reconcile()
    assert service.code(lambda: service.infer(version="canary")) is ErrorCode.NOT_FOUND
    assert service.index() == [("m", 3, "READY")]


def test_a_failed_default_keeps_everything(source: ToySource) -> None:
    source.publish("m", 2, factor(20.0))
    service = Service(source, models="m@latest:2")
    service.follower.reconcile()
    source.publish("m", 3, broken)
    service.follower.reconcile()
    assert service.infer() == (20.0, "2")
    assert service.infer(version="1") == (10.0, "1")
    assert service.dataplane.ready()


def test_a_version_is_not_closed_while_someone_holds_it(source: ToySource) -> None:
    service = Service(source, models="m")
    service.follower.reconcile()
    served = service.dataplane._registry.acquire("m")
    closing = threading.Thread(target=served.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    assert not source.model("m", 1).closed
    x = {"x": np.ones((1, 4), np.float32)}
    assert served.run(x, InferRequest("m", ())).outputs["y"][0, 0] == 10.0
    served.release()
    closing.join(10)
    assert source.model("m", 1).closed


def test_latest_serves_what_loads_of_a_first_start(source: ToySource) -> None:
    source.publish("m", 2, broken)
    service = Service(source, models="m@latest:2")
    service.follower.reconcile()
    assert service.infer() == (10.0, "1")
    assert not service.dataplane.ready()


def test_every_model_with_the_label_is_discovered(source: ToySource) -> None:
    source.publish("unlabelled", 1, factor(1.0))
    service = Service(source, models="*@stable")
    service.follower.reconcile()
    assert service.index() == [("m", 1, "READY")]
    source.publish("new", 1, factor(2.0), "stable")
    service.follower.reconcile()
    assert service.infer("new") == (2.0, "1")


def test_load_and_unload_by_request(source: ToySource) -> None:
    service = Service(source, explicit=True)
    service.dataplane.load("m")
    assert service.infer() == (10.0, "1")
    source.publish("m", 2, factor(20.0), "stable")
    service.dataplane.load("m")
    assert service.infer() == (20.0, "2")
    service.dataplane.load("m", "1")
    assert service.infer() == (10.0, "1")
    service.dataplane.unload("m")
    assert service.code(service.infer) is ErrorCode.NOT_FOUND
    assert service.code(lambda: service.dataplane.unload("m")) is ErrorCode.NOT_FOUND
    assert service.code(lambda: service.dataplane.load("nope")) is ErrorCode.NOT_FOUND
    assert service.code(lambda: service.dataplane.load("m", "%")) is ErrorCode.INVALID_ARGUMENT
    assert service.index() == []
    wait_until(lambda: all(model.closed for _, _, model in source.loaded))


def test_a_failed_load_request_leaves_no_trace(source: ToySource) -> None:
    source.publish("bad", 1, broken, "stable")
    service = Service(source, explicit=True)
    assert service.code(lambda: service.dataplane.load("bad")) is ErrorCode.ARTIFACT_CORRUPT
    assert service.index() == []
    assert service.code(lambda: service.infer("bad")) is ErrorCode.NOT_FOUND


def test_clients_may_not_load_unless_told_so(source: ToySource) -> None:
    service = Service(source, models="m")
    assert service.code(lambda: service.dataplane.load("m")) is ErrorCode.INVALID_ARGUMENT
    assert service.code(lambda: service.dataplane.unload("m")) is ErrorCode.INVALID_ARGUMENT


def test_an_unexpected_error_while_loading_is_a_state(source: ToySource) -> None:
    def surprising() -> ToyModel:
        raise RuntimeError("surprise")

    source.publish("m", 2, surprising, "stable")
    service = Service(source, models="m")
    service.follower.reconcile()
    (status,) = service.dataplane.repository_index()
    assert status.state.value == "FAILED"
    assert "RuntimeError" in status.reason
    assert "surprise" not in status.reason  # it may name what is no business of clients


def test_instances_are_loaded_and_all_closed(source: ToySource) -> None:
    service = Service(source, models="m", instances=3, cores=4)
    service.follower.reconcile()
    assert service.dataplane.model_config("m").instances == 3
    service.follower.close()
    assert [model.closed for _, _, model in source.loaded] == [True] * 3


def test_models_whose_rows_depend_on_each_other_are_not_batched(source: ToySource) -> None:
    source.publish("mixing", 1, mixing_model, "stable")
    service = Service(source, models="m,mixing")
    service.follower.reconcile()
    assert service.dataplane.model_config("m").options.max_batch_size == 64
    assert service.dataplane.model_config("mixing").options.max_batch_size == 0


def test_requests_are_merged_where_it_is_proven_or_the_operator_says_so(source: ToySource, tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    word = {"independent_rows": True}
    file.write_text(json.dumps({"unproven": {"max_batch_size": 8}, "said": word, "refuted": word, "other": {}}))
    source.publish("unproven", 1, lambda: replace(scale_model(), batch=""), "stable")
    source.publish("other", 1, lambda: replace(scale_model(), batch="width"), "stable")
    source.publish("said", 1, lambda: replace(scale_model(), batch=""), "stable")
    source.publish("refuted", 1, mixing_model, "stable")
    service = Service(source, models="m", models_file=str(file))
    service.follower.reconcile()
    sizes = {
        name: service.dataplane.model_config(name).options.max_batch_size for name in ("m", "unproven", "other", "said")
    }
    assert sizes == {"m": 64, "unproven": 0, "other": 0, "said": 64}
    assert service.dataplane.model_config("refuted").options.max_batch_size == 0  # two rows show that it is not so


def test_a_draining_server_is_not_ready_and_refuses(source: ToySource) -> None:
    service = Service(source, models="m")
    service.follower.reconcile()
    service.lifecycle.enter(Phase.LAME_DUCK)
    assert not service.dataplane.ready()
    assert service.infer() == (10.0, "1")
    service.lifecycle.enter(Phase.DRAINING)
    assert service.code(service.infer) is ErrorCode.UNAVAILABLE


def test_too_many_in_flight_are_refused(source: ToySource) -> None:
    service = Service(source, models="m")
    service.follower.reconcile()
    held = [service.lifecycle.request() for _ in range(16)]
    for request in held:
        request.__enter__()
    assert service.code(service.infer) is ErrorCode.RESOURCE_EXHAUSTED
    held[0].__exit__(None, None, None)
    assert service.infer() == (10.0, "1")
