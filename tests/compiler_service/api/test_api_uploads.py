"""Uploads through a real client: refused early, resumed, checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from shared_ir.digest import sha256_hex
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from tests.services.installation import Client, Installation, wait_until

pytestmark = pytest.mark.services


def error_of(caught: pytest.ExceptionInfo[grpc.RpcError]) -> pb.ErrorDetail:
    """The typed error in the trailing metadata."""
    (attached,) = (m.value for m in caught.value.trailing_metadata() if m.key == "ingot-error-bin")
    return pb.ErrorDetail.FromString(attached)


def header(data: bytes, **fields: Any) -> pb.UploadModelRequest:
    given: dict[str, Any] = {"name": "m.onnx", "size": len(data), "sha256": sha256_hex(data)} | fields
    return pb.UploadModelRequest(header=pb.UploadHeader(**given))


def send(client: Client, *requests: pb.UploadModelRequest) -> pb.UploadModelResponse:
    stored: pb.UploadModelResponse = client.stub.UploadModel(iter(requests), timeout=20)
    return stored


def chunk(data: bytes) -> pb.UploadModelRequest:
    return pb.UploadModelRequest(chunk=data)


def test_upload_and_query(client: Client) -> None:
    data = b"model one" * 1000
    sha256 = sha256_hex(data)
    assert client.stub.QueryUpload(pb.QueryUploadRequest(sha256=sha256)) == pb.QueryUploadResponse()
    assert client.upload(data) == sha256
    answer = client.stub.QueryUpload(pb.QueryUploadRequest(sha256=sha256))
    assert (answer.received, answer.complete) == (len(data), True)
    assert client.upload(data) == sha256


def test_a_declared_size_over_the_limit_is_refused_before_the_first_byte(client: Client) -> None:
    asked = []

    def requests() -> Iterator[pb.UploadModelRequest]:
        yield header(b"", size=100_001, sha256="ab" * 32)
        while True:
            asked.append(1)
            yield chunk(b"x" * 1000)

    with pytest.raises(grpc.RpcError) as caught:
        client.stub.UploadModel(requests(), timeout=20)
    error = error_of(caught)
    assert (error.code, error.blame) == ("LIMIT_EXCEEDED", pb.BLAME_USER)
    assert "100000" in error.expected
    assert "100001" in error.received
    assert client.stub.QueryUpload(pb.QueryUploadRequest(sha256="ab" * 32, size=100_001)).received == 0


def test_a_wrong_digest_is_refused_and_nothing_stays(client: Client) -> None:
    data = b"something else"
    wrong = sha256_hex(b"expected")
    with pytest.raises(grpc.RpcError) as caught:
        send(client, header(data, sha256=wrong), chunk(data))
    assert error_of(caught).code == "CHECKSUM_MISMATCH"
    assert client.stub.QueryUpload(pb.QueryUploadRequest(sha256=wrong, size=len(data))) == pb.QueryUploadResponse()


def test_an_upload_that_ended_early_resumes(client: Client) -> None:
    data = bytes(range(256)) * 20
    with pytest.raises(grpc.RpcError) as caught:
        send(client, header(data), chunk(data[:2000]))
    error = error_of(caught)
    assert error.code == "INVALID_ARGUMENT"
    assert "ended early" in error.message
    held = client.stub.QueryUpload(pb.QueryUploadRequest(sha256=sha256_hex(data), size=len(data)))
    assert (held.received, held.complete) == (2000, False)
    answer = send(client, header(data, offset=2000), chunk(data[2000:3000]), chunk(data[3000:]))
    assert answer.size == len(data)
    assert client.stub.QueryUpload(pb.QueryUploadRequest(sha256=sha256_hex(data), size=len(data))).complete


def test_resuming_earlier_than_needed_is_fine_but_not_after_a_gap(client: Client) -> None:
    data = b"gap" * 700
    with pytest.raises(grpc.RpcError):
        send(client, header(data), chunk(data[:1000]))
    with pytest.raises(grpc.RpcError) as caught:
        send(client, header(data, offset=1500), chunk(data[1500:]))
    assert error_of(caught).field == "offset"
    send(client, header(data, offset=500), chunk(data[500:]))
    assert client.stub.QueryUpload(pb.QueryUploadRequest(sha256=sha256_hex(data), size=len(data))).complete


def test_more_bytes_than_declared(client: Client) -> None:
    data = b"long" * 100
    with pytest.raises(grpc.RpcError) as caught:
        send(client, header(data), chunk(data), chunk(b"more"))
    assert "more bytes" in error_of(caught).message


def test_an_empty_file_is_no_model(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        send(client, header(b"", size=0))
    assert error_of(caught).code == "INVALID_MODEL"


@pytest.mark.parametrize(
    ("requests", "text"),
    [
        ([], "starts with a header"),
        ([chunk(b"x")], "starts with a header"),
        ([header(b"abc"), header(b"abc")], "middle of an upload"),
        ([header(b"abc"), pb.UploadModelRequest()], "middle of an upload"),
        ([header(b"abc", sha256="xyz")], "not a sha256"),
        ([header(b"abc", sha256="../../etc/passwd")], "not a sha256"),
        ([header(b"abc", sha256="AB" * 32)], "not a sha256"),
        ([header(b"abc", size=-5)], "makes no sense"),
        ([header(b"abc", offset=4)], "makes no sense"),
        ([header(b"abc", offset=-1)], "makes no sense"),
    ],
)
def test_malformed_uploads(client: Client, requests: list[pb.UploadModelRequest], text: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        send(client, *requests)
    error = error_of(caught)
    assert error.code == "INVALID_ARGUMENT"
    assert text in error.message


def test_two_uploads_of_one_file_at_once(client: Client, running: Installation) -> None:
    data = b"twice" * 500
    started, other = grpc.insecure_channel(running.address), []

    def slow() -> Iterator[pb.UploadModelRequest]:
        yield header(data)
        yield chunk(data[:100])
        while client.stub.QueryUpload(pb.QueryUploadRequest(sha256=sha256_hex(data), size=len(data))).received < 100:
            pass
        with pytest.raises(grpc.RpcError) as caught:
            send(Client(running.address), header(data), chunk(data))
        other.append(error_of(caught))
        yield chunk(data[100:])

    assert client.stub.UploadModel(slow(), timeout=20).size == len(data)
    assert other[0].code == "UNAVAILABLE"
    started.close()


def test_a_client_that_vanishes_leaves_what_it_sent(client: Client, running: Installation) -> None:
    data = b"gone" * 1000
    vanishing = Client(running.address)
    gate: list[bool] = []

    def requests() -> Iterator[pb.UploadModelRequest]:
        yield header(data)
        yield chunk(data[:1500])
        while not gate:
            pass

    call = vanishing.stub.UploadModel.future(requests())
    query = pb.QueryUploadRequest(sha256=sha256_hex(data), size=len(data))
    while client.stub.QueryUpload(query).received < 1500:
        pass
    call.cancel()
    gate.append(True)
    assert client.stub.QueryUpload(query).received == 1500
    wait_until(lambda: accepted(client, header(data, offset=1500), chunk(data[1500:])))
    assert client.stub.QueryUpload(query).complete


def accepted(client: Client, *requests: pb.UploadModelRequest) -> bool:
    """False while the server still holds the file for the call that vanished."""
    try:
        send(client, *requests)
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            raise
        return False
    return True
