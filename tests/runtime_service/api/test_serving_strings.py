"""Tensors of strings through a real server and clients of others and our own; sequences are refused by name."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.pipeline import CompileOptions, compile_model, verify_artifact
from compiler_service.stages.compiler import RUN_ONCE
from ingot.endpoint import Endpoint
from runtime_service.server import RuntimeServer, store_source
from runtime_service.settings import RuntimeSettings
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import local_keys
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.store import open_store
from shared_ir.wire.byte_strings import bytes_of, strings_of
from tests.runtime_service.toy_models import wait_until

WORDS = np.array([["red", "grün"], ["", "blue"]], object)


def colours() -> bytes:
    """``y``: which strings are red; ``z``: every string with an exclamation mark."""
    nodes = [
        helper.make_node("Constant", [], ["red"], value_string="red"),
        helper.make_node("Constant", [], ["mark"], value_string="!"),
        helper.make_node("Equal", ["x", "red"], ["y"]),
        helper.make_node("StringConcat", ["x", "mark"], ["z"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.STRING, ["N", 2])
    outputs = [onnx.ValueInfoProto(name="y"), helper.make_tensor_value_info("z", TensorProto.STRING, ["N", 2])]
    outputs[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.BOOL, ["N", 2]))
    graph = helper.make_graph(nodes, "colours", [x], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return bytes(model.SerializeToString())


def lists() -> bytes:
    x = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [])
    graph = helper.make_graph([helper.make_node("SequenceLength", ["x"], ["y"])], "lists", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return bytes(model.SerializeToString())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuntimeServer]:
    home = tmp_path_factory.mktemp("home")
    key, trust = local_keys(home)
    repository = ArtifactRepository(open_store(str(home / "store")), trust, key)
    for name, model in (("colours", colours()), ("lists", lists())):
        artifact = compile_model(ModelSource.of(model), host_target())
        repository.put_artifact(artifact)
        repository.publish(name, [artifact.manifest.key], labels=("stable",))
    addresses: dict[str, Any] = dict.fromkeys(("grpc_address", "http_address", "metrics_address"), "127.0.0.1:0")
    settings = RuntimeSettings(
        home=home, models="colours@stable", model_control="explicit", instances=1, cores=1, **addresses
    )
    made = RuntimeServer(settings, store_source(settings))
    made.start()
    wait_until(made.dataplane.ready, 30)
    yield made
    assert made.drain(threading.Event())


def ask(module: Any, client: Any) -> tuple[Any, Any]:
    given = module.InferInput("x", WORDS.shape, "BYTES")
    given.set_data_from_numpy(WORDS)
    answer = client.infer("colours", [given])
    return answer.as_numpy("y"), answer.as_numpy("z")


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.parametrize("module", [triton_grpc, triton_http])
def test_strings_of_other_clients(server: RuntimeServer, module: Any) -> None:
    client = module.InferenceServerClient(server.addresses["grpc" if module is triton_grpc else "http"])
    y, z = ask(module, client)
    np.testing.assert_array_equal(y, WORDS == "red")
    assert [text.decode() for text in z.reshape(-1)] == ["red!", "grün!", "!", "blue!"]
    wrong = module.InferInput("x", WORDS.shape, "INT64")
    wrong.set_data_from_numpy(np.zeros(WORDS.shape, np.int64))
    with pytest.raises(InferenceServerException, match="wrong datatype"):
        client.infer("colours", [wrong])
    client.close()


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_strings_of_our_client(server: RuntimeServer, protocol: Any) -> None:
    endpoint = Endpoint(server.addresses[protocol], protocol)
    answer = endpoint.infer("colours", {"x": WORDS})
    np.testing.assert_array_equal(answer["z"], WORDS + "!")
    assert endpoint.infer("colours", {"x": WORDS.astype(str)})["y"].tolist() == [[True, False], [False, False]]
    endpoint.close()


@pytest.mark.slow
def test_models_of_strings_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    source = ModelSource.of(colours())
    artifact = compile_model(source, host_target(), workers=0)
    report = verify_artifact(artifact, source, CompileOptions(), RUN_ONCE)
    assert report["state"] == "verified"
    assert [o["max_abs_error"] for o in report["outputs"]] == [0.0, 0.0]
    with monkeypatch.context() as without:
        without.setattr(importlib.util, "find_spec", lambda name: None)
        report = verify_artifact(artifact, source, CompileOptions(), RUN_ONCE)
    assert "the reference interpreter has no strings" in report["reason"]
    source = ModelSource.of(lists())
    report = verify_artifact(compile_model(source, host_target(), workers=0), source, CompileOptions(), RUN_ONCE)
    assert report["state"] == "not run"
    assert "sequence" in report["reason"]


@pytest.mark.slow
@pytest.mark.services
def test_sequences_are_not_served(server: RuntimeServer) -> None:
    client = triton_http.InferenceServerClient(server.addresses["http"])
    with pytest.raises(InferenceServerException, match="has tensors alone"):
        client.load_model("lists")
    client.close()


def test_bytes_with_lengths() -> None:
    data = bytes_of(WORDS)
    assert data[:7] == b"\x03\0\0\0red"
    np.testing.assert_array_equal(strings_of(data, 4, "x").reshape(2, 2), WORDS)
    for broken, count in ((data[:-1], 4), (data, 3), (data + b"\0", 4), (b"\xff\xff\xff\xff", 1)):
        with pytest.raises(IngotError) as caught:
            strings_of(broken, count, "x")
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
