"""What operators take for granted of their operands is refused where it does not hold, as ONNX Runtime refuses it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler_service.compiler.frontend.requirements import operand_shapes
from shared_ir.errors import IngotError
from tests.oracle.case import Feeds
from tests.oracle.contrib_operands import WIDE, contrib_models
from tests.oracle.extents_of_operands import Named, named_axes, node_tests, refusal, unstated, verdicts

NARROWER = (
    "Only N can be zero",  # pools of nothing give nothing
    r"Invalid input shape: \{",  # so do convolutions
    "Output channels M .oC. must be positive",
    "exceeds the dimension size of the input tensor",  # GroupNormalization of nothing
    "cannot be reshaped to the requested shape",
    "not defined for empty set with bool type",
    "Unexpected mode of 3",  # Pad that wraps an axis next to one of extent 0
    "Numpy_type 256",
    "dim0_offset < dim0_size",  # Scan of no steps
    "num_indices = 0",
    "with B > 0",
    "out of computation range",
    "negative final split",  # the reference gives parts of nothing
    "cannot be split evenly",
    "size 1, or last to second dimension is 1",  # rows and columns may have scales of their own
    "must be a scalar or 1D tensor of size 1",
    r"attn_mask.* (inconsistent q_sequence_length|inconsistent total_sequence_length)",  # masks broadcast, and may be shorter
    "Expected input size",  # the pads of ConvTranspose follow from its output_shape, and may be negative
    "pre-allocated shapes match",  # Scan whose state grows by broadcasting in its first step
    "input signal dimension must be greater than zero",
)
"""What ONNX Runtime says where it takes less than the specification allows."""


def _unstated(named: Named) -> list[str]:
    try:
        found = unstated(verdicts(named))
    except IngotError:  # an extent that must be known at compile time
        return []
    return [line for line in found if not re.search("|".join(NARROWER), line)]


def _contrib() -> list[Named]:
    models = [(n, named_axes(n, m, f, width=n.split()[0] in WIDE)) for n, m, f in contrib_models()]
    return [named for _, named in models if named is not None]


@pytest.mark.parametrize("named", _contrib(), ids=lambda named: named.name)
def test_operators_of_onnx_runtime_refuse_what_it_refuses(named: Named) -> None:
    assert _unstated(named) == []
    assert refusal(named.model, named.feeds) == ""


_PARTS = 5


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("part", range(_PARTS))
def test_operators_of_the_standard_refuse_what_onnx_runtime_refuses(part: int) -> None:
    own = list(node_tests(1))[part::_PARTS]
    assert len(own) > 10
    assert {named.name: lines for named in own if (lines := _unstated(named))} == {}


def test_a_constraint_that_nothing_states_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = next(named for named in _contrib() if named.name.startswith("MultiHeadAttention"))
    monkeypatch.setattr(operand_shapes, "_RULES", {})
    assert any("same dim 0 (batch_size)" in line for line in _unstated(attention))


def _model(op: str, feeds: Feeds, outputs: int = 1, domain: str = "", **attributes: Any) -> Named:
    node = helper.make_node(op, list(feeds), [f"y{i}" for i in range(outputs)], domain=domain, **attributes)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    graph = helper.make_graph([node], "main", inputs, [onnx.ValueInfoProto(name=o) for o in node.output])
    newest = {"": 28, "ai.onnx.ml": 5 if op == "TreeEnsemble" else 3}
    opsets = [helper.make_opsetid("", newest[""])]
    opsets += [helper.make_opsetid(domain, newest.get(domain, 1))] if domain else []
    found = named_axes(op, helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds)
    assert found is not None
    return found


def _ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


_TRAINED = {"R": _ones(1), "T": np.ones(1, np.int64), "X": _ones(2, 3), "G": _ones(2, 3), "V": _ones(2, 3)}
_TREE: dict[str, Any] = {
    "n_targets": 1,
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [5, 9, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [1.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
    "target_treeids": [0, 0],
    "target_nodeids": [1, 2],
    "target_ids": [0, 0],
    "target_weights": [1.0, 2.0],
}
_MOMENTUM = {"alpha": 0.9, "beta": 0.9, "mode": "standard", "norm_coefficient": 0.0}
_TRAINING, _ML = "ai.onnx.preview.training", "ai.onnx.ml"


@pytest.mark.parametrize(
    ("named", "wrong"),
    [
        (_model("SwiGLU", {"a": _ones(2, 3), "b": _ones(2, 3)}), {"b": _ones(1, 3)}),
        (_model("Momentum", _TRAINED, 2, _TRAINING, **_MOMENTUM), {"G": _ones(1, 3)}),
        (_model("Momentum", _TRAINED, 2, _TRAINING, **_MOMENTUM), {"V": _ones(2, 1)}),
        (_model("Momentum", _TRAINED, 2, _TRAINING, **_MOMENTUM), {"R": _ones(3)}),
        (_model("Adagrad", _TRAINED, 2, _TRAINING), {"X": _ones(1, 3)}),
        (_model("Adam", {**_TRAINED, "H": _ones(2, 3)}, 3, _TRAINING), {"H": _ones(1, 3)}),
        (
            _model("FlexAttention", {n: _ones(2, 2, 3, 4) for n in "qkv"}, 1, "ai.onnx.preview"),
            {"k": _ones(1, 2, 3, 4)},
        ),
        (
            _model("RoiAlign", {"x": _ones(1, 1, 8, 8), "r": _ones(2, 4), "i": np.zeros(2, np.int64)}),
            {"r": _ones(2, 5)},
        ),
        (_model("Scaler", {"x": _ones(2, 3)}, 1, _ML, offset=[1.0, 2.0, 3.0], scale=[1.0]), {"x": _ones(2, 1)}),
        (
            _model("Imputer", {"x": _ones(2, 3)}, 1, _ML, imputed_value_floats=[1.0, 2.0, 3.0]),
            {"x": _ones(2, 1)},
        ),
        (_model("TreeEnsembleRegressor", {"x": _ones(2, 6)}, 1, _ML, **_TREE), {"x": _ones(2, 5)}),
        (_model("ConvTranspose", {"x": _ones(1, 1, 4), "w": _ones(1, 1, 2)}), {"w": _ones(1, 1, 0)}),
        (
            _model(
                "RotaryEmbedding",
                {"x": _ones(1, 2, 3, 8), "c": _ones(5, 4), "s": _ones(5, 4), "p": np.zeros((1, 3), np.int64)},
            ),
            {"c": _ones(5, 5), "s": _ones(5, 5)},
        ),
        (
            _model(
                "RotaryEmbedding",
                {"x": _ones(1, 2, 3, 8), "c": _ones(5, 4), "s": _ones(5, 4), "p": np.zeros((1, 3), np.int64)},
            ),
            {"p": np.array([[0, 1, -1]], np.int64)},
        ),
        (
            _model(
                "TensorScatter",
                {"x": _ones(1, 4, 1), "u": _ones(1, 2, 1), "w": np.array([7], np.int64)},
                axis=1,
                mode="circular",
            ),
            {"w": np.array([-1], np.int64)},
        ),
        (
            _model("Dropout", {"x": _ones(3), "r": np.array(0.5, np.float32), "t": np.array(True)}),
            {"r": np.array(1, np.float32)},
        ),
        (
            _model("Dropout", {"x": _ones(3), "r": np.array(0.5, np.float32), "t": np.array(True)}),
            {"r": np.array("inf", np.float32)},
        ),
        (
            _model("Dropout", {"x": _ones(3), "r": np.array(0.5, np.float32), "t": np.array(True)}),
            {"r": np.array("nan", np.float32)},
        ),
        (_model("HannWindow", {"n": np.array([4], np.int64)}), {"n": np.array([4, 5], np.int64)}),
    ],
    ids=lambda given: given.name if isinstance(given, Named) else "-".join(given),
)
def test_what_the_run_refuses(named: Named, wrong: Feeds) -> None:
    """Of operators that ONNX Runtime lacks in the form asked here, or of values."""
    assert refusal(named.model, named.feeds) == ""
    assert refusal(named.model, {**named.feeds, **wrong}).startswith("INVALID_ARGUMENT")


def test_a_dropout_that_does_not_train_takes_any_ratio() -> None:
    named = _model("Dropout", {"x": _ones(3), "r": np.array(2.5, np.float32), "t": np.array(False)})
    assert refusal(named.model, named.feeds) == ""
