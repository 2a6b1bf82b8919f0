"""The `ingot` command with everything that it calls replaced by what writes down that it was called."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest

from ingot.artifact import Artifact
from ingot.cli import arguments
from ingot.cli.commands import compile, device, infer, inspect, models, top, tune, up
from ingot.cli.main import main
from ingot.device.settings import DeviceSettings
from ingot.devices import DeviceInfo
from ingot.home import Addresses
from ingot.records import (
    AuditEvent,
    CheckReport,
    Job,
    JobEvent,
    JobLogLine,
    ModelVersion,
    PublishedModel,
    TargetInfo,
    TargetJob,
    TensorInfo,
)
from ingot.tuning import TuningResult
from runtime_service.executors.executor import LaunchProfile
from shared_ir.artifact.signature import local_keys, public_pem
from shared_ir.dtype import DType
from shared_ir.plan.program import TensorSpec
from tests.services.artifacts import toy_artifact

INPUT = TensorSpec("x", DType.FLOAT32, (2, 4))
TARGET = TargetJob("host", "SUCCEEDED", "verify", 1, 1, "ab" * 32, False, None)
DONE = Job(
    "1", "net", "SUCCEEDED", "cd", (TARGET,), {}, (), 1.0, 2.0, 3.0, False, 1, None, {"verify": 1.0, "build": 2.0}
)
REPORT = CheckReport(True, {"ai.onnx": 17}, (), (), {"Add": 1}, ())


@dataclass
class Recorder:
    """``calls`` in their order; ``home`` is that of the environment."""

    home: Path
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def note(self, *call: Any) -> None:
        self.calls.append(tuple(repr(part) for part in call))


@dataclass(frozen=True)
class Outcome:
    """What a command line comes to; ``files`` are those that were not there before."""

    status: int
    printed: str
    errors: str
    calls: tuple[tuple[str, ...], ...]
    files: frozenset[str]


def run(recorder: Recorder, *texts: str) -> Outcome:
    """``ingot TEXTS...``; a wrong usage is status 2."""
    recorder.calls.clear()
    before = files()
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = main(texts)
        except SystemExit as error:
            status = int(error.code or 0)
    return Outcome(status, out.getvalue(), err.getvalue(), tuple(recorder.calls), files() - before)


def files() -> frozenset[str]:
    return frozenset(str(path) for path in Path.cwd().rglob("*"))


class FakeClient:
    """:class:`ingot.Client` of a service that has everything and does everything at once."""

    def __init__(self, recorder: Recorder, address: str, credentials: dict[str, Any]) -> None:
        self.address = address
        self._recorder = recorder
        recorder.note("Client", address, credentials)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "upload": "source",
            "compile": Job(**{**vars(DONE), "state": "QUEUED", "finished": 0.0}),
            "watch": [JobEvent("1-0", 1.0, "", DONE)],
            "jobs": (DONE,),
            "log": (JobLogLine(1.0, "host", "build", "INFO", "began"),),
            "models": (PublishedModel("net", 1, {"stable": 1}),),
            "model": PublishedModel("net", 1, {"stable": 1}),
            "labels": {"stable": 1},
            "events": (AuditEvent("1", 1.0, "publish", "ann", "net", 1, "", "", "sha256:ab"),),
            "delete_model": 1,
            "versions": (ModelVersion("net", 1, 1.0, "cd", "1", "sha256:ab", ()),),
            "download": "a",
            "targets": (TargetInfo("there", "", "x86_64", "x", (), 256),),
            "check": REPORT,
            "capabilities": SimpleNamespace(signing_key=public_pem(local_keys(Path("service"))[0].public).decode()),
        }

        def method(*given: Any, **named: Any) -> Any:
            named.pop("progress", None)
            self._recorder.note(name, given, named)
            if name == "download":
                shutil.copytree("folder", given[1], dirs_exist_ok=True)
            return answers.get(name, DONE)

        return method


def _of_model(name: str, weights: int) -> str:
    labels = f'{{model="{name}",version="1"}}'
    return f'ingot_model_state{{model="{name}",version="1",state="READY"}} 1\ningot_model_weights_bytes{labels} {weights}\n'


PAGE = "ingot_server_ready 1\n" + "".join(_of_model(f"net{size}", size) for size in (1, 2, 3, 4))
"""Metrics of a service: its largest model is the last by name."""


class FakeEndpoint:
    """:class:`ingot.Endpoint`."""

    def __init__(self, recorder: Recorder, address: str, protocol: str, credentials: dict[str, Any]) -> None:
        self.address = address
        self._recorder = recorder
        recorder.note("Endpoint", address, protocol, credentials)

    def inputs(self, model: str, version: str) -> tuple[TensorInfo, ...]:
        return (TensorInfo("x", "float32", ("2", "4")),)

    def infer(self, model: str, feeds: Any, version: str) -> dict[str, Any]:
        self._recorder.note("infer", model, {name: array.shape for name, array in feeds.items()}, version)
        return feeds  # type: ignore[no-any-return]

    def metrics(self) -> str:
        return PAGE

    def close(self) -> None:
        pass


class FakeDevice:
    """:class:`ingot.devices.DeviceConnection`."""

    def __init__(self, recorder: Recorder, name: str, credentials: dict[str, Any]) -> None:
        self.name = name
        recorder.note("DeviceConnection", name, credentials)

    def status(self) -> DeviceInfo:
        return DeviceInfo("1", "aarch64", "Cortex-A72", (), (), 4, True, 3.0, 7, 1, ("ab",), 1 << 28, 1 << 30)

    def close(self) -> None:
        pass


class FakeModel:
    """A model in this process."""

    inputs = (INPUT,)

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def run(self, feeds: dict[str, Any]) -> dict[str, Any]:
        self._recorder.note("run", {name: array.shape for name, array in feeds.items()})
        return {"y": np.zeros(3, np.float32)}

    def profile(self, feeds: dict[str, Any], repeat: int) -> tuple[LaunchProfile, ...]:
        self._recorder.note("profile", {name: array.shape for name, array in feeds.items()}, repeat)
        return (LaunchProfile("add", "k0", 1e-3, 10, 20, ("a",)), LaunchProfile("add", "k0", 1e-3, 10, 20, ("b",)))


def record(home: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Everything that commands call is replaced until the end of the test."""
    recorder = Recorder(home)
    monkeypatch.setenv("INGOT_HOME", str(home))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(up, "_LOOK_SECONDS", 0.0)

    def called(name: str, answer: Any) -> Any:
        def function(*given: Any, **named: Any) -> Any:
            recorder.note(name, given, {k: v for k, v in named.items() if k != "progress"})
            return answer

        return function

    @contextmanager
    def running(*given: Any) -> Iterator[Any]:
        recorder.note("running", given[:-1])
        yield SimpleNamespace(addresses=Addresses(), check=_interrupt)

    def started(settings: DeviceSettings) -> SimpleNamespace:
        recorder.note("start_device", settings)
        return SimpleNamespace(address=settings.listen)

    artifact = replace(Artifact.of(toy_artifact("net")), report={"stages": {"link": 1.0}})
    for module, name, fake in (
        (arguments, "Client", lambda address, **credentials: FakeClient(recorder, address, credentials)),
        (arguments, "Endpoint", lambda at, protocol, **rest: FakeEndpoint(recorder, at, protocol, rest)),
        (compile, "compile_here", called("compile_here", artifact)),
        (tune, "tune", called("tune", TuningResult((), 0, 0.0, Path("records.jsonl")))),
        (tune, "plot_trials", called("plot_trials", None)),
        (tune, "require_plots", lambda file: None),
        (tune, "connect", called("connect", SimpleNamespace(close=lambda: None))),
        (infer, "time", SimpleNamespace(perf_counter=lambda: 0.0)),
        (infer, "load", called("load", FakeModel(recorder))),
        (top, "time", SimpleNamespace(monotonic=lambda: float(len(recorder.calls)), sleep=_slept(recorder))),
        (inspect, "check_here", called("check_here", REPORT)),
        (models, "check_here", called("check_here", REPORT)),
        (models, "targets_here", called("targets_here", (TargetInfo("here", "", "x86_64", "x", (), 256),))),
        (up, "running", running),
        (device, "start_log", lambda process: None),
        (device, "prepare_process", lambda: None),
        (device, "StopSignals", lambda: SimpleNamespace(wait=_interrupt)),
    ):
        monkeypatch.setattr(module, name, fake)
    monkeypatch.setattr("ingot.device.server.start_device", started)
    monkeypatch.setattr("ingot.device.settings.find_emulator", called("find_emulator", "there"))
    monkeypatch.setattr("ingot.devices.DeviceConnection", lambda host, **rest: FakeDevice(recorder, host, rest))
    monkeypatch.setattr("compiler_service.stages.compiler.graph_text", called("graph_text", "here"))
    monkeypatch.setattr("compiler_service.stages.local.graph_text_in_child", called("graph_text_in_child", "child"))
    return recorder


def _slept(recorder: Recorder) -> Callable[[float], None]:
    """The third pause is ended by Ctrl-C."""

    def sleep(seconds: float) -> None:
        recorder.note("sleep", seconds)
        if sum(call[0] == "'sleep'" for call in recorder.calls) == 3:
            _interrupt()

    return sleep


def _interrupt() -> None:
    raise KeyboardInterrupt


def error_of(outcome: Outcome) -> dict[str, Any]:
    """The error that a command printed as JSON, and nothing else."""
    assert outcome.printed == ""
    found: dict[str, Any] = json.loads(outcome.errors)["error"]
    return found
