"""The product's own entry points, end to end: the real server, the real worker, the real compiler."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

import grpc
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler_service.catalogue import PipelineCompiler
from compiler_service.compiler.tune.measuring.trial import OutcomeKind
from compiler_service.compiler.tune.records.lines import read_lines
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import TrustStore
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.storage.local import FileStore
from tests.ingot.small_models import classifier
from tests.services.installation import Client, Installation, installation

pytestmark = [pytest.mark.services, pytest.mark.slow]


def small_model(weight: float = 1.0, operator: str = "Relu", external: bool = False) -> bytes:
    tensor = numpy_helper.from_array(np.full((4, 3), weight, np.float32), "w")
    if external:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "weights/w.bin"), ("offset", "0"), ("length", "48")):
            tensor.external_data.add(key=key, value=value)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], "multiply"),
        helper.make_node(operator, ["y"], ["z"], "last"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])]
    outputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", 3])]
    graph = helper.make_graph(nodes, "small", inputs, outputs, [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


@pytest.fixture(name="running", scope="module")
def fixture_running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with installation(tmp_path_factory.mktemp("home"), INGOT_JOB_SECONDS="280") as running:
        running.start_server(("-m", "compiler_service.server", "--ready-file"))
        running.start_worker(("-m", "compiler_service.worker"))
        yield running


@pytest.fixture(name="client")
def fixture_client(running: Installation) -> Client:
    return running.client()


def test_a_model_compiles_for_this_machine_and_others(client: Client, running: Installation) -> None:
    job = client.compile(small_model(), name="small", targets=["host", "raspberry-pi/4b"], labels=["stable"])
    done = client.wait(job.id, 280)
    assert done.state == pb.JOB_STATE_SUCCEEDED, running.logs()
    repository = ArtifactRepository(FileStore(running.home / "store"), TrustStore.load(running.home / "trust"))
    for number, machine in enumerate(("host", "cortex-a72")):
        opened = repository.open("small", "stable", itemgetter(number))
        assert opened.library.startswith(b"\x7fELF")
        assert opened.manifest.model_sha256 == done.model_sha256
        assert machine in ("host", opened.manifest.cpu)
        assert [t.name for t in opened.plan.inputs] == ["x"]
    again = client.compile(small_model(), name="small", targets=["host", "raspberry-pi/4b"])
    assert (again.cache_hit, again.version) == (True, 1)


def test_external_data_and_options_reach_the_compiler(client: Client) -> None:
    blob = client.upload(np.ones((4, 3), np.float32).tobytes(), name="w.bin")
    source = pb.ModelSource(
        model_sha256=client.upload(small_model(external=True)), external_data={"weights/w.bin": blob}
    )
    shape = pb.OptionValue(list_value=pb.OptionList(values=[pb.OptionValue(int_value=n) for n in (2, 4)]))
    options = {"shapes": pb.OptionValue(map_value=pb.OptionMap(values={"x": shape}))}
    check = client.stub.CheckModel(pb.CheckModelRequest(source=source, options=options), timeout=60)
    assert check.ok
    assert list(check.inputs[0].shape) == ["2", "4"]
    assert check.opsets["ai.onnx"] == 17
    request = pb.CompileRequest(name="external", source=source, targets=["host"], options=options)
    job = client.wait(client.stub.Compile(request).job.id, 280)
    assert job.state == pb.JOB_STATE_SUCCEEDED, job.error
    assert client.stub.Compile(request).job.cache_hit


def test_a_model_is_tuned_inside_the_boundary_and_known_by_its_records(client: Client, running: Installation) -> None:
    options = {"tune": pb.OptionValue(int_value=15)}
    model = classifier(64).SerializeToString()
    done = client.wait(client.compile(model, name="tuned", targets=["host"], options=options).id, 280)
    assert done.state == pb.JOB_STATE_SUCCEEDED, (done.error, running.logs())
    store = FileStore(running.home / "store")
    (key,) = store.keys("tuning")
    records, unreadable = read_lines(store.get(key))
    assert unreadable.count == 0
    assert any(record.outcome is OutcomeKind.MEASURED for record in records), [r.outcome for r in records]
    events = [e.progress for e in client.stub.WatchJob(pb.WatchJobRequest(id=done.id)) if e.HasField("progress")]
    tuning = [event for event in events if event.stage == "tune"]
    assert any("trials" in event.message for event in tuning)
    assert any(event.eta_seconds > 0 for event in tuning)
    again = client.compile(model, name="tuned", targets=["host"], options=options)
    assert again.cache_hit
    assert again.targets[0].artifact_key == done.targets[0].artifact_key


def test_missing_external_data_is_named(client: Client) -> None:
    source = pb.ModelSource(model_sha256=client.upload(small_model(external=True)))
    check = client.stub.CheckModel(pb.CheckModelRequest(source=source), timeout=60)
    assert [issue.code for issue in check.issues] == ["EXTERNAL_DATA"]


def test_an_unsupported_operator_fails_in_ingest(client: Client) -> None:
    model = onnx.load_from_string(small_model())
    model.graph.node[1].domain = "com.example"
    model.graph.node[1].op_type = "Mystery"
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    job = client.wait(client.compile(model.SerializeToString(), name="foreign", targets=["host"]).id, 120)
    assert job.state == pb.JOB_STATE_FAILED
    assert job.error.code in ("UNSUPPORTED_DOMAIN", "UNSUPPORTED_OPERATOR")
    assert "last" in job.error.node
    assert "build" not in job.stage_seconds


@pytest.mark.parametrize(
    "data",
    [b"PK\x03\x04rubbish", b"\x08\x07\x12", b"\0" * 100, small_model()[:150]],
    ids=["an archive", "no end", "zeros", "a half"],
)
def test_what_is_no_model_fails_with_a_typed_error(client: Client, data: bytes) -> None:
    """When it is sent; and in its job, where it was sent as something else."""
    with pytest.raises(grpc.RpcError, match="model") as caught:
        client.upload(data)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    source = pb.ModelSource(model_sha256=client.upload(data, kind=pb.FILE_KIND_EXTERNAL_DATA))
    request = pb.CompileRequest(name="rubbish", source=source, targets=["host"])
    job = client.wait(client.stub.Compile(request).job.id, 120)
    assert job.error.code == "INVALID_MODEL"
    assert job.error.blame == pb.BLAME_USER


@pytest.mark.parametrize(
    "options",
    [
        {"opt_level": pb.OptionValue(int_value=9)},
        {"opt_level": pb.OptionValue(string_value="fast")},
        {"shapes": pb.OptionValue(int_value=5)},
        {"optimise": pb.OptionValue(bool_value=True)},
    ],
)
def test_bad_options(client: Client, options: dict[str, pb.OptionValue]) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.compile(small_model(), name="bad", targets=["host"], options=options)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_catalogue_describes_the_compiler(client: Client) -> None:
    answer = client.stub.GetCapabilities(pb.GetCapabilitiesRequest())
    options = {option.name: option for option in answer.options}
    assert options["opt_level"].default == "3"
    assert all(option.description for option in answer.options)
    assert {"MatMul", "Conv", "Softmax"} <= set(answer.operators)
    assert answer.min_opset < 17 <= answer.max_opset
    with pytest.raises(IngotError) as caught:
        PipelineCompiler().normalise_options({"nope": 1})
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.field == "nope"
