"""Bad input through the service: each a typed error that names the thing and the remedy; the service is unharmed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import onnx
import pytest
from onnx import TensorProto, helper

from ingot.client import Client
from ingot.records import Source
from shared_ir.digest import sha256_hex
from shared_ir.errors import Blame, ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2_grpc
from tests.e2e.platform_process import PlatformProcess
from tests.ingot.small_models import classifier, model, scale, unsupported, value

pytestmark = pytest.mark.services


def cyclic() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], "first"), helper.make_node("Relu", ["a"], ["b"], "second")]
    return model(nodes, [value("x", [4])], [value("b", [4])])


def missing_value() -> onnx.ModelProto:
    return model([helper.make_node("Add", ["x", "nowhere"], ["y"], "add")], [value("x", [4])], [value("y", [4])])


def unknown_operator() -> onnx.ModelProto:
    return model([helper.make_node("Frobnicate", ["x"], ["y"], "frob")], [value("x", [4])], [value("y", [4])])


def future_opset() -> onnx.ModelProto:
    proto = scale()
    proto.opset_import[0].version = 999
    return proto


def ill_typed() -> onnx.ModelProto:
    inputs = [value("x", [2, 3]), value("w", [4, 5])]
    return model([helper.make_node("MatMul", ["x", "w"], ["y"], "product")], inputs, [value("y", [2, 5])])


def escaping_data() -> onnx.ModelProto:
    proto = scale()
    tensor = proto.graph.initializer.add(name="outside", data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")
    proto.graph.node.add(op_type="Add", input=["y", "outside"], output=["z"], name="add")
    proto.graph.output[0].name = "z"
    return proto


CASES = {
    "not a protobuf": (b"\xff" * 100, ErrorCode.INVALID_MODEL, "protobuf"),
    "text": (b'{"model": "this is JSON"}', ErrorCode.INVALID_MODEL, "text"),
    "an archive": (b"PK\x03\x04" + b"\0" * 50, ErrorCode.INVALID_MODEL, "ZIP"),
    "truncated": (classifier().SerializeToString()[:-40], ErrorCode.INVALID_MODEL, "truncated"),
    "future opset": (future_opset(), ErrorCode.UNSUPPORTED_OPSET, "999"),
    "unknown operator": (unknown_operator(), ErrorCode.UNSUPPORTED_OPERATOR, "Frobnicate"),
    "foreign domain": (unsupported(), ErrorCode.UNSUPPORTED_DOMAIN, "com.example"),
    "cyclic": (cyclic(), ErrorCode.INVALID_MODEL, "cycl"),
    "missing value": (missing_value(), ErrorCode.INVALID_MODEL, "nowhere"),
    "ill typed": (ill_typed(), ErrorCode.TYPE_MISMATCH, "product"),
    "data outside": (escaping_data(), ErrorCode.EXTERNAL_DATA, "etc/passwd"),
}
SEEN_AT_ONCE = frozenset({"not a protobuf", "text", "an archive", "truncated", "future opset"})
"""Refused while they are uploaded."""


@pytest.fixture(scope="module")
def client(platform: PlatformProcess) -> Iterator[Client]:
    with platform.client() as own:
        yield own


def content(model: Any) -> bytes:
    return model if isinstance(model, bytes) else bytes(model.SerializeToString())


@pytest.mark.parametrize("name", CASES)
def test_a_bad_model_fails_its_upload_or_its_job_with_a_reason(
    client: Client, platform: PlatformProcess, name: str
) -> None:
    bad, code, told = CASES[name]
    error = fault(client, content(bad), is_seen_at_once=name in SEEN_AT_ONCE)
    assert error.code is code
    assert error.blame is Blame.USER
    assert told.lower() in str(error).lower()
    assert error.remedy
    check_unharmed(client, platform)


def fault(client: Client, bad: bytes, is_seen_at_once: bool) -> IngotError:
    """What the upload is refused with, or what the job fails with."""
    if is_seen_at_once:
        with pytest.raises(IngotError) as caught:
            client.upload(bad)
        return caught.value
    job = client.wait(client.compile(bad, "bad").id)
    assert job.state == "FAILED"
    assert job.error is not None
    return job.error


@pytest.mark.parametrize("name", CASES)
def test_check_says_the_same(client: Client, name: str) -> None:
    bad, code, told = CASES[name]
    try:
        issues = client.check(content(bad)).issues
    except IngotError as error:  # the file cannot be read as a model at all
        issues = (error,)
    assert code in [issue.code for issue in issues]
    assert any(told.lower() in str(issue).lower() for issue in issues)


def test_check_lists_everything_at_once(client: Client) -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], "one"),
        helper.make_node("Strange", ["x"], ["b"], "two", domain="com.example"),
        helper.make_node("Add", ["a", "b"], ["y"], "three"),
    ]
    proto = model(nodes, [value("x", [4])], [value("y", [4])])
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    report = client.check(content(proto))
    assert not report.ok
    assert len(report.issues) == 2
    assert ["one" in issue.node for issue in report.issues] == [True, False]
    assert all(issue.remedy for issue in report.issues)


@pytest.mark.parametrize(
    ("request_fields", "code", "told"),
    [
        ({"targets": ["commodore-64"]}, ErrorCode.INVALID_TARGET, "commodore-64"),
        ({"targets": []}, ErrorCode.INVALID_ARGUMENT, "target"),
        ({"targets": ["host", "host"]}, ErrorCode.INVALID_ARGUMENT, "same"),
        ({"no_such_option": 1}, ErrorCode.INVALID_ARGUMENT, "no_such_option"),
        ({"opt_level": 9}, ErrorCode.INVALID_ARGUMENT, "opt_level"),
        ({"name": "../escape"}, ErrorCode.INVALID_ARGUMENT, "escape"),
        ({"name": ""}, ErrorCode.INVALID_ARGUMENT, "name"),
        ({"labels": ["NOT A LABEL"]}, ErrorCode.INVALID_ARGUMENT, "label"),
        ({"model": Source("0" * 64)}, ErrorCode.NOT_FOUND, "0000"),
        ({"model": Source("not a digest")}, ErrorCode.INVALID_ARGUMENT, "sha256"),
    ],
)
def test_a_bad_request_is_refused_at_once(
    client: Client, platform: PlatformProcess, request_fields: dict[str, Any], code: ErrorCode, told: str
) -> None:
    jobs = len(client.jobs(1000))
    with pytest.raises(IngotError) as caught:
        client.compile(**{"model": content(scale()), "name": "bad", **request_fields})
    assert caught.value.code is code
    assert told in str(caught.value)
    assert len(client.jobs(1000)) == jobs
    check_unharmed(client, platform)


def test_an_empty_file_is_refused_before_it_is_stored(client: Client, platform: PlatformProcess) -> None:
    with pytest.raises(IngotError) as caught:
        client.upload(b"")
    assert caught.value.code is ErrorCode.INVALID_MODEL
    check_unharmed(client, platform)


def test_a_file_over_the_limit_is_refused_at_its_first_byte(client: Client, platform: PlatformProcess) -> None:
    with pytest.raises(IngotError) as caught:
        client.upload(b"x" * 1_000_001)
    assert caught.value.code is ErrorCode.LIMIT_EXCEEDED
    assert "1000000" in caught.value.expected
    check_unharmed(client, platform)


def test_a_file_that_changes_on_its_way_is_dropped(platform: PlatformProcess, client: Client) -> None:
    data = content(scale(11.0))
    requests = [
        pb.UploadModelRequest(header=pb.UploadHeader(name="m", size=len(data), sha256=sha256_hex(data))),
        pb.UploadModelRequest(chunk=data[:-1] + b"?"),
    ]
    with grpc.insecure_channel(platform.addresses.compiler) as channel:
        stub: Any = compiler_pb2_grpc.CompilerServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.UploadModel(iter(requests), timeout=30)
    assert caught.value.code() is grpc.StatusCode.DATA_LOSS
    check_unharmed(client, platform)


def test_external_data_travels_with_the_model(client: Client, tmp_path: Path) -> None:
    proto = scale()
    onnx.save(
        proto,
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="m.bin",
        size_threshold=0,
        convert_attribute=True,
    )
    assert client.check(tmp_path / "m.onnx").ok
    (tmp_path / "m.bin").unlink()
    with pytest.raises(IngotError) as caught:
        client.check(tmp_path / "m.onnx")
    assert caught.value.code is ErrorCode.EXTERNAL_DATA
    assert "m.bin" in str(caught.value)


def test_what_does_not_exist_is_not_found(client: Client) -> None:
    for ask in (
        lambda: client.job("nope"),
        lambda: client.cancel("nope"),
        lambda: list(client.watch("nope")),
        lambda: client.model("nope"),
        lambda: client.versions("nope"),
        lambda: client.set_label("nope", "stable", 1),
    ):
        with pytest.raises(IngotError) as caught:
            ask()
        assert caught.value.code is ErrorCode.NOT_FOUND
        assert "nope" in str(caught.value)


def check_unharmed(client: Client, platform: PlatformProcess) -> None:
    """The service answers, nothing was published, and no half of a file is lying about."""
    assert client.capabilities().min_opset == 1
    assert "bad" not in [own.name for own in client.models()]
    assert platform.process.poll() is None
    assert [path for path in (platform.home / "uploads").rglob("*") if path.is_file()] == []
    assert not any(path.suffix == ".tmp" for path in (platform.home / "store").rglob("*"))
