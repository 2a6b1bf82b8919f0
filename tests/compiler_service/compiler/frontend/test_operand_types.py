"""Operands of a kind that an operator does not take are refused, whatever the operator: floats as positions, numbers as conditions."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache

import onnx
import pytest
from onnx import TensorProto
from onnx.backend.test.loader import load_model_tests

from compiler_service.compiler.frontend.load import import_model
from compiler_service.compiler.frontend.options import ImportOptions
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.frontend.requirements.operand_types import OperandKind, kind_of
from shared_ir.errors import Blame, ErrorCode, IngotError
from tests.compiler_service.compiler.frontend.onnx_models import INFERENCE

_TYPES = {
    OperandKind.FLOAT: TensorProto.FLOAT,
    OperandKind.INTEGER: TensorProto.INT64,
    OperandKind.BOOL: TensorProto.BOOL,
    OperandKind.STRING: TensorProto.STRING,
}


@cache
def published() -> dict[str, onnx.ModelProto]:
    """One model of one node for each operator, from the tests of ONNX."""
    found: dict[str, onnx.ModelProto] = {}
    with warnings.catch_warnings(action="ignore"):
        models = [case.model for case in load_model_tests(kind="node") if case.model is not None]
    for model in models:
        nodes, types = model.graph.node, [i.type.WhichOneof("value") for i in model.graph.input]
        if len(nodes) == 1 and not nodes[0].domain and set(types) == {"tensor_type"}:
            known = found.setdefault(nodes[0].op_type, model)
            if len(model.graph.input) > len(known.graph.input):
                found[nodes[0].op_type] = model
    return found


def taken(op: str, index: int) -> set[OperandKind]:
    """By any form of ``op``, of tensors."""
    found = set()
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.name == op and not schema.domain and schema.inputs:
            formal = schema.inputs[min(index, len(schema.inputs) - 1)]
            found |= {kind_of(t[7:-1]) for t in formal.types if t.startswith("tensor(")}
    return found


def retyped(op: str) -> Iterator[tuple[str, onnx.ModelProto, bool]]:
    """The model of ``op`` with one operand of another kind, and whether the operator takes that there."""
    model = published()[op]
    names = list(model.graph.node[0].input)
    for value in (v for v in model.graph.input if v.name in names):
        index = names.index(value.name)
        for kind, code in _TYPES.items():
            if kind is not kind_of(TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()):
                other = onnx.ModelProto()
                other.CopyFrom(model)
                changed = next(v for v in other.graph.input if v.name == value.name)
                changed.type.tensor_type.elem_type = code
                yield f"{value.name} as {kind}", other, kind in taken(op, index)


def refusal(model: onnx.ModelProto) -> IngotError | None:
    try:
        import_model(ModelSource.of(model.SerializeToString()), ImportOptions(), INFERENCE)
    except IngotError as error:
        return error
    return None


@pytest.mark.sampled
@pytest.mark.parametrize("op", sorted(published()))
def test_another_kind_is_refused_and_never_a_fault_of_the_compiler(op: str) -> None:
    for label, model, is_taken in retyped(op):
        error = refusal(model)
        assert is_taken or error is not None, label
        if error is not None:
            assert error.blame is Blame.USER, label
            assert is_taken or error.code in (ErrorCode.TYPE_MISMATCH, ErrorCode.UNSUPPORTED_DTYPE), (label, error)


def test_operands_of_one_type_have_one() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[4] x, double[3] z) => (float[7] y) { y = Concat<axis=0>(x, z) }'
    )
    error = refusal(model)
    assert error is not None
    assert error.code is ErrorCode.TYPE_MISMATCH
    assert error.tensor == "z"
    assert error.expected == "float32, as 'x' is"
