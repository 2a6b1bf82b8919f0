"""Attributes that do not fit: each operator's, changed one by one, end in a sentence about the model or in a result."""

from __future__ import annotations

import random
from collections.abc import Iterator

import onnx
import pytest

from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.pipeline import check_model
from shared_ir.errors import ErrorCode, IngotError
from tests.oracle.families import FAMILIES
from tests.oracle.generate import drawn_case

_NUMBERS = (0, -1, 1, 2, 7, 65536, 2**31, -(2**63), 2**63 - 1)


def changed(attribute: onnx.AttributeProto, rng: random.Random) -> Iterator[tuple[str, onnx.AttributeProto | None]]:
    """``attribute`` with another value, longer, shorter or not at all."""
    yield "absent", None
    for field in ("ints", "floats", "strings"):
        own = list(getattr(attribute, field))
        if not own:
            continue
        forms = {"shorter": own[:-1], "longer": [*own, own[0]], "one": own[:1], "twice": own + own}
        if field == "ints":
            number = rng.choice(_NUMBERS)
            forms |= {f"first {number}": [number, *own[1:]], f"last {number}": [*own[:-1], number]}
        for name, values in forms.items():
            other = onnx.AttributeProto()
            other.CopyFrom(attribute)
            other.ClearField(field)
            getattr(other, field).extend(values)
            yield name, other
    if attribute.type == onnx.AttributeProto.INT:
        for number in rng.sample(_NUMBERS, 4):
            other = onnx.AttributeProto()
            other.CopyFrom(attribute)
            other.i = number
            yield str(number), other
    if attribute.type == onnx.AttributeProto.TENSOR:
        other = onnx.AttributeProto()
        other.CopyFrom(attribute)
        del other.t.dims[:]
        other.t.dims.append(3)
        yield "a tensor of 3", other


def odd(model: onnx.ModelProto, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    for number, node in enumerate(model.graph.node):
        for place, attribute in enumerate(node.attribute):
            for change, other in changed(attribute, rng):
                found = onnx.ModelProto()
                found.CopyFrom(model)
                del found.graph.node[number].attribute[place]
                if other is not None:
                    found.graph.node[number].attribute.append(other)
                yield f"{node.op_type}.{attribute.name} {change}", found.SerializeToString()


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_an_attribute_that_does_not_fit_is_no_fault_of_the_compiler(family: str) -> None:
    faults = []
    for change, data in odd(drawn_case(family, 0)[0].model, random.Random(0)):
        try:
            report = check_model(ModelSource.of(data))
            faults += [f"{change}: {o}" for o in report.obstacles if o.code is ErrorCode.COMPILER_FAULT]
        except IngotError as error:
            faults += [f"{change}: {error}"] if error.code is ErrorCode.COMPILER_FAULT else []
    assert not faults
