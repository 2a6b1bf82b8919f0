"""Operands that have one element by the standard, given as vectors whose extent only the run knows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compiler_service.compiler.frontend.requirements.few_elements import FEW
from runtime_service.loading.loader import load_model
from shared_ir.errors import ErrorCode, IngotError
from tests.guard.runs import compiled

_SAYS_ONE = re.compile(
    r"\bscalar\b|\b0-D tensor|\bsingle element|\bexactly one element|\bsingle (positive )?value", re.I
)
_OR_MORE = re.compile(r"per-head scalar|could be|can be either|per-axis|as if C is|output would be a scalar", re.I)

Array = np.ndarray
F = np.float32


def test_the_table_has_every_such_operand_of_the_schemas() -> None:
    """What the table has besides, the schemas say by the values that they allow."""
    for schema in onnx.defs.get_all_schemas():
        name = f"{schema.domain}.{schema.name}" if schema.domain else schema.name
        for index, operand in enumerate(schema.inputs):
            text = " ".join(operand.description.split())
            if _SAYS_ONE.search(text) and not _OR_MORE.search(text):
                assert index in FEW.get(name, {}), f"{name}: {operand.name}: {text}"
    for name, counts in FEW.items():
        domain, _, op = name.rpartition(".")
        if domain != "com.microsoft":
            assert max(counts) < len(onnx.defs.get_schema(op, domain).inputs)


@dataclass(frozen=True)
class Example:
    """``inputs`` of a node in order, None where one is absent; ``before`` and ``after`` are nodes around it."""

    inputs: tuple[Array | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 21
    before: tuple[onnx.NodeProto, ...] = ()
    after: tuple[onnx.NodeProto, ...] = ()


def _vector(*numbers: float, dtype: Any = np.int64) -> Array:
    return np.array(numbers, dtype)


def _grid(*shape: int, dtype: Any = F) -> Array:
    return (np.arange(np.prod(shape)) % 5).astype(dtype).reshape(shape)


def _body(
    name: str, *nodes: onnx.NodeProto, inputs: Mapping[str, Any] | None = None, outputs: Mapping[str, Any]
) -> Any:
    infos = [[helper.make_tensor_value_info(n, *t) for n, t in side.items()] for side in (inputs or {}, outputs)]
    return helper.make_graph(nodes, name, *infos)


_KINDS = onnx.TensorProto
_BOOL: Any = (_KINDS.BOOL, [])
_INT: Any = (_KINDS.INT64, [])
_FLOAT: Any = (_KINDS.FLOAT, [2, 3])
_BRANCH = {
    f"{name}_branch": _body(name, helper.make_node(op, ["outer"], ["r"]), outputs={"r": _FLOAT})
    for name, op in (("then", "Neg"), ("else", "Abs"))
}
_TURN = _body(
    "turn",
    *(helper.make_node("Identity", ["c"], ["c1"]), helper.make_node("Add", ["s", "s"], ["s1"])),
    inputs={"i": _INT, "c": _BOOL, "s": _FLOAT},
    outputs={"c1": _BOOL, "s1": _FLOAT},
)
_OUTER = helper.make_node("Constant", [], ["outer"], value=numpy_helper.from_array(_grid(2, 3)))
_SPLIT = helper.make_node("SplitToSequence", ["in0"], ["sequence"], axis=0)
_JOIN = helper.make_node("ConcatFromSequence", ["out0"], ["joined"], axis=0)
_SIZES = (_vector(4),)
_U8 = np.uint8
_QUANTIZED = (_vector(1, dtype=F), _vector(2, dtype=_U8))
_RATES = (_vector(0.5, dtype=F), _vector(1))

EXAMPLES: Mapping[str, Example] = {
    "BlackmanWindow": Example(_SIZES),
    "HammingWindow": Example(_SIZES),
    "HannWindow": Example(_SIZES),
    "Clip": Example((_grid(2, 3), _vector(1, dtype=F), _vector(3, dtype=F))),
    "ConvInteger": Example((_grid(1, 1, 3, 3, dtype=_U8), _grid(1, 1, 2, 2, dtype=_U8), _vector(1, dtype=_U8))),
    "CumProd": Example((_grid(2, 3), _vector(0)), opset=26),
    "CumSum": Example((_grid(2, 3), _vector(0))),
    "DFT": Example((_grid(1, 4, 2), _vector(4), _vector(1))),
    "Dropout": Example((_grid(2, 3), _vector(0.5, dtype=F), _vector(0, dtype=bool))),
    "If": Example((_vector(1, dtype=bool),), _BRANCH, before=(_OUTER,)),
    "Loop": Example((_vector(2), _vector(1, dtype=bool), _grid(2, 3)), {"body": _TURN}),
    "MelWeightMatrix": Example((_vector(2), _vector(8), _vector(16), _vector(0, dtype=F), _vector(4, dtype=F))),
    "NonMaxSuppression": Example(
        (_grid(1, 3, 4), _grid(1, 1, 3), _vector(2), _vector(0.5, dtype=F), _vector(0.0, dtype=F))
    ),
    "OneHot": Example((_vector(0, 2), _vector(3), _vector(0, 1, dtype=F))),
    "Pad": Example((_grid(3), _vector(1, 2), _vector(7, dtype=F))),
    "QLinearConv": Example(
        (_grid(1, 1, 3, 3, dtype=_U8), *_QUANTIZED, _grid(1, 1, 2, 2, dtype=_U8), *_QUANTIZED, *_QUANTIZED)
    ),
    "Range": Example((_vector(1), _vector(7), _vector(2))),
    "STFT": Example((_grid(1, 8, 1), _vector(2), _grid(4), _vector(4))),
    "SequenceAt": Example((_grid(3, 2), _vector(1)), before=(_SPLIT,)),
    "SequenceErase": Example((_grid(3, 2), _vector(1)), before=(_SPLIT,), after=(_JOIN,)),
    "SequenceInsert": Example((_grid(3, 2), _grid(1, 2), _vector(1)), before=(_SPLIT,), after=(_JOIN,)),
    "TopK": Example((_grid(5), _vector(2)), outputs=2),
    "Trilu": Example((_grid(3, 3), _vector(1))),
    "ai.onnx.preview.training.Adagrad": Example((*_RATES, *(_grid(4) for _ in range(3))), outputs=2),
    "ai.onnx.preview.training.Adam": Example((*_RATES, *(_grid(4) for _ in range(4))), outputs=3),
    "ai.onnx.preview.training.Momentum": Example(
        (*_RATES, *(_grid(4) for _ in range(3))),
        {"alpha": 0.5, "beta": 0.5, "mode": "standard", "norm_coefficient": 0.0},
        outputs=2,
    ),
    "com.microsoft.GroupQueryAttention": Example(
        (*(_grid(1, 1, 8) for _ in range(3)), None, None, *(_vector(n, dtype=np.int32) for n in (0, 1))),
        {"num_heads": 1, "kv_num_heads": 1},
    ),
}


def _model(name: str, *, open: bool) -> onnx.ModelProto:
    """With operands of few elements as inputs, whose extents are symbols where they are ``open``."""
    example, (domain, _, op) = EXAMPLES[name], name.rpartition(".")
    names = ["" if a is None else f"in{i}" for i, a in enumerate(example.inputs)]
    infos, constants = [], []
    for index, array in enumerate(example.inputs):
        if array is not None and index in FEW[name]:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            shape = [f"k{index}"] if open else list(array.shape)
            infos.append(helper.make_tensor_value_info(f"in{index}", kind, shape))
        elif array is not None:
            constants.append(numpy_helper.from_array(array, f"in{index}"))
    given = ["sequence" if n == "in0" and example.before and op.startswith("Sequence") else n for n in names]
    outputs = [f"out{i}" for i in range(example.outputs)]
    node = helper.make_node(op, given, outputs, name="node", domain=domain, **example.attributes)
    results = [onnx.ValueInfoProto(name=n) for n in (["joined"] if example.after else outputs)]
    graph = helper.make_graph([*example.before, node, *example.after], "few", infos, results, constants)
    imports = [helper.make_opsetid("", example.opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def test_every_operator_of_the_table_has_an_example() -> None:
    assert set(EXAMPLES) == set(FEW)


@pytest.mark.sampled
@pytest.mark.parametrize("name", FEW)
def test_the_run_checks_the_extent(name: str) -> None:
    """Too few and too many are the caller's fault, of that node; as many as there must be give what they always give."""
    good = {
        f"in{i}": a for i in FEW[name] if i < len(EXAMPLES[name].inputs) and (a := EXAMPLES[name].inputs[i]) is not None
    }
    with load_model(compiled(_model(name, open=False)), threads=1) as plain:
        expected = plain.run(good)
    with load_model(compiled(_model(name, open=True)), threads=1) as model:
        for own, array in model.run(good).items():
            assert np.array_equal(array, expected[own]), own
        for index, count in FEW[name].items():
            for other in {0, 1, 2, 3} - {count} if f"in{index}" in good else ():
                with pytest.raises(IngotError) as caught:
                    model.run(good | {f"in{index}": np.resize(good[f"in{index}"], other)})
                assert caught.value.code is ErrorCode.INVALID_ARGUMENT
                assert f"node 'node': k{index} must be {count}" in str(caught.value)


@pytest.mark.parametrize("extent", [0, 2])
@pytest.mark.parametrize("name", FEW)
def test_a_wrong_number_of_elements_is_refused(name: str, extent: int) -> None:
    """Where the model says it."""
    model = _model(name, open=True)
    for index, count in FEW[name].items():
        for info in model.graph.input:
            if info.name == f"in{index}":
                info.type.tensor_type.shape.dim[0].dim_value = extent if extent != count else 1
    with pytest.raises(IngotError, match="wrong number of elements") as caught:
        compiled(model)
    assert caught.value.code is ErrorCode.TYPE_MISMATCH
    assert caught.value.node.startswith("node")


@pytest.mark.parametrize("extent", [0, 2])
def test_lengths_of_attention_are_as_many_as_rows(extent: int) -> None:
    """Else they would make rows, or take them away."""
    infos = [helper.make_tensor_value_info("lengths", onnx.TensorProto.INT64, ["k"])]
    node = helper.make_node("Attention", ["q", "q", "q", "", "", "", "lengths"], ["y"], name="node")
    constant = numpy_helper.from_array(_grid(1, 1, 4, 3), "q")
    graph = helper.make_graph([node], "rows", infos, [onnx.ValueInfoProto(name="y")], [constant])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    with load_model(compiled(proto), threads=1) as model:
        assert model.run({"lengths": _vector(3)})["y"].shape == (1, 1, 4, 3)
        with pytest.raises(IngotError, match="k must be 1"):
            model.run({"lengths": np.full(extent, 3)})
