"""Older forms of operators compute what they always did.

The oracle is ONNX Runtime from opset 7 on; it does not run older forms, whose results are computed here with numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from compiler_service.compiler.frontend.adapters.table import ADAPTATIONS
from compiler_service.compiler.frontend.reading.source import NEWEST_OPSET
from compiler_service.compiler.frontend.standard.schemas import find_schema
from compiler_service.compiler.tensor_expr.registry import OPERATORS
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import Module
from tests.compiler_service.compiler.frontend.onnx_models import constant, load, model, node, ops, run, tensor

RANDOM = np.random.default_rng(7)
X = RANDOM.standard_normal((2, 4, 6, 5)).astype(np.float32)
CHANNELS = [np.abs(RANDOM.standard_normal(4)).astype(np.float32) + 0.5 for _ in range(4)]


def both(
    opset: int,
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    *constants: Any,
) -> Module:
    """Compare the import with ONNX Runtime; returns the module."""
    inputs = [tensor(n, a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for n, a in feeds.items()]
    proto = model(nodes, inputs, outputs, constants, opset=opset)
    for declared in proto.graph.output:
        declared.type.tensor_type.SetInParent()
    module = load(proto)
    for output, value in zip(proto.graph.output, module.graph.outputs, strict=True):
        output.CopyFrom(tensor(output.name, None, helper.np_dtype_to_tensor_dtype(value.dtype.numpy)))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(list(outputs), dict(feeds))
    for found, expected in zip(run(module, feeds), wanted, strict=True):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    return module


def one(opset: int, made: onnx.NodeProto, *constants: onnx.TensorProto, x: np.ndarray = X) -> Module:
    """One node from ``x`` to ``y``."""
    return both(opset, [made], {"x": x}, ["y"], *constants)


@pytest.mark.parametrize(
    "op",
    [f"Reduce{kind}" for kind in ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")],
)
def test_reductions_over_axes(op: str) -> None:
    one(11, node(op, ["x"], ["y"], axes=[1, -1], keepdims=0))
    one(7, node(op, ["x"], ["y"], axes=[2]))
    one(11, node(op, ["x"], ["y"]))


def test_squeeze_and_unsqueeze() -> None:
    narrow = X[:1, :, :1]
    one(11, node("Squeeze", ["x"], ["y"], axes=[0, 2]), x=narrow)
    one(11, node("Squeeze", ["x"], ["y"], axes=[-2]), x=narrow)
    one(11, node("Squeeze", ["x"], ["y"]), x=narrow)
    one(11, node("Unsqueeze", ["x"], ["y"], axes=[0, -1]))


def test_split() -> None:
    both(11, [node("Split", ["x"], ["a", "b"], axis=2, split=[2, 4])], {"x": X}, ["a", "b"])
    both(7, [node("Split", ["x"], ["a", "b", "c"], axis=2)], {"x": X}, ["a", "b", "c"])
    both(13, [node("Split", ["x"], ["a", "b"], axis=1)], {"x": X}, ["a", "b"])
    both(13, [node("Split", ["x", "s"], ["a", "b"], axis=1)], {"x": X}, ["a", "b"], constant("s", [1, 3]))


def test_slice_with_attributes() -> None:
    one(9, node("Slice", ["x"], ["y"], starts=[1, -3], ends=[2**31 - 1, -1], axes=[2, 3]))
    one(9, node("Slice", ["x"], ["y"], starts=[0, 1], ends=[1, 100]))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad_with_attributes(mode: str) -> None:
    one(9, node("Pad", ["x"], ["y"], mode=mode, pads=[0, 0, 1, 2, 0, 0, 2, 1], value=1.5))


@pytest.mark.parametrize("limits", [{}, {"min": -0.5}, {"max": 0.5}, {"min": -0.5, "max": 0.25}])
def test_clip_with_attributes(limits: dict[str, float]) -> None:
    module = one(9, node("Clip", ["x"], ["y"], **limits))
    assert len(module.graph.nodes[0].operands) == 1 + len(limits)


@pytest.mark.parametrize("opset", [7, 10])
def test_dropout_passes_its_input(opset: int) -> None:
    one(opset, node("Dropout", ["x"], ["y"], ratio=0.3))


def test_batch_normalization() -> None:
    parameters = [constant(n, c) for n, c in zip("abcd", CHANNELS, strict=True)]
    for opset, more in ((7, {"epsilon": 1e-3}), (9, {"momentum": 0.5})):
        one(opset, node("BatchNormalization", ["x", *"abcd"], ["y"], **more), *parameters)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -2, None])
def test_softmax_flattens_the_tail(op: str, axis: int | None) -> None:
    module = one(11, node(op, ["x"], ["y"], **({} if axis is None else {"axis": axis})))
    assert (ops(module.graph) == [op]) == (axis in (3, -1))


def test_softmax_of_a_dynamic_shape() -> None:
    proto = model([node("Softmax", ["x"], ["y"])], [tensor("x", ["n", "c", "h"])], ["y"], opset=9)
    assert str(load(proto).graph.outputs[0].type) == "float32[n, c, h]"


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [[1, 1, 2, 2], [1, 1, 1.5, 3], [1, 1, 0.5, 0.6], [1, 1, 0.6, 2]])
def test_resize_of_opset_10(mode: str, scales: list[float]) -> None:
    one(10, node("Resize", ["x", "s"], ["y"], mode=mode), constant("s", scales, np.float32))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample(mode: str) -> None:
    one(9, node("Upsample", ["x", "s"], ["y"], mode=mode), constant("s", [1, 1, 2, 3], np.float32))
    module = one(7, node("Upsample", ["x"], ["y"], mode=mode, scales=[1.0, 1.0, 2.0, 2.0]))
    assert ops(module.graph) == ["Resize"]


@pytest.mark.parametrize(
    ("op", "opset", "attributes"),
    [
        ("MaxPool", 7, {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("AveragePool", 7, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
        ("Flatten", 7, {"axis": 2}),
        ("ArgMax", 7, {"axis": 1}),
        ("DepthToSpace", 7, {"blocksize": 2}),
        ("LpPool", 7, {"kernel_shape": [2, 2]}),
        ("Elu", 7, {"alpha": 0.5}),
        ("Selu", 7, {}),
        ("HardSigmoid", 7, {}),
        ("Transpose", 7, {"perm": [0, 3, 1, 2]}),
    ],
)
def test_forms_that_the_newest_contains(op: str, opset: int, attributes: dict[str, Any]) -> None:
    one(opset, node(op, ["x"], ["y"], **attributes))


def test_group_normalization_per_group() -> None:
    scale, bias = np.array([2, 3], np.float32), np.array([0.5, -1], np.float32)
    nodes = [node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)]
    (found,) = run(
        load(model(nodes, [tensor("x", X.shape)], ["y"], [constant("s", scale), constant("b", bias)], 18)), {"x": X}
    )
    grouped = X.reshape(2, 2, -1)
    normal = (grouped - grouped.mean(-1, keepdims=True)) / np.sqrt(grouped.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found, (normal * scale[:, None] + bias[:, None]).reshape(X.shape), rtol=1e-4, atol=1e-5)


# -- before opset 7


def old(
    made: onnx.NodeProto, feeds: Mapping[str, np.ndarray], *constants: onnx.TensorProto, opset: int = 6
) -> np.ndarray:
    inputs = [tensor(n, a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for n, a in feeds.items()]
    (found,) = run(load(model([made], inputs, ["y"], constants, opset=opset)), feeds)
    return found


@pytest.mark.parametrize(("shape", "axis"), [((4,), 1), ((4, 6), 1), ((6, 5), None), ((2,), 0), ((4,), -3), ((5,), 3)])
@pytest.mark.parametrize("op", ["Add", "Mul", "Sub", "Div"])
def test_broadcasting_from_an_axis(op: str, shape: tuple[int, ...], axis: int | None) -> None:
    b = np.abs(RANDOM.standard_normal(shape)).astype(np.float32) + 1
    attributes = {"broadcast": 1} if axis is None else {"broadcast": 1, "axis": axis}
    found = old(node(op, ["x", "b"], ["y"], **attributes), {"x": X, "b": b})
    first = 4 - len(shape) if axis is None else axis % 4
    wide = b.reshape((1,) * first + shape + (1,) * (4 - first - len(shape)))
    function = {"Add": np.add, "Mul": np.multiply, "Sub": np.subtract, "Div": np.divide}[op]
    np.testing.assert_allclose(found, function(X, wide), rtol=1e-6)


def test_an_axis_that_does_not_fit_is_refused() -> None:
    with pytest.raises(IngotError) as caught:
        old(node("Add", ["x", "b"], ["y"], broadcast=1, axis=3), {"x": X, "b": X[0, 0]})
    assert (caught.value.code, caught.value.field) == (ErrorCode.UNSUPPORTED_ATTRIBUTE, "axis")


def test_other_forms_of_the_first_opsets() -> None:
    slope = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    found = old(node("PRelu", ["x", "s"], ["y"]), {"x": X, "s": slope})
    np.testing.assert_allclose(found, np.where(X < 0, X * slope[:, None, None], X), rtol=1e-6)
    np.testing.assert_array_equal(
        old(node("Reshape", ["x"], ["y"], shape=[0, -1]), {"x": X}, opset=1), X.reshape(2, -1)
    )
    np.testing.assert_array_equal(old(node("Cast", ["x"], ["y"], to="INT32"), {"x": X}, opset=1), X.astype(np.int32))
    np.testing.assert_array_equal(old(node("Cast", ["x"], ["y"], to="DOUBLE"), {"x": X}, opset=1), X.astype(np.float64))
    np.testing.assert_array_equal(
        old(node("Relu", ["x"], ["y"], consumed_inputs=[0]), {"x": X}, opset=1), np.maximum(X, 0)
    )
    np.testing.assert_array_equal(old(node("Concat", ["x", "x"], ["y"]), {"x": X}, opset=1), np.concatenate([X, X], 1))
    np.testing.assert_allclose(old(node("Clip", ["x"], ["y"], min=0.0), {"x": X}), np.maximum(X, 0))
    tiled = old(
        node("Tile", ["x", "t", "a"], ["y"]),
        {"x": X},
        constant("t", [2.0], np.float32),
        constant("a", [1.0], np.float32),
        opset=1,
    )
    np.testing.assert_array_equal(tiled, np.tile(X, (1, 2, 1, 1)))
    first = old(node("Split", ["x", "s"], ["y", "z"], axis=1), {"x": X}, constant("s", [1.0, 3.0], np.float32), opset=1)
    np.testing.assert_array_equal(first, X[:, :1])
    padded = old(node("Pad", ["x"], ["y"], paddings=[0, 0, 1, 0, 0, 0, 0, 1]), {"x": X}, opset=1)
    np.testing.assert_array_equal(padded, np.pad(X, ((0, 0), (0, 0), (1, 0), (0, 1))))
    up = old(node("Upsample", ["x"], ["y"], height_scale=2.0, width_scale=3.0), {"x": X}, opset=1)
    np.testing.assert_array_equal(up, X.repeat(2, axis=2).repeat(3, axis=3))
    a, b, c = RANDOM.standard_normal((3, 4, 4)).astype(np.float32)
    gemm = old(node("Gemm", ["a", "b", "c"], ["y"], broadcast=1, transB=1), {"a": a, "b": b, "c": c[0]})
    np.testing.assert_allclose(gemm, a @ b.T + c[0], rtol=1e-5)


# -- forms whose operators need not be in the inventory


def adapted(made: onnx.NodeProto, opset: int, *shapes: tuple[int, ...], positions: str = "") -> Module:
    """The import of one node; ``positions`` are those of its inputs that hold int64 in place of float32."""
    types = {n: onnx.TensorProto.INT64 if n in positions else onnx.TensorProto.FLOAT for n in made.input}
    inputs = [tensor(n, s, types[n]) for n, s in zip(made.input, shapes, strict=False) if n]
    return load(model([made], inputs, [made.output[0]], opset=opset))


def test_top_k_takes_k_as_an_input() -> None:
    module = adapted(node("TopK", ["x"], ["y", "i"], k=3), 9, (2, 8))
    ranks, positions, elements = module.graph.nodes
    assert [a.tolist() for a in module.graph.constants.values()] == [[3]]
    assert ops(module.graph) == ["ingot.Ranks", "ingot.RankedPositions", "GatherElements"]
    assert dict(ranks.attributes) == {"axis": -1, "largest": 1}
    assert elements.inputs == (module.graph.inputs[0], positions.results[0])


@pytest.mark.parametrize(("tiles", "axis"), [(2.0, 4.0), (2.0, -5.0), (1.5, 1.0), (2.0, np.nan), (np.inf, 0.0)])
def test_repeats_and_axes_that_do_not_fit_are_refused(tiles: float, axis: float) -> None:
    given = [constant(n, [v], np.float32) for n, v in (("t", tiles), ("a", axis))]
    with pytest.raises(IngotError) as caught:
        old(node("Tile", ["x", "t", "a"], ["y"]), {"x": X}, *given, opset=1)
    assert (caught.value.code, caught.value.field) == (ErrorCode.UNSUPPORTED_ATTRIBUTE, "axis")


def test_scatter_is_renamed() -> None:
    module = adapted(node("Scatter", ["x", "i", "u"], ["y"], axis=1), 9, (2, 8), (2, 8), (2, 8), positions="i")
    assert ops(module.graph)[-1] == "ScatterElements"
    assert dict(module.graph.nodes[-1].attributes) == {"axis": 1, "reduction": "none"}


def test_dft_takes_its_axis_as_an_input() -> None:
    module = adapted(node("DFT", ["x"], ["y"], axis=2), 17, (1, 8, 8, 1))
    roots, product = module.graph.nodes
    (axis,) = module.graph.constants
    assert roots.inputs == (module.graph.inputs[0], axis)
    assert product.inputs == (module.graph.inputs[0], roots.results[0], axis)
    assert module.graph.constants[axis].tolist() == 2


def test_modes_are_renamed() -> None:
    module = adapted(node("GridSample", ["x", "g"], ["y"], mode="bicubic"), 16, (1, 1, 4, 4), (1, 2, 2, 2))
    assert module.graph.nodes[0].attributes["mode"] == "cubic"
    module = adapted(node("RoiAlign", ["x", "r", "b"], ["y"]), 10, (1, 1, 4, 4), (1, 4), (1,), positions="b")
    assert module.graph.nodes[-1].attributes["coordinate_transformation_mode"] == "output_half_pixel"
    module = adapted(
        node("LSTM", ["x", "w", "r"], ["y"], hidden_size=2, output_sequence=1), 6, (1, 1, 4), (1, 8, 4), (1, 8, 2)
    )
    assert "output_sequence" not in module.graph.nodes[0].attributes
    assert module.graph.nodes[0].attributes["layout"] == 0


@pytest.mark.parametrize(
    ("made", "opset", "field"),
    [
        (node("BatchNormalization", ["x", *"abcd"], ["y"], spatial=0), 7, "spatial"),
        (node("BatchNormalization", ["x", *"abcd"], ["y", "m"]), 9, "outputs"),
        (node("Upsample", ["x"], ["y"], scales=[1.0, 2.0], mode="area"), 7, "mode"),
        (node("LpPool", ["x"], ["y"], kernel_shape=[2], p=1.5), 1, "p"),
        (node("Cast", ["x"], ["y"], to="QUATERNION"), 1, "to"),
    ],
)
def test_cases_without_an_equivalent_are_named(made: onnx.NodeProto, opset: int, field: str) -> None:
    with pytest.raises(IngotError) as caught:
        adapted(made, opset, (2, 4), (4,), (4,), (4,), (4,))
    assert (caught.value.code, caught.value.field) == (ErrorCode.UNSUPPORTED_ATTRIBUTE, field)
    assert caught.value.node == f"{made.name} ({made.op_type})"
    assert "newer opset" in caught.value.remedy


def test_the_table_leaves_no_incompatible_form_unnoticed() -> None:
    """Every operator whose older form is not contained in its newest has an adapter, or is known to have none."""
    without = set()
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain or schema.support_level.name == "EXPERIMENTAL":
            continue
        newest = find_schema(schema.name, "", NEWEST_OPSET)
        contained = newest is not None and not newest.deprecated and _contained(schema, newest)
        adaptation = ADAPTATIONS.get(schema.name)
        if not contained and not (adaptation is not None and schema.since_version < adaptation.before):
            without.add(schema.name)
    assert without == set()


def _contained(used: Any, newest: Any) -> bool:
    return set(used.attributes) - {"consumed_inputs"} <= set(newest.attributes) and len(used.inputs) <= len(
        newest.inputs
    )


def test_the_inventory_and_the_table_agree_on_names() -> None:
    names = [(op, *reversed(op.rpartition(".")[::2])) for op in ADAPTATIONS if not op.startswith("com.microsoft.")]
    foreign = {op for op, name, domain in names if not onnx.defs.has(name, domain)}
    assert foreign == {"SimplifiedLayerNormalization"}  # written by the optimizer of ONNX Runtime
    assert "Upsample" not in OPERATORS
