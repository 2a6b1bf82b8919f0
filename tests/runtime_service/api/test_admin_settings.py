"""Settings of log and traces: they have an effect, or are refused by name, and are for those who may load models."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from runtime_service.server import RuntimeServer
from shared_ir.service_kit.telemetry.log import EXTRA
from tests.runtime_service.api.clients import CLIENTS, Triton
from tests.runtime_service.toy_models import ToySource, running_server, scale_model, tensor

pytestmark = pytest.mark.services
TOKEN = {"authorization": "Bearer secret"}
LOG = {"log_file": "", "log_info": True, "log_warnings": True, "log_errors": True, "log_verbose_level": 0}
LOG |= {"log_format": "default"}


@pytest.fixture
def server() -> Iterator[RuntimeServer]:
    with running_server(toys(), models="*", token="secret") as running:
        yield running


def toys() -> ToySource:
    source = ToySource()
    for name in ("scale", "other"):
        source.publish(name, 1, scale_model, "stable")
    return source


@pytest.fixture(params=CLIENTS)
def triton(request: pytest.FixtureRequest, server: RuntimeServer) -> Iterator[Triton]:
    client = Triton(request.param, server, TOKEN)
    yield client
    client.close()


def infer(triton: Triton, model: str = "scale", request_id: str = "") -> None:
    x = tensor(triton.module, "x", np.ones((2, 4), np.float32), "FP32")
    triton.infer(model, [x], request_id=request_id)


def log_settings(triton: Triton, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    found = (
        triton.update_log_settings(changes, **triton.as_json())
        if changes
        else triton.get_log_settings(**triton.as_json())
    )
    if triton.protocol == "http":
        return dict(found)
    return {name: next(iter(value.values()), 0) for name, value in found["settings"].items()}


def trace_settings(triton: Triton, model: str | None = None, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    named = triton.as_json()
    found = (
        triton.update_trace_settings(model, changes, **named) if changes else triton.get_trace_settings(model, **named)
    )
    if triton.protocol == "http":
        return dict(found)
    return {
        name: setting["value"] if name == "trace_level" else setting["value"][0]
        for name, setting in found["settings"].items()
    }


def test_lines_are_left_out_and_come_again(triton: Triton, caplog: pytest.LogCaptureFixture) -> None:
    log, handler = logging.getLogger("runtime_service.somewhere"), logging.getLogger().handlers[0]
    assert log_settings(triton) == LOG

    def written(level: int) -> bool:
        return bool(log.isEnabledFor(level) and handler.filter(log.makeRecord(log.name, level, "", 0, "", (), None)))

    for name, level in (("log_info", logging.INFO), ("log_warnings", logging.WARNING), ("log_errors", logging.ERROR)):
        caplog.set_level(logging.INFO)
        assert log_settings(triton, {name: False}) == LOG | {name: False}
        others = {logging.INFO, logging.WARNING, logging.ERROR} - {level}
        assert not written(level)
        assert all(written(other) for other in others)
        log_settings(triton, {name: True})
        assert written(level)
    assert not written(logging.DEBUG)
    log_settings(triton, {"log_verbose_level": 1})
    assert written(logging.DEBUG)
    assert log_settings(triton, {"log_verbose_level": 0}) == LOG
    assert not written(logging.DEBUG)


@pytest.mark.parametrize(
    "changes",
    [
        {"log_file": "/etc/passwd"},
        {"log_format": "ISO8601"},
        {"log_info": None},
        {"log_colour": True},
    ],
)
def test_log_settings_without_effect_are_refused_and_change_nothing(triton: Triton, changes: dict[str, Any]) -> None:
    (name,) = changes
    with pytest.raises(InferenceServerException, match=name):
        log_settings(triton, {"log_info": False} | changes)
    assert log_settings(triton) == LOG


@pytest.mark.parametrize(
    "changes",
    [{"log_info": 1}, {"log_info": "yes"}, {"log_verbose_level": "1"}, {"log_verbose_level": True}, {"log_file": {}}],
)
def test_log_settings_of_the_wrong_kind(server: RuntimeServer, changes: dict[str, Any]) -> None:
    triton, (name,) = Triton("http", server, TOKEN), changes
    with pytest.raises(InferenceServerException, match=name):
        log_settings(triton, changes)
    triton.close()


def traced(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    found = [getattr(record, EXTRA) for record in caplog.records if record.name == "ingot.trace"]
    caplog.clear()
    return found


def test_every_so_many_requests_are_traced(triton: Triton, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    off = {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1"}
    assert trace_settings(triton) == off
    infer(triton)
    assert traced(caplog) == []
    on = {"trace_level": ["TIMESTAMPS"], "trace_rate": "2", "trace_count": "3"}
    assert trace_settings(triton, None, on) == on
    for at in range(20):
        infer(triton, request_id=str(at))
    found = traced(caplog)
    assert [(line["model"], line["version"], line["request"], line["rows"]) for line in found] == [
        ("scale", 1, str(at), 2) for at in (1, 3, 5)
    ]
    for line in found:
        assert line["request_ns"] >= line["queue_ns"] + line["compute_infer_ns"] > 0
    assert trace_settings(triton, None, {"trace_level": ["OFF"]}) == on | {"trace_level": ["OFF"]}
    assert trace_settings(triton, None, {"trace_rate": None, "trace_count": None}) == off


def test_a_model_has_settings_of_its_own(triton: Triton, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    changes = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}
    assert trace_settings(triton, "scale", changes)["trace_level"] == ["TIMESTAMPS"]
    assert trace_settings(triton, "other")["trace_level"] == ["OFF"]
    infer(triton, "other")
    infer(triton, "scale")
    assert [line["model"] for line in traced(caplog)] == ["scale"]
    with pytest.raises(InferenceServerException, match="no model 'absent'"):
        trace_settings(triton, "absent", changes)
    if triton.protocol == "http":  # gRPC has no way to say that nothing is set
        triton.update_trace_settings("scale", {})
    else:
        trace_settings(triton, "scale", {"trace_level": None})
    infer(triton, "scale")
    assert traced(caplog) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"trace_file": "/tmp/trace"},
        {"log_frequency": "10"},
        {"trace_mode": "opentelemetry"},
        {"trace_level": ["TENSORS"]},
        {"trace_rate": "0"},
        {"trace_rate": "many"},
        {"trace_count": "-2"},
        {"trace_colour": "1"},
    ],
)
def test_trace_settings_without_effect_are_refused(triton: Triton, changes: dict[str, Any]) -> None:
    before = trace_settings(triton)
    (name,) = changes
    with pytest.raises(InferenceServerException, match=name):
        trace_settings(triton, None, {"trace_level": ["TIMESTAMPS"]} | changes)
    assert trace_settings(triton) == before


def calls(triton: Triton) -> dict[str, Any]:
    return {
        "see log": lambda: triton.get_log_settings(),
        "change log": lambda: triton.update_log_settings({"log_info": True}),
        "see traces": lambda: triton.get_trace_settings(),
        "change traces": lambda: triton.update_trace_settings("scale", {"trace_rate": "5"}),
    }


@pytest.mark.parametrize("kind", CLIENTS)
def test_who_may_not_load_models_may_not_do_this(kind: str) -> None:
    with running_server(toys(), models="*") as server:
        triton = Triton(kind, server)
        for call in calls(triton).values():
            with pytest.raises(InferenceServerException, match="INGOT_RUNTIME_CONTROL_ADDRESS"):
                call()
        extensions = triton.get_server_metadata(**triton.as_json())["extensions"]
        assert set(extensions).isdisjoint({"logging", "trace"})
        triton.close()


@pytest.mark.parametrize("kind", CLIENTS)
def test_without_the_token_nobody_may(server: RuntimeServer, kind: str) -> None:
    triton = Triton(kind, server)
    for call in calls(triton).values():
        with pytest.raises(InferenceServerException, match="token"):
            call()
    triton.close()


@pytest.mark.parametrize("kind", CLIENTS)
def test_where_there_is_an_address_for_it_nowhere_else(kind: str) -> None:
    with running_server(toys(), models="*", control_address="127.0.0.1:0", token="secret") as server:
        triton, control = Triton(kind, server, TOKEN), Triton("http", server, TOKEN, at="control")
        assert {"logging", "trace"} <= set(triton.get_server_metadata(**triton.as_json())["extensions"])
        for call in calls(triton).values():
            with pytest.raises(InferenceServerException, match="INGOT_RUNTIME_CONTROL_ADDRESS"):
                call()
        for call in calls(control).values():
            call()
        with pytest.raises(InferenceServerException, match="served here"):
            infer(control)
        triton.close()
        control.close()
