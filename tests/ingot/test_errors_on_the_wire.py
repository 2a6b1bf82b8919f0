"""What a failed call becomes, and what records look like as JSON."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest

from ingot.channel import decode_error
from ingot.messages import options_from_pb, options_to_pb, state_to_pb
from ingot.records import LogLine, TargetJob, to_json
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.service_kit.status import ERROR_METADATA, STATUS, nearest_code

FULL = IngotError(ErrorCode.TYPE_MISMATCH, "no", "n", "t", "f", "e", "r", "mend it")


class Failure:
    def __init__(self, status: grpc.StatusCode, metadata: Any = (), details: str = "details") -> None:
        self._answer = status, metadata, details

    def code(self) -> grpc.StatusCode:
        return self._answer[0]

    def trailing_metadata(self) -> Any:
        return self._answer[1]

    def details(self) -> str:
        return self._answer[2]


def test_the_json_of_older_runtime_services_is_read() -> None:
    metadata = ((ERROR_METADATA, json.dumps(FULL.to_dict()).encode()),)
    found = decode_error("here", Failure(grpc.StatusCode.UNKNOWN, metadata))
    assert found.to_dict() == FULL.to_dict()


@pytest.mark.parametrize("value", [b"{", b"[1]", b"\xff\xff", b"", "text"])
def test_a_detail_that_cannot_be_read_leaves_the_status(value: bytes | str) -> None:
    found = decode_error("here", Failure(grpc.StatusCode.NOT_FOUND, ((ERROR_METADATA, value),)))
    assert found.code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize("status", grpc.StatusCode)
def test_the_nearest_code_has_that_status(status: grpc.StatusCode) -> None:
    """One table is read in both directions."""
    found = nearest_code(status)
    called_so = {code for code, (own, _) in STATUS.items() if own is status and code.name == status.name}
    assert called_so <= {found}
    assert STATUS[found][0] is status or (found is ErrorCode.INTERNAL and not called_so)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, ErrorCode.INVALID_ARGUMENT),
        (grpc.StatusCode.PERMISSION_DENIED, ErrorCode.PERMISSION_DENIED),
        (grpc.StatusCode.FAILED_PRECONDITION, ErrorCode.INTERNAL),
        (grpc.StatusCode.UNAVAILABLE, ErrorCode.UNAVAILABLE),
        (grpc.StatusCode.UNAUTHENTICATED, ErrorCode.UNAUTHENTICATED),
        (grpc.StatusCode.DEADLINE_EXCEEDED, ErrorCode.DEADLINE_EXCEEDED),
        (grpc.StatusCode.UNIMPLEMENTED, ErrorCode.INTERNAL),
    ],
)
def test_a_bare_status_becomes_the_nearest_code(status: grpc.StatusCode, code: ErrorCode) -> None:
    error = decode_error("host:1", Failure(status))
    assert error.code is code
    assert "details" in error.message
    if code is ErrorCode.UNAVAILABLE:
        assert "host:1" in error.message
        assert "ingot up" in error.remedy


def test_options_travel() -> None:
    options = {"opt_level": 3, "on": True, "rate": 0.5, "name": "n", "shapes": {"x": [1, "h", 3]}, "passes": []}
    assert options_from_pb(options_to_pb(options)) == options
    assert options_from_pb(options_to_pb({"shapes": {"x": (1, None)}})) == {"shapes": {"x": [1, ""]}}
    with pytest.raises(IngotError, match="cannot be sent"):
        options_to_pb({"what": object()})


def test_states() -> None:
    assert state_to_pb("failed") == pb.JOB_STATE_FAILED
    assert state_to_pb("") == pb.JOB_STATE_UNSPECIFIED
    with pytest.raises(IngotError, match="queued, running"):
        state_to_pb("dreaming")


def test_records_as_json() -> None:
    target = TargetJob("host", "FAILED", "build", 1, 2, "", False, FULL)
    found = to_json({"target": target, "lines": (LogLine("INFO", "hello"),), "none": None})
    assert json.loads(json.dumps(found)) == {
        "target": {
            "target": "host",
            "state": "FAILED",
            "stage": "build",
            "done": 1,
            "total": 2,
            "artifact_key": "",
            "cache_hit": False,
            "error": FULL.to_dict(),
        },
        "lines": [{"level": "INFO", "text": "hello", "stage": ""}],
        "none": None,
    }
