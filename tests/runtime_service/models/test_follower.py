"""Following versions and labels: what answers, what is ready, what happens when loading fails."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from runtime_service.batching.messages import InferRequest, Parameter, TensorData
from runtime_service.batching.validation import split_key
from runtime_service.dataplane import DataPlane
from runtime_service.lifecycle import Lifecycle, ServerPhase
from runtime_service.metrics import Metrics
from runtime_service.models.follower import Follower
from runtime_service.models.registry import ModelRegistry
from runtime_service.models.source import VersionSource
from runtime_service.models.versions import ModelLoader
from runtime_service.policies import PolicyCatalogue
from runtime_service.settings import RuntimeSettings
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.waiting import WouldWait
from tests.runtime_service.toy_models import ToyModel, ToySource, mixing_model, sample_of, scale_model, wait_until


class Service:
    """The service without its servers; passes are made by hand, time stands still until it is moved."""

    def __init__(self, source: VersionSource, explicit: bool = False, **settings: Any) -> None:
        self.source, self.now = source, 0.0
        self.metrics = Metrics()
        self.lifecycle = Lifecycle(16)
        made = RuntimeSettings(**settings)
        registry = ModelRegistry(self.metrics)
        loader = ModelLoader(source, made, self.metrics)
        self.follower = Follower(registry, loader, self.metrics, clock=lambda: self.now)
        self.follower.configure(made.model_settings())
        self.dataplane = DataPlane(
            registry,
            self.follower,
            self.lifecycle,
            self.metrics,
            version="1",
            explicit_control=explicit,
            ready_rule=made.ready_rule(),
        )

    def infer(self, model: str = "m", version: str = "", value: float = 1.0, key: Parameter = "") -> tuple[float, str]:
        """One value of the answer and the version that gave it."""
        x = TensorData("x", DType.FLOAT32, np.full((1, 4), value, np.float32))
        response = self.dataplane.infer(InferRequest(model, (x,), version, parameters={"split_key": key}))
        return float(response.outputs[0].array[0, 0]), response.model_version

    def index(self) -> list[tuple[str, int, str]]:
        return [(s.name, s.version, s.state.value) for s in self.dataplane.repository_index()]

    def shares(self) -> dict[tuple[str, str], float]:
        """The metric, by label and version."""
        families = text_string_to_metric_families(self.metrics.scrape()[0].decode())
        found = [sample for family in families if family.name == "ingot_model_share" for sample in family.samples]
        return {(sample.labels["label"], sample.labels["version"]): sample.value for sample in found}

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


def test_a_version_that_fails_after_one_that_was_settled_is_tried_again() -> None:
    """By a source that tells of changes once, as a store does."""

    class Telling(ToySource):
        changed: frozenset[str] = frozenset({"m"})

        def changes(self, names: object) -> frozenset[str]:
            told, self.changed = self.changed, frozenset()
            return told

    source = Telling()
    source.publish("m", 1, factor(10.0), "stable")
    service = Service(source, models="m@stable")
    for _ in range(3):
        service.follower.reconcile()
    source.publish("m", 2, broken, "stable")
    source.changed = frozenset({"m"})
    for attempt in (1, 2, 3):
        service.follower.reconcile()
        assert service.dataplane.repository_index()[1].attempts == attempt
        service.now += 1000
    source.publish("m", 2, factor(20.0))
    service.follower.reconcile()
    assert service.infer() == (20.0, "2")


def test_an_unreachable_store_changes_nothing(source: ToySource) -> None:
    service = Service(source, models="m,*@stable")
    service.follower.reconcile()
    source.down = True
    service.follower.reconcile()
    assert service.infer() == (10.0, "1")
    assert service.dataplane.ready()
    assert sample_of(service.metrics, "ingot_repository_poll_failure_total") == 1
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
    assert service.index() == [("m", 0, "UNAVAILABLE"), ("m", 3, "READY")]


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


def test_a_name_is_unknown_once_the_store_was_read_and_not_before(source: ToySource) -> None:
    service = Service(source, models="*@stable")
    source.down = True
    service.follower.reconcile()
    assert service.code(service.infer) is ErrorCode.UNAVAILABLE
    assert service.code(lambda: service.infer("other")) is ErrorCode.UNAVAILABLE
    assert not service.dataplane.model_ready("other")
    source.down = False
    service.follower.reconcile()
    assert service.infer() == (10.0, "1")
    assert service.code(lambda: service.infer("other")) is ErrorCode.NOT_FOUND


def test_a_name_may_be_that_of_a_model_that_could_not_be_read(
    source: ToySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.publish("n", 1, factor(3.0), "stable")
    catalogue = source.catalogue

    def cut(name: str) -> PolicyCatalogue:
        if name == "n":
            raise IngotError(ErrorCode.UNAVAILABLE, "the line is cut")
        return catalogue(name)

    service = Service(source, models="*@stable")
    with monkeypatch.context() as patch:
        patch.setattr(source, "catalogue", cut)
        service.follower.reconcile()
    assert service.infer() == (10.0, "1")
    assert service.code(lambda: service.infer("n")) is ErrorCode.UNAVAILABLE
    service.follower.reconcile()
    assert service.infer("n") == (3.0, "1")
    assert service.code(lambda: service.infer("other")) is ErrorCode.NOT_FOUND


def test_names_that_nobody_has_given_are_unknown_at_once(source: ToySource) -> None:
    service = Service(source, models="m@stable")
    assert service.code(lambda: service.infer("other")) is ErrorCode.NOT_FOUND


def test_a_later_label_that_is_missing_is_seen(source: ToySource, caplog: pytest.LogCaptureFixture) -> None:
    service = Service(source, models="m@stable:95+canry:5")
    for _ in range(3):
        service.follower.reconcile()
    assert service.dataplane.ready()  # by the rule `all`: the first term is there
    missing, served = service.dataplane.repository_index()
    assert (missing.version, missing.state, served.state) == (0, "UNAVAILABLE", "READY")
    assert "canry: the store has no version 'canry'" in missing.reason
    assert caplog.text.count("canry of its policy is not served") == 1
    assert service.shares() == {("stable", "1"): 1.0}
    source.publish("m", 2, factor(20.0), "canry")
    service.follower.reconcile()
    assert service.index() == [("m", 1, "READY"), ("m", 2, "READY")]
    assert service.shares() == {("stable", "1"): 0.95, ("canry", "2"): 0.05}


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


def test_a_refused_load_of_a_model_that_is_served_changes_nothing(source: ToySource) -> None:
    source.publish("m", 2, factor(20.0))
    source.publish("m", 3, broken)
    service = Service(source, explicit=True, models="m@stable")
    service.follower.reconcile()
    for policy in ("9", "2+3", "beta", "%", "stable:1+3:1"):
        with pytest.raises(IngotError):
            service.dataplane.load("m", policy)
        service.now += 1000
        service.follower.reconcile()
        assert service.infer() == (10.0, "1")
        assert service.index() == [("m", 1, "READY")]
        assert service.dataplane.model_config("m").policy == "stable"
        assert service.dataplane.ready()
    wait_until(lambda: all(model.closed for _, version, model in source.loaded if version == 2))
    source.publish("m", 2, factor(20.0), "stable")
    service.follower.reconcile()
    assert service.infer() == (20.0, "2")  # the label is followed as before


def test_a_policy_by_request_leaves_the_other_settings_of_the_model(source: ToySource, tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    file.write_text(json.dumps({"m": {"policy": "stable", "max_batch_size": 8}}))
    source.publish("m", 2, factor(20.0))
    service = Service(source, explicit=True, models_file=str(file))
    service.follower.reconcile()
    service.dataplane.load("m", "2")
    service.dataplane.unload("m")
    service.dataplane.load("m")
    config = service.dataplane.model_config("m")
    assert (config.version, config.policy, config.options.max_batch_size) == (2, "2", 8)


@pytest.mark.parametrize("models", ["*@stable", "m@stable", "*@stable,m@stable"])
def test_an_unloaded_model_stays_so_until_it_is_loaded(source: ToySource, models: str) -> None:
    source.publish("n", 1, factor(1.0), "stable")
    service = Service(source, explicit=True, models=f"{models},n")
    service.follower.reconcile()
    service.dataplane.unload("m")
    for version in (2, 3):
        service.follower.reconcile()
        assert service.code(service.infer) is ErrorCode.NOT_FOUND
        assert service.dataplane.ready()
        source.publish("m", version, factor(10.0 * version), "stable")
    service.dataplane.load("m")
    service.follower.reconcile()
    assert service.infer() == (30.0, "3")
    source.publish("m", 4, factor(40.0), "stable")
    service.follower.reconcile()
    assert service.infer() == (40.0, "4")


def test_a_request_to_unload_does_not_wait_for_a_whole_pass(source: ToySource) -> None:
    began, goes_on = threading.Event(), threading.Event()

    def slow() -> ToyModel:
        began.set()
        assert goes_on.wait(10)
        return scale_model()

    for name in ("a", "b"):
        source.publish(name, 1, slow, "stable")
    service = Service(source, explicit=True, models="m,a,b")
    following = threading.Thread(target=service.follower.reconcile)
    following.start()
    assert began.wait(10)
    unloading = threading.Thread(target=service.dataplane.unload, args=("b",))
    unloading.start()
    wait_until(lambda: service.follower._turns._requests == 1)
    goes_on.set()
    unloading.join(10)
    following.join(10)
    assert [name for name, _, _ in source.loaded] == ["m", "a"]
    assert service.index() == [("a", 1, "READY"), ("m", 1, "READY")]


def test_one_publication_that_does_not_load_leaves_a_fleet_in_service(source: ToySource) -> None:
    service = Service(source, models="*@stable")
    service.follower.reconcile()
    source.publish("bad", 1, broken, "stable")
    service.follower.reconcile()
    assert service.index() == [("bad", 1, "FAILED"), ("m", 1, "READY")]
    assert service.dataplane.ready()
    replicas = {rule: Service(source, models="*@stable", ready=rule) for rule in ("all", "any", "m", "bad", "none")}
    for replica in replicas.values():
        assert not replica.dataplane.ready()
        replica.follower.reconcile()
        assert replica.infer() == (10.0, "1")
    assert {rule for rule, each in replicas.items() if each.dataplane.ready()} == {"any", "m", "none"}


def test_a_fresh_install_is_ready_where_it_is_asked_to_be() -> None:
    store = ToySource(down=True)
    service = Service(store, models="*@stable", ready="none")
    service.follower.reconcile()
    assert not service.dataplane.ready()  # nobody knows whether there are models
    store.down = False
    service.follower.reconcile()
    assert service.dataplane.ready()


def test_a_split_by_weight(source: ToySource) -> None:
    source.publish("m", 2, factor(20.0), "canary")
    service = Service(source, models="m@stable:50+canary:50")
    service.follower.reconcile()

    def versions(key: str | int) -> set[str]:
        return {service.infer(key=key)[1] for _ in range(5)}

    keys: list[str | int] = [*(f"user-{n}" for n in range(40)), 7]
    by_key = {key: versions(key) for key in keys}
    assert all(len(found) == 1 for found in by_key.values())
    assert set.union(*by_key.values()) == {"1", "2"}
    assert {service.infer()[1] for _ in range(60)} == {"1", "2"}
    assert service.infer(version="stable", key="user-1")[1] == "1"
    assert service.dataplane.model_config("m").version == 1
    for odd in (1.5, True, 1 << 70, "x" * 1025):
        assert service.code(partial(service.infer, key=odd)) is ErrorCode.INVALID_ARGUMENT

    assert service.shares() == {("stable", "1"): 0.5, ("canary", "2"): 0.5}
    of_canary = [key for key, found in by_key.items() if found == {"2"}]
    source.publish("m", 3, broken, "canary")
    service.follower.reconcile()
    assert all(versions(key) == {"2"} for key in of_canary)  # the old canary stays, with its keys
    source.publish("m", 3, factor(30.0), "canary")
    service.now += 10
    service.follower.reconcile()
    assert all(versions(key) == {"3"} for key in of_canary)
    assert service.shares() == {("stable", "1"): 0.5, ("canary", "3"): 0.5}
    del source.marks["m"]["canary"]
    service.follower.reconcile()
    assert all(versions(key) == {"1"} for key in of_canary)
    assert service.shares() == {("stable", "1"): 1.0}
    service.follower.close()
    assert service.shares() == {}


def test_a_request_without_a_key_is_drawn_once(source: ToySource) -> None:
    """Not when it is tried without waiting, and again when it waits: those whose version is busy would be drawn twice."""
    source.publish("m", 2, factor(20.0), "canary")
    service = Service(source, models="m@stable:1+canary:1")
    service.follower.reconcile()
    x = TensorData("x", DType.FLOAT32, np.ones((1, 4), np.float32))
    for key, version in (("", ""), ("user-1", ""), ("", "stable")):
        request = InferRequest("m", (x,), version, split_key=key, waits=False)
        if key or version:
            assert service.dataplane.infer(request).model_version in ("1", "2")
            continue
        with pytest.raises(WouldWait):
            service.dataplane.infer(request)


def test_both_sides_of_a_split_are_counted(source: ToySource) -> None:
    def failing() -> ToyModel:
        made, warm = scale_model(), iter(range(6))

        def function(inputs: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
            if next(warm, None) is None:
                raise IngotError(ErrorCode.INTERNAL, "no")
            return {"y": inputs["x"]}

        made.function = function
        return made

    source.publish("m", 2, failing, "canary")
    service = Service(source, models="m@stable:3+canary:1")
    service.follower.reconcile()
    wanted = Counter[str]()
    for number in range(80):
        try:
            wanted[service.infer(key=f"k{number}")[1]] += 1
        except IngotError:
            wanted["failed"] += 1
    value = partial(sample_of, service.metrics, model="m")
    assert value("ingot_inference_request_success_total", version="1") == wanted["1"] > 40
    failed = value("ingot_inference_request_failure_total", version="2", reason="INTERNAL")
    assert failed == wanted["failed"] > 5


def test_a_request_has_a_key_of_its_parameter_its_head_or_its_sequence() -> None:
    first, second, other = (InferRequest("m", (), parameters={"sequence_id": number}, peer="p") for number in (1, 1, 2))
    assert split_key(first) == split_key(second) != split_key(other)
    assert split_key(first) != split_key(replace(first, peer="q"))  # who calls his sequence the same
    assert split_key(replace(first, split_key="head")) == "head"
    assert split_key(replace(first, split_key="head", parameters={"split_key": "said"})) == "said"
    assert split_key(InferRequest("m", ())) == ""


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


@pytest.mark.parametrize("method", ["changes", "catalogue"])
def test_an_unexpected_error_of_the_store_does_not_end_the_following(
    source: ToySource, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    service = Service(source, models="*@stable,m")
    service.follower.reconcile()
    source.publish("m", 2, factor(20.0), "stable")
    source.publish("n", 1, factor(3.0), "stable")

    def surprising(name: object) -> None:
        raise PermissionError(13, "nobody may look here")

    with monkeypatch.context() as patched:
        patched.setattr(source, method, surprising)
        service.follower.reconcile()
    assert service.infer() == (10.0, "1")
    service.follower.reconcile()
    assert service.infer() == (20.0, "2")
    assert service.infer("n") == (3.0, "1")


def test_instances_are_loaded_and_all_closed(source: ToySource) -> None:
    service = Service(source, models="m", instances=3, cores=4)
    service.follower.reconcile()
    assert service.dataplane.model_config("m").instances == 3
    service.follower.close()
    assert [model.closed for _, _, model in source.loaded] == [True] * 3


@pytest.mark.parametrize(
    ("settings", "model", "expected"),
    [
        ({}, {}, (1, 6)),
        ({"preset": "throughput"}, {}, (6, 1)),
        ({"preset": "throughput", "instances": 2}, {}, (2, 3)),
        ({"instances": 2}, {"preset": "throughput"}, (6, 1)),
        ({"preset": "throughput"}, {"preset": "latency"}, (1, 6)),
        ({}, {"preset": "throughput", "instances": 3}, (3, 2)),
    ],
)
def test_presets(
    source: ToySource, tmp_path: Path, settings: dict[str, Any], model: dict[str, Any], expected: tuple[int, int]
) -> None:
    file = tmp_path / "models.json"
    file.write_text(json.dumps({"m": model}))
    service = Service(source, models_file=str(file), cores=6, **settings)
    service.follower.reconcile()
    config = service.dataplane.model_config("m")
    assert (config.instances, config.options.resources.threads) == expected


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
    service.lifecycle.enter(ServerPhase.LAME_DUCK)
    assert not service.dataplane.ready()
    assert service.infer() == (10.0, "1")
    service.lifecycle.enter(ServerPhase.DRAINING)
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
