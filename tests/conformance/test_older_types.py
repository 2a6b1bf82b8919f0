"""Outputs whose types the standard has changed since, and keys that it has found since: as their own version has them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import defs, helper
from onnx.reference import ReferenceEvaluator

from tests.conformance.compiled import run_compiled, run_onnx_runtime

X = np.array([[1.5, np.nan, -2.0]], np.float32)
HANDLED = {("Dropout", "mask"), ("DequantizeLinear", "y")}
"""Dropout's mask became bool in opset 10, DequantizeLinear has a type of its own since 23."""


def own_form(op: str, outputs: dict[str, int], opset: int, domain: str = "", **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(op, ["x"], list(outputs), domain=domain, **attributes)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3])
    results = [helper.make_tensor_value_info(name, kind, ["n", 3]) for name, kind in outputs.items()]
    graph = helper.make_graph([node], "g", [x], results)
    opsets = (
        [helper.make_opsetid("", 21), helper.make_opsetid(domain, opset)]
        if domain
        else [helper.make_opsetid("", opset)]
    )
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(
    ("opset", "kind"), [(6, onnx.TensorProto.FLOAT), (7, onnx.TensorProto.FLOAT), (10, onnx.TensorProto.BOOL)]
)
def test_masks_of_dropout(opset: int, kind: int) -> None:
    attributes: dict[str, Any] = {"is_test": 1} if opset < 7 else {}
    model = own_form("Dropout", {"y": onnx.TensorProto.FLOAT, "m": kind}, opset, **attributes)
    kept, mask = run_compiled(model, {"x": X})
    np.testing.assert_array_equal(kept, X)
    assert mask.dtype == helper.tensor_dtype_to_np_dtype(kind)
    assert mask.all()


def test_no_other_output_has_changed_its_type() -> None:
    forms = defaultdict(list)
    for schema in defs.get_all_schemas_with_history():
        if schema.domain in ("", "ai.onnx.ml"):
            forms[schema.domain, schema.name].append(schema)
    changed = set()
    for (_, op), schemas in forms.items():
        for schema, newer in zip(ordered := sorted(schemas, key=lambda s: s.since_version), ordered[1:], strict=False):
            pairs = zip(schema.outputs, newer.outputs, strict=False)
            changed |= {(op, new.name) for old, new in pairs if _is_other(schema, old, newer, new)}
    assert changed == HANDLED


def _is_other(
    old: defs.OpSchema, a: defs.OpSchema.FormalParameter, new: defs.OpSchema, b: defs.OpSchema.FormalParameter
) -> bool:
    """Whether an output no longer follows the first operand that it followed, or leaves out types that it had."""
    tied = [
        next((i for i, x in enumerate(s.inputs) if x.type_str == o.type_str), None) for s, o in ((old, a), (new, b))
    ]
    if tied[0] is None and tied[1] is None:
        return not _types(old, a) <= _types(new, b)
    return tied[0] is not None and tied[1] is None


def _types(schema: defs.OpSchema, parameter: defs.OpSchema.FormalParameter) -> set[str]:
    known = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    return known.get(parameter.type_str, {parameter.type_str})


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("keys", [[1.5, float("nan")], [float("nan")]], ids=["two", "one"])
def test_keys_that_are_no_number(version: int, keys: list[float]) -> None:
    values = {"keys_floats": keys, "values_int64s": [4, 5][: len(keys)], "default_int64": 9}
    model = own_form("LabelEncoder", {"y": onnx.TensorProto.INT64}, version, "ai.onnx.ml", **values)
    (found,) = run_compiled(model, {"x": X})
    np.testing.assert_array_equal(found, run_onnx_runtime(model, {"x": X})[0])
    if version < 4:  # of 4 the reference finds none either, against the text of the standard
        np.testing.assert_array_equal(found, ReferenceEvaluator(model).run(None, {"x": X})[0])
    assert (found[0, 1] == 9) == (version < 4)
