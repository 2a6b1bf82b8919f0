"""Errors travel: as JSON between processes, in messages of protobuf, in logs."""

from __future__ import annotations

import json

import pytest
from onnx import TensorProto, helper

import ingot
from shared_ir.errors import ErrorCode, IngotError


def test_bytes_that_are_no_text_become_escapes() -> None:
    """Python keeps them as lone surrogates, which no encoder takes."""
    odd = b"RIGH\xe8".decode(errors="surrogateescape")
    error = IngotError(ErrorCode.INVALID_MODEL, odd, odd, odd, odd, odd, odd, odd).located(node=odd)
    told = error.to_dict()
    assert set(told) == {"code", "message", "node", "tensor", "field", "expected", "received", "remedy", "blame"}
    assert {v for k, v in told.items() if k not in ("code", "blame")} == {"RIGH\\udce8"}
    assert IngotError.from_dict(json.loads(json.dumps(told, ensure_ascii=False).encode())).to_dict() == told
    assert IngotError(ErrorCode.INVALID_MODEL, "naïve 模型").message == "naïve 模型"


@pytest.mark.parametrize("in_process", [True, False])
def test_an_attribute_that_is_no_text_is_named_as_it_is(in_process: bool) -> None:
    node = helper.make_node("BitShift", ["x", "x"], ["y"], "shift", direction="RIGHT")
    node.attribute[0].s = b"RIGH\xe8"
    given = [helper.make_tensor_value_info(n, TensorProto.UINT8, [3]) for n in "xy"]
    model = helper.make_model(helper.make_graph([node], "g", given[:1], given[1:]), ir_version=10)
    with pytest.raises(IngotError, match=r"LEFT or RIGHT, received RIGH\\+udce8") as caught:
        ingot.compile(model.SerializeToString(), in_process=in_process)
    assert caught.value.code is ErrorCode.UNSUPPORTED_ATTRIBUTE
