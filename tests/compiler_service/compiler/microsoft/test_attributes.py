"""Every attribute of every operator of com.microsoft: in the schema of ONNX Runtime, in our table, in the result."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime.capi.onnxruntime_pybind11_state as native
import pytest
from onnx import helper

from compiler_service.compiler.frontend.adapters.microsoft.table import MICROSOFT
from compiler_service.compiler.frontend.importer import HANDLERS
from compiler_service.compiler.frontend.standard.forms import Form
from compiler_service.compiler.frontend.standard.microsoft import MICROSOFT_FORMS
from compiler_service.compiler.frontend.standard.uses import FORMS
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.compiler.microsoft.foreign import model_of
from tests.compiler_service.compiler.microsoft.varied import CALLS, ELSEWHERE, Call, Variation
from tests.conformance.compiled import run_compiled, run_onnx_runtime

Array = np.ndarray
SCHEMAS = {(s.domain, s.name): s for s in native.get_all_operator_schema()}
_OPTIONS = {"Optional": "?", "Variadic": "*"}


def names_of(parameters: Any) -> tuple[str, ...]:
    return tuple(p.name + _OPTIONS.get(str(p.option).rpartition(".")[-1], "") for p in parameters)


def default_of(attribute: Any) -> Any:
    proto = onnx.AttributeProto.FromString(attribute._default_value)
    value = helper.get_attribute_value(proto) if proto.type else None
    return value.decode() if isinstance(value, bytes) else value


def test_every_operator_that_is_imported_has_a_form() -> None:
    handled = {op.removeprefix("com.microsoft.") for op in HANDLERS if op.startswith("com.microsoft.")}
    assert {*MICROSOFT, *handled} == set(MICROSOFT_FORMS)


@pytest.mark.parametrize("qualified", sorted(FORMS))
def test_forms_are_those_of_onnx_runtime(qualified: str) -> None:
    domain, _, op = qualified.rpartition(".")
    described, schema = FORMS[qualified], SCHEMAS["" if op == "SimplifiedLayerNormalization" else domain, op]
    assert described.inputs == names_of(schema.inputs)
    assert described.outputs == names_of(schema.outputs)
    assert set(described.attributes) == set(schema.attributes)
    for name, use in described.attributes.items():
        attribute, default = schema.attributes[name], default_of(schema.attributes[name])
        assert use.is_required is attribute.required, name
        assert use.kind == str(attribute.type).rpartition(".")[-1], name
        assert use.default == (pytest.approx(default) if isinstance(default, float) else default), name


def read_attributes(described: Form) -> set[str]:
    return {name for name, use in described.attributes.items() if not use.hint and not use.values}


@pytest.mark.parametrize("op", sorted(MICROSOFT_FORMS))
def test_every_attribute_that_is_read_is_varied(op: str) -> None:
    varied = set(CALLS[op].variations) if op in CALLS else set()
    assert varied | ELSEWHERE.get(op, set()) == read_attributes(MICROSOFT_FORMS[op])


def run_elsewhere(op: str, inputs: list[Array | None], attributes: dict[str, Any]) -> list[Array]:
    """What ONNX Runtime has no kernel for on a processor, by another: images with channels first, means in numpy."""
    x, *rest = inputs
    assert x is not None
    if op == "QLinearReduceMean":
        scale, zero, to, offset = (float(np.asarray(v)) for v in rest)
        mean = ((x - zero) * scale).mean(tuple(attributes["axes"]), keepdims=bool(attributes["keepdims"]))
        return [np.clip(np.rint(mean / to) + offset, 0, 255).astype(np.uint8)]
    if op == "SimplifiedLayerNormalization":
        return run_onnx_runtime(*model_of(op, inputs, domain="", **attributes))
    model, feeds = model_of("FusedConv", [np.ascontiguousarray(x.transpose(0, 3, 1, 2)), *rest], **attributes)
    return [y.transpose(0, 2, 3, 1) for y in run_onnx_runtime(model, feeds)]


def outcomes(
    op: str, call: Call, variation: Variation | None = None, name: str = ""
) -> tuple[list[Array], list[Array]]:
    """What the compiled model gives and what it should, for the call or a variation of it."""
    inputs, attributes = list(call.inputs), dict(call.attributes)
    if variation is not None:
        for index, x in variation.inputs.items():
            inputs[index] = x
        attributes |= {**variation.attributes, name: variation.value}
    attributes = {k: v for k, v in attributes.items() if v is not None}
    model, feeds = model_of(op, inputs, call.outputs, call.constants, **attributes)
    expected = run_onnx_runtime(model, feeds) if call.own_kernel else run_elsewhere(op, inputs, attributes)
    return run_compiled(model, feeds, 0), expected


def are_equal(left: list[Array], right: list[Array], call: Call) -> bool:
    for a, b in zip(left, right, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        most = call.steps if a.dtype.kind in "iu" else call.atol * max(1, np.abs(b).max(initial=0))
        if np.abs(a.astype(np.float64) - b.astype(np.float64)).max(initial=0) > most:
            return False
    return True


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize(("op", "name"), [(op, name) for op, call in sorted(CALLS.items()) for name in call.variations])
def test_another_value_changes_the_result_as_in_onnx_runtime(op: str, name: str) -> None:
    call = CALLS[op]
    variation = call.variations[name]
    found, expected = outcomes(op, call, variation, name)
    assert are_equal(found, expected, call)
    plain = Call(**{**vars(call), "inputs": [variation.inputs.get(i, x) for i, x in enumerate(call.inputs)]})
    base = {**call.attributes, **variation.attributes}
    try:
        without = outcomes(op, Call(**{**vars(plain), "attributes": base}))[0]
    except Exception:  # inputs that fit the other value alone
        return
    assert are_equal(found, without, call) is bool(variation.same)


@pytest.mark.parametrize(
    ("op", "name"),
    [(op, name) for op, f in sorted(MICROSOFT_FORMS.items()) for name, use in f.attributes.items() if use.values],
)
def test_values_that_are_not_computed_are_refused_by_name(op: str, name: str) -> None:
    use = MICROSOFT_FORMS[op].attributes[name]
    other = {"INT": 5, "FLOAT": 0.25, "STRING": "OTHER"}[use.kind]
    call = CALLS[op]
    model, _ = model_of(op, call.inputs, call.outputs, call.constants, **{**call.attributes, name: other})
    with pytest.raises(IngotError) as caught:
        run_compiled(model, {}, 0)
    assert (caught.value.code, caught.value.field) == (ErrorCode.UNSUPPORTED_ATTRIBUTE, name)
    assert "node" in caught.value.node
    assert caught.value.remedy
