"""The whole way: an ONNX model compiled here, published, loaded by a real server, asked by a client of others."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
import tritonclient.utils.shared_memory as shm
from onnx import TensorProto, helper, numpy_helper
from tritonclient.utils import InferenceServerException

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.pipeline import compile_model
from runtime_service.server import RuntimeServer, store_source
from runtime_service.settings import RuntimeSettings
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import local_keys
from shared_ir.storage.store import open_store
from tests.runtime_service.toy_models import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]
REGIONS = f"ingot-test-{os.getpid()}-"
RNG = np.random.default_rng(0)
W1 = RNG.standard_normal((64, 128)).astype(np.float32)
W2 = RNG.standard_normal((128, 10)).astype(np.float32)


def perceptron(scale: float) -> bytes:
    """``y = scale * relu(x @ W1) @ W2`` for x [N, 64]."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["y"]),
    ]
    weights = [numpy_helper.from_array(W1, "w1"), numpy_helper.from_array(W2 * np.float32(scale), "w2")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])
    graph = helper.make_graph(nodes, "perceptron", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def expected(x: np.ndarray[Any, Any], scale: float = 1.0) -> np.ndarray[Any, Any]:
    y: np.ndarray[Any, Any] = np.maximum(x @ W1, 0) @ (W2 * np.float32(scale))
    return y


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> ArtifactRepository:
    home = tmp_path_factory.mktemp("home")
    key, trust = local_keys(home)
    made = ArtifactRepository(open_store(str(home / "store")), trust, key)
    publish(made, 1.0, "stable")
    return made


def publish(repository: ArtifactRepository, scale: float, *labels: str) -> int:
    artifact = compile_model(ModelSource.of(perceptron(scale)), host_target())
    repository.put_artifact(artifact)
    return repository.publish("perceptron", [artifact.manifest.key], labels=labels).number


@pytest.fixture
def server(repository: ArtifactRepository) -> Iterator[RuntimeServer]:
    addresses: dict[str, Any] = dict.fromkeys(("grpc_address", "http_address", "metrics_address"), "127.0.0.1:0")
    home = Path(repository.store.url.removeprefix("file://")).parent
    settings = RuntimeSettings(
        home=home, models="*@stable", poll_interval=0.1, instances=2, cores=2, shared_memory=REGIONS, **addresses
    )
    made = RuntimeServer(settings, store_source(settings))
    made.start()
    wait_until(made.dataplane.ready, 30)
    yield made
    assert made.drain(threading.Event())


def ask(module: Any, client: Any, x: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], str]:
    tensor = module.InferInput("x", list(x.shape), "FP32")
    tensor.set_data_from_numpy(x)
    result = client.infer("perceptron", [tensor])
    response = result.get_response()
    version = response["model_version"] if isinstance(response, dict) else response.model_version
    return result.as_numpy("y"), version


@pytest.mark.parametrize("module", [triton_grpc, triton_http])
def test_every_batch_size_without_recompiling(server: RuntimeServer, module: Any) -> None:
    client = module.InferenceServerClient(server.addresses["grpc" if module is triton_grpc else "http"])
    for rows in (1, 2, 17, 64, 300):
        x = RNG.standard_normal((rows, 64)).astype(np.float32)
        y, _ = ask(module, client, x)
        np.testing.assert_allclose(y, expected(x), atol=2e-3)
    with pytest.raises(InferenceServerException, match="expected"):
        ask(module, client, np.zeros((1, 63), np.float32))
    client.close()


def test_concurrent_callers_are_merged_and_each_gets_its_rows(server: RuntimeServer) -> None:
    client = triton_grpc.InferenceServerClient(server.addresses["grpc"])
    requests = [RNG.standard_normal((1 + i % 5, 64)).astype(np.float32) for i in range(200)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda x: ask(triton_grpc, client, x)[0], requests))
    for x, y in zip(requests, answers, strict=True):
        np.testing.assert_allclose(y, expected(x), atol=2e-3)
    snapshot = server.dataplane.model_statistics("perceptron")[0].snapshot
    assert snapshot.inference_count >= sum(len(x) for x in requests)


def test_a_stream_of_tensors_in_shared_memory_and_of_classes(server: RuntimeServer) -> None:
    client, found = triton_grpc.InferenceServerClient(server.addresses["grpc"]), queue.Queue[Any]()
    x = RNG.standard_normal((8, 64)).astype(np.float32)
    region = shm.create_shared_memory_region("r", REGIONS + "r", x.nbytes + 8 * 40, create_only=True)
    shm.set_shared_memory_region(region, [x])
    client.register_system_shared_memory("r", REGIONS + "r", x.nbytes + 8 * 40)
    client.start_stream(lambda result, error: found.put((result, error)))
    for row in range(8):
        tensor = triton_grpc.InferInput("x", [1, 64], "FP32")
        tensor.set_shared_memory("r", 256, row * 256)
        written = triton_grpc.InferRequestedOutput("y")
        written.set_shared_memory("r", 40, x.nbytes + row * 40)
        client.async_stream_infer("perceptron", [tensor], outputs=[written])
        best = triton_grpc.InferRequestedOutput("y", class_count=1)
        client.async_stream_infer("perceptron", [tensor], outputs=[best])
    answers = [found.get(timeout=30) for _ in range(16)]
    client.stop_stream()
    assert [error for _, error in answers] == [None] * 16
    y = shm.get_contents_as_numpy(region, np.float32, (8, 10), x.nbytes)
    np.testing.assert_allclose(y, expected(x), atol=2e-3)
    classes = [bytes(result.as_numpy("y")[0, 0]).decode().split(":") for result, _ in answers[1::2]]
    assert [int(index) for _, index in classes] == y.argmax(1).tolist()
    np.testing.assert_allclose([float(value) for value, _ in classes], y.max(1), atol=2e-3)
    client.unregister_system_shared_memory("r")
    shm.destroy_shared_memory_region(region)
    client.close()


def test_a_moved_label_swaps_compiled_versions_under_load(
    server: RuntimeServer, repository: ArtifactRepository
) -> None:
    client = triton_grpc.InferenceServerClient(server.addresses["grpc"])
    stop, failures, versions = threading.Event(), [], set()
    x = RNG.standard_normal((3, 64)).astype(np.float32)

    def load() -> None:
        while not stop.is_set():
            try:
                y, version = ask(triton_grpc, client, x)
            except InferenceServerException as error:
                failures.append(str(error))
                return
            versions.add(version)
            if not np.allclose(y, expected(x, 1.0 if version == "1" else 3.0), atol=5e-3):
                failures.append(f"version {version} gave the wrong answer")

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    number = str(publish(repository, 3.0, "stable"))
    wait_until(lambda: number in versions, 30)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert versions == {"1", number}
    assert [s.version for s in server.dataplane.repository_index(ready_only=True)] == [int(number)]


@pytest.mark.parametrize("how", ["written", "cut short"])
def test_what_is_done_to_the_store_meanwhile_changes_no_answer(tmp_path: Path, how: str) -> None:
    """Mapped weights showed what was written to their file, and ended the server with SIGBUS when it was cut short."""
    key, trust = local_keys(tmp_path)
    publish(ArtifactRepository(open_store(str(tmp_path / "store")), trust, key), 1.0, "stable")
    addresses: dict[str, Any] = dict.fromkeys(("grpc_address", "http_address", "metrics_address"), "127.0.0.1:0")
    settings = RuntimeSettings(home=tmp_path, models="*@stable", poll_interval=0.1, **addresses)
    server = RuntimeServer(settings, store_source(settings))
    server.start()
    wait_until(server.dataplane.ready, 30)
    client = triton_grpc.InferenceServerClient(server.addresses["grpc"])
    x = RNG.standard_normal((5, 64)).astype(np.float32)
    before, _ = ask(triton_grpc, client, x)
    for blob in (tmp_path / "store" / "blobs" / "sha256").iterdir():
        blob.chmod(0o644)
        with blob.open("r+b") as file:
            if how == "written":
                file.write(b"\xff" * blob.stat().st_size)
            else:
                file.truncate(0)
    for _ in range(3):
        np.testing.assert_array_equal(ask(triton_grpc, client, x)[0], before)
    client.close()
    assert server.drain(threading.Event())
