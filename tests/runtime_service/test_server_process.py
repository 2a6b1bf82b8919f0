"""The process as an operator sees it: start, SIGTERM, exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from shared_ir.artifact.signature import local_keys
from shared_ir.service_kit.telemetry.trace_parent import TraceParent
from tests.runtime_service.toy_models import wait_until
from tests.services.collector import collector

pytestmark = pytest.mark.services
ROOT = Path(__file__).parents[2]


class Process:
    def __init__(
        self, folder: Path, beside: Mapping[str, str] = MappingProxyType({}), wait: bool = True, **settings: str
    ) -> None:
        """``beside``: variables that are no settings of the runtime alone; ``wait`` until it is ready."""
        self.folder = folder
        environment = {
            "PATH": os.environ["PATH"],
            "INGOT_RUNTIME_MODELS": "scale",
            "INGOT_RUNTIME_ADDRESS_FILE": str(folder / "addresses.json"),
        }
        for name in ("GRPC", "HTTP", "METRICS"):
            environment[f"INGOT_RUNTIME_{name}_ADDRESS"] = "127.0.0.1:0"
        environment |= {f"INGOT_RUNTIME_{name}": value for name, value in settings.items()} | dict(beside)
        command = [sys.executable, "-m", "tests.runtime_service.toy_process", str(folder)]
        self.process = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.PIPE)
        wait_until((folder / "addresses.json").exists, 20)
        self.addresses = json.loads((folder / "addresses.json").read_text())
        self.client = triton.InferenceServerClient(self.addresses["grpc"])
        if wait:
            wait_until(self.client.is_server_ready)

    def infer(self, headers: dict[str, str] | None = None) -> float:
        x = triton.InferInput("x", [1, 4], "FP32")
        x.set_data_from_numpy(np.ones((1, 4), np.float32))
        return float(self.client.infer("scale", [x], headers=headers).as_numpy("y")[0, 0])

    def post(self) -> tuple[int, Any]:
        body = b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'
        url = f"http://{self.addresses['http']}/v2/models/scale/infer"
        with urllib.request.urlopen(urllib.request.Request(url, body)) as response:
            return response.status, json.load(response)

    def ready_status(self) -> int:
        try:
            with urllib.request.urlopen(f"http://{self.addresses['http']}/v2/health/ready") as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    def end(self) -> None:
        for name in ("hold", "loading"):
            (self.folder / name).unlink(missing_ok=True)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    started: list[Process] = []

    def make(beside: Mapping[str, str] = MappingProxyType({}), wait: bool = True, **settings: str) -> Process:
        started.append(Process(tmp_path, beside, wait, **settings))
        return started[-1]

    yield make
    for process in started:
        process.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_exits_at_once(start: Any, number: signal.Signals) -> None:
    server = start()
    assert server.infer() == 2.0
    server.process.send_signal(number)
    assert server.process.wait(10) == 0  # much sooner than INGOT_RUNTIME_DRAIN_TIMEOUT


@pytest.mark.parametrize("models", ["scale,second", "*@stable"])
def test_a_server_that_is_loading_exits_at_once(start: Any, tmp_path: Path, models: str) -> None:
    (tmp_path / "loading").touch()
    server = start(wait=False, MODELS=models)
    wait_until((tmp_path / "loads").exists)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == 0  # the load would never have ended


def test_requests_in_flight_are_finished_and_new_ones_refused(start: Any, tmp_path: Path) -> None:
    server = start(DRAIN_TIMEOUT="20")
    (tmp_path / "hold").touch()
    with ThreadPoolExecutor(2) as pool:
        in_flight = [pool.submit(server.infer), pool.submit(server.post)]
        wait_until((tmp_path / "held").exists)
        time.sleep(0.3)  # the second request is waiting behind the first
        server.process.send_signal(signal.SIGTERM)

        def refused() -> bool:
            try:
                triton.InferenceServerClient(server.addresses["grpc"]).is_server_live()
            except InferenceServerException:
                return True
            return False

        wait_until(refused)
        assert server.process.poll() is None
        (tmp_path / "hold").unlink()
        assert in_flight[0].result(10) == 2.0
        assert in_flight[1].result(10)[0] == 200
    assert server.process.wait(10) == 0


def test_readiness_goes_first_the_lame_duck_still_serves_and_a_second_signal_hurries(start: Any) -> None:
    server = start(DRAIN_DELAY="60")
    assert server.ready_status() == 200
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: server.ready_status() == 503)
    assert server.infer() == 2.0
    assert not server.client.is_server_ready()
    assert server.client.is_server_live()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == 0


def test_the_drain_timeout_ends_the_wait_for_stuck_requests(start: Any, tmp_path: Path) -> None:
    server = start(DRAIN_TIMEOUT="0.5")
    (tmp_path / "hold").touch()
    with ThreadPoolExecutor(1) as pool:
        stuck = pool.submit(server.infer)
        wait_until((tmp_path / "held").exists)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 1
        with pytest.raises(InferenceServerException):
            stuck.result(10)


def test_requests_are_seen_in_the_log_and_by_a_collector_when_the_process_ends(start: Any) -> None:
    trace = TraceParent.new()
    with collector() as (url, spans):
        beside = {"INGOT_TRACES": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": url, "INGOT_LOG_FORMAT": "json"}
        server = start(beside, ACCESS_LOG="1")
        server.infer({"traceparent": str(trace), "x-request-id": "seven"})
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 0
    lines = [json.loads(line) for line in server.process.stderr]
    (line,) = (line for line in lines if line["logger"] == "ingot.access")
    assert (line["trace_id"], line["request_id"], line["code"]) == (trace.trace_id, "seven", "OK")
    own = {id: span for id, span in spans.items() if span.trace_id.hex() == trace.trace_id}
    assert {span.name for span in own.values()} == {"infer", "queue", "compute input", "compute", "compute output"}
    assert all(span.parent_span_id.hex() in {*own, trace.span_id} for span in own.values())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"INGOT_RUNTIME_MAX_BATCH_SIZE": "x"}, "INGOT_RUNTIME_MAX_BATCH_SIZE"),
        ({}, "no key is trusted"),
        ({"INGOT_STORE_URL": "ftp://x"}, "ftp://x"),
        ({"INGOT_TRACES": "somewhere"}, "INGOT_TRACES"),
        ({"INGOT_TRITON_METRICS": "maybe"}, "INGOT_TRITON_METRICS"),
        ({"INGOT_RUNTIME_ACCESS_LOG": ""}, "INGOT_RUNTIME_ACCESS_LOG"),
    ],
)
def test_wrong_settings_end_the_process_with_one_sentence(
    tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    environment = {"PATH": os.environ["PATH"], "INGOT_HOME": str(tmp_path)} | settings
    if "INGOT_STORE_URL" in settings:
        local_keys(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "runtime_service.server"], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["runtime_service.server", "compiler_service.server", "compiler_service.worker"])
def test_a_process_says_how_it_is_configured_and_takes_no_unknown_words(module: str) -> None:
    said = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0
    assert "settings.py" in said.stdout
    refused = subprocess.run([sys.executable, "-m", module, "--prot"], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert "--prot" in refused.stderr
