"""Our stubs of the Open Inference Protocol against those of a client that nobody here wrote."""

from __future__ import annotations

from typing import Any

import pytest
from tritonclient.grpc import model_config_pb2 as their_config
from tritonclient.grpc import service_pb2 as their_service

from shared_ir.pb.inference.v2 import grpc_service_pb2, model_config_pb2
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2

FILES = [(grpc_service_pb2, their_service), (model_config_pb2, their_config)]
OUTSIDE_CPU = {"secondary_devices", "cuda", "execution_accelerators", "model_repository_agents", "model_metrics"}


def fields(message: Any) -> dict[str, tuple[int, int, bool]]:
    own = {f"{message.full_name}.{f.name}": (f.number, f.type, f.is_repeated) for f in message.fields}
    for nested in message.nested_types:
        own |= fields(nested)
    return own


@pytest.mark.parametrize(("ours", "theirs"), FILES, ids=["grpc_service", "model_config"])
def test_every_field_has_the_number_and_type_of_tritons(ours: Any, theirs: Any) -> None:
    for name, message in ours.DESCRIPTOR.message_types_by_name.items():
        other = fields(theirs.DESCRIPTOR.message_types_by_name[name])
        own = fields(message)
        assert own.items() <= other.items()
        left_out = {field.rsplit(".", 1)[1] for field in other if field.count(".") == 2 and field not in own}
        assert left_out <= OUTSIDE_CPU


def test_same_methods() -> None:
    def methods(module: Any) -> dict[str, tuple[str, str, bool, bool]]:
        service = module.DESCRIPTOR.services_by_name["GRPCInferenceService"]
        return {
            m.name: (m.input_type.full_name, m.output_type.full_name, m.client_streaming, m.server_streaming)
            for m in service.methods
        }

    assert methods(grpc_service_pb2) == methods(their_service)


def test_a_request_travels_both_ways() -> None:
    request = grpc_service_pb2.ModelInferRequest(model_name="m", raw_input_contents=[b"\0" * 8])
    request.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    request.parameters["priority"].int64_param = 3
    theirs = their_service.ModelInferRequest.FromString(request.SerializeToString())
    assert theirs.parameters["priority"].int64_param == 3
    assert grpc_service_pb2.ModelInferRequest.FromString(theirs.SerializeToString()) == request


def test_compiler_stubs_carry_times() -> None:
    job = compiler_pb2.Job(id="j")
    job.created.FromSeconds(5)
    assert compiler_pb2.Job.FromString(job.SerializeToString()).created.ToSeconds() == 5
