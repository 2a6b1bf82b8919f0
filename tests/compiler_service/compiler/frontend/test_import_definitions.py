"""Operators outside the inventory that the standard defines by others are expanded.

The oracle is the reference evaluator of the onnx package.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from compiler_service.compiler.frontend.importing.inference import Inference
from compiler_service.compiler.frontend.load import import_model
from compiler_service.compiler.frontend.options import ImportOptions
from compiler_service.compiler.tensor_expr.registry import OPERATORS, infer
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.compiler.frontend.onnx_models import constant, model, node, ops, run, tensor

RANDOM = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


CASES: dict[str, tuple[int, dict[str, Any], dict[str, np.ndarray], set[str], int]] = {
    "HannWindow": (17, {}, {"size": np.array(8)}, {"size"}, 1),
    "BlackmanWindow": (17, {"periodic": 0}, {"size": np.array(9)}, {"size"}, 1),
    "DynamicQuantizeLinear": (17, {}, {"x": normal(3, 4)}, set(), 3),
    "CenterCropPad": (18, {"axes": [1, 2]}, {"x": normal(2, 7, 5), "shape": np.array([4, 8])}, {"shape"}, 1),
    "AffineGrid": (20, {}, {"theta": normal(2, 2, 3), "size": np.array([2, 3, 4, 5])}, {"size"}, 1),
    "SoftmaxCrossEntropyLoss": (
        13,
        {"reduction": "mean"},
        {"x": normal(3, 5), "target": np.array([1, 0, 4])},
        set(),
        1,
    ),
    "Attention": (23, {}, {"q": normal(1, 2, 3, 4), "k": normal(1, 2, 5, 4), "v": normal(1, 2, 5, 4)}, set(), 1),
    "RotaryEmbedding": (23, {}, {"x": normal(1, 2, 3, 8), "cos": normal(1, 3, 4), "sin": normal(1, 3, 4)}, set(), 1),
    "Gelu": (20, {"approximate": "tanh"}, {"x": normal(3, 4)}, set(), 1),
    "HardSwish": (14, {}, {"x": normal(3, 4)}, set(), 1),
}


@pytest.mark.parametrize("op", CASES)
def test_definitions_compute_what_the_operator_does(op: str) -> None:
    opset, attributes, feeds, constants, count = CASES[op]
    outputs = [f"y{i}" for i in range(count)]
    inputs = [
        tensor(n, a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for n, a in feeds.items() if n not in constants
    ]
    proto = model(
        [node(op, list(feeds), outputs, **attributes)],
        inputs,
        outputs,
        [constant(n, feeds[n]) for n in constants],
        opset,
    )
    inventory = Inference(infer, frozenset(OPERATORS) - {op})  # as if it had no definition of our own
    module = import_model(proto.SerializeToString(), ImportOptions(), inventory)
    assert op not in ops(module.graph)
    assert all(n.name.startswith(f"{op.lower()}_node/") for n in module.graph.nodes)
    given = {n: a for n, a in feeds.items() if n not in constants}
    for declared in proto.graph.output:
        declared.type.tensor_type.SetInParent()
    wanted = ReferenceEvaluator(proto).run(None, given)
    for found, expected in zip(run(module, given), wanted, strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_an_operator_without_a_definition_is_unsupported() -> None:
    proto = model([node("ImageDecoder", ["x"], ["y"])], [tensor("x", [3])], ["y"])
    with pytest.raises(IngotError, match="ImageDecoder") as caught:
        import_model(proto.SerializeToString(), ImportOptions(), Inference(infer, OPERATORS))
    assert caught.value.code is ErrorCode.UNSUPPORTED_OPERATOR


def test_a_crash_of_a_definition_is_our_fault() -> None:
    def crash(*_: object) -> tuple[None, ...]:
        raise AttributeError("oops")

    proto = model([node("Relu", ["x"], ["y"])], [tensor("x", [3])], ["y"])
    with pytest.raises(IngotError, match="definition of Relu failed") as caught:
        import_model(proto.SerializeToString(), ImportOptions(), Inference(crash, {"Relu"}))
    assert (caught.value.code, caught.value.node) == (ErrorCode.COMPILER_FAULT, "relu_node (Relu)")
