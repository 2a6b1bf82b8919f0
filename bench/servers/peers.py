"""The servers that are compared, each with the identity of one tensor, as their manuals say for latency: one instance, in one process
where there is a choice, nothing logged for a request."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import helper

import ingot
from bench.load.requests import BINARY, GRPC, JSON, MODEL, SHAPE
from bench.servers.environments import environment
from bench.servers.processes import ServerFailed, Start
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import local_keys
from shared_ir.storage.store import open_store

INGOT, MLSERVER, TRITON = "ingot", "mlserver", "triton"
INGOT_TWO = "ingot-2-processes"
MLSERVER_VERSION, PYTRITON_VERSION = "1.7.1", "0.7.0"
_ROOT = Path(__file__).parents[2]

_MLSERVER_MODEL = """\
from mlserver import MLModel
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class Identity(MLModel):
    async def load(self) -> bool:
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        x = payload.inputs[0]
        y = ResponseOutput(name="y", shape=x.shape, datatype=x.datatype, data=x.data)
        return InferenceResponse(model_name=self.name, outputs=[y])
"""
_TRITON_MODEL = """\
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        found = [pb.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb.InferenceResponse([pb.Tensor("y", x)]) for x in found]
"""
_TRITON_CONFIG = """\
name: "{name}"
backend: "python"
max_batch_size: 0
input [{{ name: "x" data_type: TYPE_FP32 dims: {shape} }}]
output [{{ name: "y" data_type: TYPE_FP32 dims: {shape} }}]
instance_group [{{ kind: KIND_CPU count: 1 }}]
"""


def prepare_ingot(folder: Path, environments: Path, name: str = INGOT, **beside: str) -> Start:
    """The runtime service of this checkout, with the default of every setting but those ``beside``."""
    home = folder / "home"
    key, trust = local_keys(home)
    repository = ArtifactRepository(open_store(str(home / "store")), trust, key)
    artifact = ingot.compile(identity())
    repository.put_artifact(artifact)
    repository.publish(MODEL, [artifact.manifest.key], labels=["stable"])
    start, _ = _start_ingot(folder, name, RUNTIME_MODELS=MODEL, **beside)
    return start


def start_of_layout(folder: Path) -> tuple[Start, str]:
    """The runtime service with the model in ``layout``, and the keys in ``home``, of ``folder``; and where its metrics are."""
    return _start_ingot(folder, INGOT, RUNTIME_MODELS=f"{MODEL}@latest", RUNTIME_LAYOUT=str(folder / "layout"))


def _start_ingot(folder: Path, name: str, **settings: str) -> tuple[Start, str]:
    grpc, http, metrics = _addresses(3)
    settings |= {"HOME": str(folder / "home"), "RUNTIME_GRPC_ADDRESS": grpc}
    settings |= {"RUNTIME_HTTP_ADDRESS": http, "RUNTIME_METRICS_ADDRESS": metrics}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("INGOT_")}
    variables = clean | {f"INGOT_{name}": value for name, value in settings.items()} | {"PYTHONPATH": str(_ROOT)}
    command = [sys.executable, "-m", "runtime_service.server"]
    return Start(name, command, folder, variables, {GRPC: grpc, BINARY: http, JSON: http}, http), metrics


def prepare_two(folder: Path, environments: Path) -> Start:
    """The same as two processes."""
    return prepare_ingot(folder, environments, INGOT_TWO, RUNTIME_PROCESSES="2")


def prepare_mlserver(folder: Path, environments: Path) -> Start:
    """MLServer, its model in the process of the server. It knows no binary data over HTTP."""
    python = environment(environments / MLSERVER, "mlserver", MLSERVER_VERSION)
    grpc, http, metrics = _addresses(3)
    ports = {"http_port": _port(http), "grpc_port": _port(grpc), "metrics_port": _port(metrics)}
    settings = {"debug": False, "host": "127.0.0.1", "parallel_workers": 0, **ports}
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "model-settings.json").write_text(json.dumps({"name": MODEL, "implementation": "identity.Identity"}))
    (folder / "identity.py").write_text(_MLSERVER_MODEL)
    command = [str(python.with_name("mlserver")), "start", "."]
    variables = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}
    return Start(MLSERVER, command, folder, variables, {GRPC: grpc, JSON: http}, http)


def prepare_triton(folder: Path, environments: Path) -> Start:
    """The ``tritonserver`` of nvidia-pytriton, with its Python backend: it brings no other.

    Raises:
        ServerFailed: it has no backend for this version of Python.
    """
    python = environment(environments / TRITON, "nvidia-pytriton", PYTRITON_VERSION)
    place = "import pytriton, sysconfig, pathlib, sys; print(pathlib.Path(pytriton.__file__).parent / 'tritonserver')"
    libraries = "print(sysconfig.get_config_var('LIBDIR'), '%d.%d' % sys.version_info[:2], sep='\\n')"
    told = subprocess.run([str(python), "-c", f"{place}; {libraries}"], capture_output=True, text=True, check=True)
    server, library_folder, version = told.stdout.splitlines()
    stub = Path(server, "python_backend_stubs", version, "triton_python_backend_stub")
    if not stub.exists():
        raise ServerFailed(f"nvidia-pytriton {PYTRITON_VERSION} has no backend for Python {version}")
    backend, model = folder / "backends" / "python", folder / "models" / MODEL
    backend.mkdir(parents=True)
    for each in (*Path(server, "backends", "python").iterdir(), stub):
        (backend / each.name).symlink_to(each)
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(_TRITON_CONFIG.format(name=MODEL, shape=list(SHAPE)))
    (model / "1" / "model.py").write_text(_TRITON_MODEL)
    grpc, http = _addresses(2)
    options = {"model-repository": model.parent, "backend-directory": backend.parent, "allow-metrics": "false"}
    options |= {"log-info": "false", "http-address": "127.0.0.1", "grpc-address": "127.0.0.1"}
    options |= {"http-port": _port(http), "grpc-port": _port(grpc)}
    command = [f"{server}/bin/tritonserver", *(f"--{name}={value}" for name, value in options.items())]
    variables = {**os.environ, "LD_LIBRARY_PATH": library_folder, "PATH": f"{python.parent}:{os.environ['PATH']}"}
    return Start(TRITON, command, folder, variables, {GRPC: grpc, BINARY: http, JSON: http}, http)


PREPARE: dict[str, Callable[[Path, Path], Start]] = {
    INGOT: prepare_ingot,
    INGOT_TWO: prepare_two,
    MLSERVER: prepare_mlserver,
    TRITON: prepare_triton,
}
"""By name: from an empty folder, and where environments are, to how it is started."""


def identity() -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, SHAPE) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], MODEL, [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _addresses(count: int) -> list[str]:
    """Of ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
