"""Several processes behind the same addresses, as an operator sees them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton
from onnx import TensorProto, helper, numpy_helper
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import InferenceServerException

import ingot
from runtime_service.settings import RuntimeSettings
from shared_ir.errors import IngotError
from tests.runtime_service.toy_models import wait_until

ROOT = Path(__file__).parents[3]
_WIDTH = 256
_WEIGHTS = np.random.default_rng(0).standard_normal((_WIDTH, _WIDTH)).astype(np.float32)
_X = np.random.default_rng(1).standard_normal((3, _WIDTH)).astype(np.float32)


def _model() -> bytes:
    value = helper.make_tensor_value_info
    x, y = value("x", TensorProto.FLOAT, ["n", _WIDTH]), value("y", TensorProto.FLOAT, ["n", _WIDTH])
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(_WEIGHTS, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a trusted key, and a layout of the model beside it."""
    folder = tmp_path_factory.mktemp("processes")
    ingot.compile(_model()).save(folder / "layout", home=folder / "home")
    return folder


_IMPATIENT = """
import sys
from runtime_service.processes import parent
parent._LOOK_SECONDS, parent._GRACE_SECONDS = 0.1, 1.0
from runtime_service.server import main
sys.exit(main(is_whole=True))
"""
"""Starts them as ever, but looks for those that hang more often, and kills sooner what does not end."""


_ESTABLISHED = "01"
"""A connection, in the tables of the kernel."""


class Several:
    """Three processes, and who has started them."""

    def __init__(self, installation: Path, folder: Path, code: str = "", **settings: str) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "TMPDIR": str(folder),
            "INGOT_HOME": str(installation / "home"),
            "INGOT_RUNTIME_LAYOUT": str(installation / "layout"),
            "INGOT_RUNTIME_MODELS": "m@latest",
            "INGOT_RUNTIME_PROCESSES": "3",
            "INGOT_RUNTIME_ADDRESS_FILE": str(folder / "addresses.json"),
            **{f"INGOT_RUNTIME_{name}_ADDRESS": "127.0.0.1:0" for name in ("GRPC", "HTTP", "METRICS")},
            **settings,
        }
        self.folder, self.log = folder, folder / "log"
        command = [sys.executable, *(["-c", code] if code else ["-m", "runtime_service.server"])]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)

    def start(self) -> None:
        wait_until((self.folder / "addresses.json").exists, 30)
        self.addresses = json.loads((self.folder / "addresses.json").read_text())
        wait_until(self.is_ready, 60)

    def is_ready(self) -> bool:
        try:
            return self._get("metrics", "/v2/health/ready") is not None
        except OSError:
            return False

    def metrics(self, port: str = "metrics") -> dict[str, dict[str, float]]:
        """Name of a sample -> process -> value, added up."""
        found: dict[str, dict[str, float]] = {}
        for family in text_string_to_metric_families(self._get(port, "/metrics")):
            for sample in family.samples:
                of = found.setdefault(sample.name, {})
                of[sample.labels["process"]] = of.get(sample.labels["process"], 0) + sample.value
        return found

    def _get(self, port: str, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.addresses[port]}{path}", timeout=10) as response:
            return str(response.read().decode())

    def infer(self) -> np.ndarray:
        """Over a connection of its own."""
        client = triton.InferenceServerClient(
            self.addresses["grpc"], channel_args=[("grpc.use_local_subchannel_pool", 1)]
        )
        x = triton.InferInput("x", list(_X.shape), "FP32")
        x.set_data_from_numpy(_X)
        with client:
            return np.asarray(client.infer("m", [x]).as_numpy("y"))

    def serving(self) -> list[int]:
        """The processes that serve."""
        children = subprocess.run(
            ["pgrep", "-P", str(self.process.pid), "-f", "--", "--process"], capture_output=True, text=True
        )
        return [int(line) for line in children.stdout.split()]

    def connections(self, port: int) -> list[int]:
        """How many each process has at a port."""
        fields = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        ours = {
            f"socket:[{each[9]}]" for each in fields if each[1].endswith(f":{port:04X}") and each[3] == _ESTABLISHED
        }
        return [len(ours & set(_descriptors(pid))) for pid in self.serving()]

    def end(self) -> None:
        for pid in [*self.serving(), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


def _descriptors(pid: int) -> Iterator[str]:
    """What those of a process are."""
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            yield os.readlink(each)


@pytest.fixture
def several(installation: Path, tmp_path: Path) -> Iterator[Several]:
    made = Several(installation, tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.end()


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except OSError:
        return True


@pytest.mark.services
def test_all_answer_read_the_same_weights_and_are_seen_together(several: Several) -> None:
    expected = _X @ _WEIGHTS
    with ThreadPoolExecutor(8) as clients:
        for found in clients.map(lambda _: several.infer(), range(96)):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    answered = several.metrics()["ingot_inference_request_success_total"]
    assert sum(answered.values()) == 96
    assert len([count for count in answered.values() if count]) > 1
    assert several.metrics("http")["ingot_inference_request_success_total"] == answered
    files = [re.findall(r"(\d+) +/memfd:ingot-weights", Path(f"/proc/{p}/maps").read_text()) for p in several.serving()]
    assert len(files) == 3
    assert len({tuple(each) for each in files}) == 1
    assert files[0]


@pytest.mark.services
def test_connections_that_come_at_once_are_spread(several: Several) -> None:
    for port in ("http", "grpc"):
        host, _, number = several.addresses[port].rpartition(":")
        clients = [socket.create_connection((host, int(number))) for _ in range(30)]
        wait_until(lambda number=number: sum(several.connections(int(number))) == 30)  # type: ignore[misc]
        assert min(several.connections(int(number))) >= 5
        for client in clients:
            client.close()


@pytest.mark.services
def test_a_process_that_is_killed_is_started_anew_while_others_answer(several: Several) -> None:
    first, *others = several.serving()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: len(several.serving()) == 3 and first not in several.serving(), 30)
    wait_until(several.is_ready, 60)
    assert set(others) < set(several.serving())
    np.testing.assert_allclose(several.infer(), _X @ _WEIGHTS, rtol=1e-4, atol=1e-4)
    assert "has ended with status -9" in several.log.read_text()


@pytest.mark.services
def test_sigterm_drains_all_and_leaves_nothing(several: Several) -> None:
    pids = several.serving()
    several.process.send_signal(signal.SIGTERM)
    assert several.process.wait(60) == 0
    assert all(map(_is_gone, pids))
    assert not list(several.folder.glob("ingot-runtime-*"))
    assert several.log.read_text().count('"drained"') == 3
    assert all(json.loads(line)["process"] == "runtime" for line in several.log.read_text().splitlines())


@pytest.mark.services
def test_a_stop_while_they_start_is_no_failure(installation: Path, tmp_path: Path) -> None:
    made = Several(installation, tmp_path)
    try:
        wait_until(lambda: len(made.serving()) == 3, 30)
        made.process.send_signal(signal.SIGTERM)
        assert made.process.wait(60) == 0
        assert "Traceback" not in made.log.read_text()
    finally:
        made.end()


@pytest.mark.services
def test_none_outlives_the_one_that_has_started_it(several: Several) -> None:
    pids = several.serving()
    several.process.kill()
    several.process.wait()
    wait_until(lambda: all(map(_is_gone, pids)), 60)


@pytest.fixture
def impatient(installation: Path, tmp_path: Path) -> Iterator[Several]:
    made = Several(installation, tmp_path, _IMPATIENT, INGOT_RUNTIME_DRAIN_TIMEOUT="2")
    try:
        made.start()
        yield made
    finally:
        made.end()


@pytest.mark.services
def test_one_that_hangs_keeps_no_other_from_being_seen(several: Several) -> None:
    os.kill(several.serving()[1], signal.SIGSTOP)
    others = set(several.metrics()["ingot_server_ready"])
    assert len(others) == 2
    with pytest.raises(urllib.error.HTTPError) as caught:
        several._get("metrics", "/v2/health/ready")
    assert caught.value.code == 503
    (silent,) = {"0", "1", "2"} - others
    assert json.load(caught.value)["field"] == f"process {silent}"


@pytest.mark.services
def test_one_that_hangs_is_killed_and_started_anew(impatient: Several) -> None:
    pids = impatient.serving()
    os.kill(pids[1], signal.SIGSTOP)
    wait_until(lambda: _is_gone(pids[1]), 60)
    wait_until(impatient.is_ready, 60)
    assert len(impatient.serving()) == 3
    assert {pids[0], pids[2]} < set(impatient.serving())
    assert re.search(r"the serving process \d has not answered 6 times and is killed", impatient.log.read_text())


@pytest.mark.services
def test_one_that_hangs_does_not_keep_the_others_from_ending(impatient: Several) -> None:
    pids = impatient.serving()
    os.kill(pids[1], signal.SIGSTOP)
    impatient.process.send_signal(signal.SIGTERM)
    assert impatient.process.wait(60) == 1
    assert all(map(_is_gone, pids))
    assert re.search(r"the serving process \d has not ended in time and is killed", impatient.log.read_text())


@pytest.mark.services
def test_one_that_is_stopped_does_not_outlive_the_one_that_has_started_it(several: Several) -> None:
    pids = several.serving()
    os.kill(pids[1], signal.SIGSTOP)
    several.process.kill()
    several.process.wait()
    wait_until(lambda: all(map(_is_gone, pids)), 60)


@pytest.mark.services
def test_what_keeps_one_from_starting_ends_all_with_a_sentence(installation: Path, tmp_path: Path) -> None:
    (tmp_path / "nobody").mkdir()
    made = Several(installation, tmp_path, INGOT_TRUST=str(tmp_path / "nobody"))
    try:
        assert made.process.wait(60) == 2
        assert "no key is trusted here" in made.log.read_text()
        assert "Traceback" not in made.log.read_text()
    finally:
        made.end()


@pytest.mark.services
def test_models_are_not_loaded_by_calls(several: Several) -> None:
    client = triton.InferenceServerClient(several.addresses["grpc"])
    with client, pytest.raises(InferenceServerException):
        client.unload_model("m")
    np.testing.assert_allclose(several.infer(), _X @ _WEIGHTS, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "beside",
    [
        {"INGOT_RUNTIME_MODEL_CONTROL": "explicit", "INGOT_RUNTIME_TOKEN": "x" * 32},
        {"INGOT_RUNTIME_CONTROL_ADDRESS": "unix:/tmp/control.sock"},
        {"INGOT_RUNTIME_SHARED_MEMORY": "ingot-"},
    ],
)
def test_what_calls_change_is_refused_for_several(beside: dict[str, str]) -> None:
    with pytest.raises(IngotError, match="INGOT_RUNTIME_PROCESSES"):
        RuntimeSettings.from_environment({"INGOT_RUNTIME_PROCESSES": "2", **beside})
    RuntimeSettings.from_environment({"INGOT_RUNTIME_PROCESSES": "1", **beside})


@pytest.mark.parametrize("count", ["0", "-1", "257", "many"])
def test_a_wrong_number_is_a_sentence(count: str) -> None:
    with pytest.raises(IngotError, match="INGOT_RUNTIME_PROCESSES"):
        RuntimeSettings.from_environment({"INGOT_RUNTIME_PROCESSES": count})
