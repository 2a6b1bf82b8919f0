"""Definitions against the reference evaluator of onnx, in forms that its node tests leave out."""

from typing import Any

import numpy as np
import pytest

from tests.compiler_service.compiler.tensor_expr.reference import assert_close, by_definition, by_reference, random

FLOATS = ["float16", "float32", "float64"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def compare(op: str, *inputs: np.ndarray | None, outputs: int = 1, **attributes: Any) -> None:
    expected = by_reference(op, inputs, attributes, outputs)
    assert_close(by_definition(op, inputs, attributes, outputs=outputs), expected)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Less", "GreaterOrEqual"])
def test_binary_broadcasts_in_every_dtype(op: str, dtype: str) -> None:
    a, b = random((2, 1, 5), dtype), random((3, 1), dtype, seed=1)
    compare(op, a, np.where(b == 0, np.ones((), b.dtype), b))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("fmod", [0, 1])
def test_mod_of_integers(dtype: str, fmod: int) -> None:
    b = random((7,), dtype, seed=3)
    compare("Mod", random((4, 7), dtype), np.where(b == 0, np.ones((), b.dtype), b), fmod=fmod)


@pytest.mark.parametrize("op", ["Erf", "HardSwish", "Gelu", "HardSigmoid"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])  # in float64 the reference uses float32 constants
def test_unary_with_constants(op: str, dtype: str) -> None:
    compare(op, random((3, 17), dtype) * 2)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "op",
    [
        "Abs",
        "Neg",
        "Sign",
        "Floor",
        "Ceil",
        "Round",
        "Exp",
        "Sin",
        "Cos",
        "Tan",
        "Atan",
        "Sinh",
        "Cosh",
        "Tanh",
        "Asinh",
        "Relu",
        "Sigmoid",
        "Softplus",
        "Softsign",
        "Mish",
        "Elu",
        "Selu",
        "Celu",
        "LeakyRelu",
        "ThresholdedRelu",
        "Shrink",
    ],
)
def test_unary(op: str, dtype: str) -> None:
    compare(op, random((3, 17), dtype) * 2)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["Sqrt", "Log", "Reciprocal", "Acosh"])
def test_unary_on_positive_numbers(op: str, dtype: str) -> None:
    compare(op, np.abs(random((3, 17), dtype)) + np.asarray(1.5, dtype))


@pytest.mark.parametrize("op", ["Asin", "Acos", "Atanh"])
def test_unary_on_the_unit_interval(op: str) -> None:
    compare(op, np.tanh(random((3, 17))))


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0, -1.0, 2.5])
def test_pow_by_constants(exponent: float) -> None:
    compare("Pow", np.abs(random((4, 5))) + 0.1, np.array(exponent, np.float32))


def test_pow_of_mixed_types() -> None:
    compare("Pow", np.abs(random((4, 5))), random((5,), "int64"))
    compare("Pow", np.array([1, 2, 3], np.int64), np.array([1.5, 2.0, 0.5], np.float32))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [(), (0,), (-1, 0), (0, 1, 2)])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare"])
def test_reductions(op: str, axes: tuple[int, ...], keepdims: int, dtype: str) -> None:
    if op == "ReduceSumSquare" and dtype == "int32":
        dtype = "int64"  # the reference answers with int64
    compare(op, random((2, 3, 4), dtype), ints(*axes) if axes else None, keepdims=keepdims)


@pytest.mark.parametrize("op", ["ReduceL1", "ReduceL2", "ReduceLogSumExp"])
def test_norm_reductions(op: str) -> None:
    compare(op, random((2, 3, 4)) * 50, ints(1), keepdims=0)


def test_reduction_of_nothing_is_the_identity() -> None:
    empty = np.zeros((2, 0), np.float32)
    (found,) = by_definition("ReduceMax", [empty, ints(1)], {"keepdims": 0})
    assert found.tolist() == [-np.inf, -np.inf]
    (found,) = by_definition("ReduceSum", [empty, ints(1)], {"keepdims": 0})
    assert found.tolist() == [0, 0]


def test_position_of_nan() -> None:
    x = np.array([[1, np.nan, 3, np.nan]], np.float32)
    assert by_definition("ArgMax", [x], {"axis": 1, "keepdims": 0})[0].tolist() == [1]
    assert by_definition("ArgMax", [x], {"axis": 1, "keepdims": 0, "select_last_index": 1})[0].tolist() == [3]


MATMULS = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((1, 4), (6, 4, 1)),
]


@pytest.mark.parametrize("shapes", MATMULS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint64"])
def test_matmul(shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: str) -> None:
    compare("MatMul", random(shapes[0], dtype), random(shapes[1], dtype, seed=7))


@pytest.mark.parametrize(("left", "right"), [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("bias", [None, (), (5,), (3, 1), (3, 5)])
def test_gemm(left: int, right: int, bias: tuple[int, ...] | None) -> None:
    a, b = random((4, 3) if left else (3, 4)), random((5, 4) if right else (4, 5))
    c = None if bias is None else random(bias, seed=5)
    compare("Gemm", a, b, c, transA=left, transB=right, alpha=0.5, beta=2.0)


@pytest.mark.parametrize("equation", ["bij,bjk->bik", "...ij->...ji", "ij,kj", "bhqd,bhkd->bhqk", "i,j->ij"])
def test_einsum(equation: str) -> None:
    shapes = {"b": 2, "h": 3, "q": 4, "d": 5, "k": 6, "i": 3, "j": 5}
    terms = equation.split("->")[0].split(",")
    inputs = [
        random([2] * ("..." in t) + [shapes[c] for c in t.replace("...", "")], seed=i) for i, t in enumerate(terms)
    ]
    compare("Einsum", *inputs, equation=equation)


CONVOLUTIONS: list[dict[str, Any]] = [
    {"x": (2, 4, 9), "w": (6, 4, 3)},
    {"x": (2, 4, 9), "w": (6, 4, 3), "pads": (2, 1), "strides": (2,), "dilations": (2,)},
    {"x": (1, 4, 8, 7), "w": (6, 4, 3, 2), "pads": (1, 0, 2, 1), "strides": (2, 1)},
    {"x": (1, 4, 8, 7), "w": (6, 2, 3, 3), "group": 2, "dilations": (1, 2)},
    {"x": (1, 6, 8, 7), "w": (6, 1, 3, 3), "group": 6, "pads": (1, 1, 1, 1)},
    {"x": (1, 3, 8, 7), "w": (6, 1, 3, 3), "group": 3, "auto_pad": "SAME_UPPER", "strides": (2, 3)},
    {"x": (1, 3, 8, 7), "w": (6, 3, 4, 4), "auto_pad": "SAME_LOWER", "strides": (1, 2)},
    {"x": (1, 3, 8, 7), "w": (6, 3, 1, 1), "auto_pad": "VALID"},
    {"x": (1, 2, 4, 5, 6), "w": (3, 2, 2, 3, 2), "pads": (1, 0, 0, 0, 1, 1), "strides": (1, 2, 1)},
]


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("biased", [False, True])
def test_conv(case: dict[str, Any], dtype: str, biased: bool) -> None:
    attributes = {k: v for k, v in case.items() if k not in "xw"}
    bias = random(case["w"][:1], dtype) if biased else None
    compare("Conv", random(case["x"], dtype), random(case["w"], dtype, seed=9), bias, **attributes)


TRANSPOSED: list[dict[str, Any]] = [
    {"x": (2, 4, 5), "w": (4, 3, 3), "strides": (2,)},
    {"x": (1, 4, 5, 4), "w": (4, 3, 3, 2), "strides": (2, 3), "pads": (1, 0, 1, 1), "output_padding": (1, 0)},
    {"x": (1, 4, 5, 4), "w": (4, 3, 3, 3), "group": 2, "dilations": (2, 1)},
    {"x": (1, 4, 5, 4), "w": (4, 3, 3, 3), "auto_pad": "SAME_UPPER", "strides": (2, 2)},
    {"x": (1, 2, 3, 4, 3), "w": (2, 3, 2, 2, 3), "strides": (1, 2, 2)},
]


@pytest.mark.parametrize("case", TRANSPOSED)
def test_conv_transpose(case: dict[str, Any]) -> None:
    attributes = {k: v for k, v in case.items() if k not in "xw"}
    group = attributes.pop("group", 1)
    x, w = random(case["x"]), random(case["w"], seed=9)
    # the reference evaluator gets groups wrong: run them one by one
    parts = zip(np.split(x, group, axis=1), np.split(w, group, axis=0), strict=True)
    expected = np.concatenate([by_reference("ConvTranspose", part, attributes)[0] for part in parts], axis=1)
    assert_close(by_definition("ConvTranspose", [x, w], attributes | {"group": group}), [expected])


POOLS: list[dict[str, Any]] = [
    {"x": (2, 3, 9), "kernel_shape": (3,)},
    {"x": (1, 3, 8, 7), "kernel_shape": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1)},
    {"x": (1, 3, 8, 8), "kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1},
    {"x": (1, 2, 8, 7), "kernel_shape": (3, 3), "auto_pad": "SAME_UPPER", "strides": (2, 2)},
    {"x": (1, 2, 4, 5, 6), "kernel_shape": (2, 3, 2), "dilations": (1, 1, 2)},
]


@pytest.mark.parametrize("case", POOLS)
def test_pools(case: dict[str, Any]) -> None:
    attributes = {k: v for k, v in case.items() if k != "x"}
    x = random(case["x"])
    compare("MaxPool", x, **attributes)
    compare("AveragePool", x, **attributes)
    if "auto_pad" not in attributes:
        compare("AveragePool", x, count_include_pad=1, **attributes)


def test_global_lp_pool() -> None:
    x = random((2, 3, 5, 4))
    (found,) = by_definition("GlobalLpPool", [x], {"p": 3})
    assert_close([found], [(np.abs(x) ** 3).sum(axis=(2, 3), keepdims=True) ** np.float32(1 / 3)])


def test_sequence_lengths_stay_inside_the_tensor() -> None:
    x = random((4, 2))
    (found,) = by_definition("ReverseSequence", [x, np.array([99, -5])], {})
    assert_close([found], [np.stack([x[::-1, 0], x[:, 1]], axis=1)])


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax(op: str, axis: int) -> None:
    compare(op, random((3, 4, 5)) * 5, axis=axis)


def test_log_softmax_of_far_elements() -> None:
    (found,) = by_definition("LogSoftmax", [np.array([0, 1000], np.float32)], {})
    assert found.tolist() == [-1000, 0]


def test_normalizations() -> None:
    x, c = random((2, 6, 5, 4)), random((6,), seed=2)
    compare("BatchNormalization", x, c, c, c, np.abs(c), epsilon=1e-3)
    compare("InstanceNormalization", x, c, c)
    compare("LayerNormalization", x, random((5, 4)), random((5, 4), seed=3), axis=2, outputs=3)
    compare("LpNormalization", x, axis=1, p=2)
    (found,) = by_definition("LpNormalization", [x], {"axis": 1, "p": 1})
    assert_close([found], [x / np.abs(x).sum(axis=1, keepdims=True)])  # the reference forgets the sign
    compare("LRN", random((6, 6, 5, 4)), size=3, alpha=0.1)  # the reference confuses batch and channels
    compare("MeanVarianceNormalization", x, axes=(0, 2))


SHAPES = [
    ((4, 6), (8, 3)),
    ((2, 3, 4), (6, 4)),
    ((2, 12), (2, 3, 4)),
    ((5,), (1, 5, 1)),
    ((2, 1, 3), (3, 2)),
    ((), (1, 1)),
]


@pytest.mark.parametrize(("source", "target"), SHAPES)
def test_reshape(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    compare("Reshape", random(source), ints(*target))


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ((1,), (-1,), (0,), (1,)),
        ((-3, 0), (2**63 - 1, 100), (1, 0), (1, 2)),
        ((-1, 8), (-(2**63), 1), (0, 1), (-1, -3)),
        ((5,), (2,), (1,), (1,)),
        ((20,), (30,), (1,), (1,)),
    ],
)
def test_slice(starts: tuple[int, ...], ends: tuple[int, ...], axes: tuple[int, ...], steps: tuple[int, ...]) -> None:
    compare("Slice", random((7, 9)), ints(*starts), ints(*ends), ints(*axes), ints(*steps))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_pad(mode: str, dtype: str) -> None:
    compare("Pad", random((4, 5), dtype), ints(1, 2, 0, 3), mode=mode)


def test_pad_crops() -> None:
    x = random((4, 5))
    (found,) = by_definition("Pad", [x, ints(-1, 2, 1, -3), np.array(7, np.float32)], {})
    assert_close([found], [np.pad(x[1:, :-3], ((0, 1), (2, 0)), constant_values=7)])


def test_movement() -> None:
    x = random((3, 4, 5))
    compare("Concat", x, random((3, 2, 5)), random((3, 1, 5)), axis=-2)
    compare("Split", x, ints(1, 2, 2), axis=2, outputs=3)
    compare("Split", x, axis=2, num_outputs=2, outputs=2)
    compare("Tile", x, ints(2, 1, 3))
    compare("Expand", random((3, 1, 5)), ints(2, 1, 4, 1))
    compare("Transpose", x, perm=(2, 0, 1))
    compare("Squeeze", random((1, 3, 1)), ints(-1))
    compare("Unsqueeze", x, ints(0, -1))
    compare("Flatten", x, axis=2)
    compare("Trilu", x, np.array(1, np.int64), upper=0)
    compare("CumSum", x, np.array(1, np.int64), exclusive=1, reverse=1)
    compare("Where", random((4, 1), "bool"), x, random((5,)))


def test_gathers() -> None:
    x = random((3, 4, 5))
    compare("Gather", x, np.array([[0, -1], [2, 1]], np.int32), axis=1)
    compare("GatherElements", x, np.array([[[0, -1, 2, 3, 1]]] * 3, np.int64), axis=1)
    compare("GatherND", x, np.array([[[1], [-1]], [[0], [2]], [[3], [3]]], np.int64), batch_dims=1)


def test_gather_stays_inside_the_tensor() -> None:
    x, indices = random((3, 4)), np.array([99, -99], np.int64)
    (found,) = by_definition("Gather", [x, indices.reshape(2, 1)], {"axis": 0})
    assert_close([found], [x[[[2], [0]]]])


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int32", "uint8"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_of_every_dtype(mode: str, dtype: str) -> None:
    x, scales = random((1, 2, 4, 5), dtype), np.array([1, 1, 1.5, 0.75], np.float32)
    inputs, attributes = [x, None, scales], {"mode": mode}
    (expected,), (found,) = by_reference("Resize", inputs, attributes), by_definition("Resize", inputs, attributes)
    assert found.dtype == x.dtype
    limit = 1 if np.issubdtype(x.dtype, np.integer) else 2e-3  # halves are rounded from float32 here, float64 there
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), atol=limit)


def test_resize_scales_are_decimal_fractions() -> None:
    (found,) = by_definition("Resize", [random((10,)), None, np.array([0.7], np.float32)], {})
    assert found.shape == (7,)  # 0.7 in float32 is a little less than 7/10
