"""Chains of a few operators that exporters write, of sizes that are known and of none that is, at the lowest and the highest level."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from shared_ir.errors import ErrorCode, IngotError
from tests.conformance.compiled import run_compiled, run_onnx_runtime

Array = np.ndarray
FLOAT, INT8, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT8, onnx.TensorProto.INT64
LEVELS = pytest.mark.parametrize("opt_level", [0, pytest.param(3)])


def model(
    nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, list[Any]]], domain: str = "", **weights: Array
) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(name, *info) for name, info in inputs.items()]
    held = [numpy_helper.from_array(a, name) for name, a in weights.items()]
    graph = helper.make_graph(nodes, "chain", infos, [onnx.ValueInfoProto(name="y")], held)
    opsets = [helper.make_opsetid("", 21), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def agrees(proto: onnx.ModelProto, opt_level: int, **feeds: Array) -> None:
    (found,), (wanted,) = run_compiled(proto, feeds, opt_level), run_onnx_runtime(proto, feeds)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@LEVELS
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("zero", [0, 3])
def test_a_scale_that_two_operators_read(zero: int, groups: int, opt_level: int) -> None:
    """The numbers that the sum is multiplied by and that the result is dequantized by are one constant, where they are equal."""
    rng = np.random.default_rng(0)
    names = ["x", "s", "z", "w", "ws", "wz", "ys", "yz"]
    nodes = [
        helper.make_node("QLinearConv", names, ["q"], group=groups),
        helper.make_node("DequantizeLinear", ["q", "ys", "yz"], ["y"]),
    ]
    constants: dict[str, Any] = {n: np.array(s, np.float32) for n, s in {"s": 0.25, "ws": 0.0625, "ys": 0.125}.items()}
    constants |= {n: np.array(z, np.int8) for n, z in {"z": zero, "wz": 0, "yz": -3}.items()}
    proto = model(
        nodes,
        {"x": (INT8, [1, 4, 6, "n"])},
        w=rng.integers(-99, 99, (4, 4 // groups, 3, 3)).astype(np.int8),
        **constants,
    )
    agrees(proto, opt_level, x=rng.integers(-99, 99, (1, 4, 6, 7)).astype(np.int8))


@LEVELS
@pytest.mark.parametrize("perm", [(0, 2, 1), (2, 0, 1)])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_product_with_a_transpose_where_nothing_is_known(batch: int, perm: tuple[int, ...], opt_level: int) -> None:
    nodes = [helper.make_node("Transpose", ["k"], ["t"], perm=perm), helper.make_node("MatMul", ["q", "t"], ["y"])]
    proto = model(nodes, {"q": (FLOAT, [None] * 3), "k": (FLOAT, [None] * 3)})
    shape = [0, 0, 0]
    for axis, extent in zip(perm, (batch, 5, 9), strict=True):
        shape[axis] = extent
    rng = np.random.default_rng(1)
    agrees(proto, opt_level, q=rng.random((3, 7, 5), np.float32), k=rng.random(tuple(shape), np.float32))


@LEVELS
@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize("equation", ["ik,jk->ij", "ik,jk->ji", "ik,kj->ij"])
def test_a_product_of_a_tensor_with_itself(equation: str, is_computed: bool, opt_level: int) -> None:
    """The columns of a tile are copied, and the rows that stand in the same tensor are not."""
    operand = "r" if is_computed else "x"
    nodes = [helper.make_node("Relu", ["x"], ["r"])] if is_computed else []
    nodes += [helper.make_node("Einsum", [operand] * 2, ["y"], equation=equation)]
    extents = ["n", "n"] if "kj" in equation else ["n", 8]
    proto = model(nodes, {"x": (FLOAT, extents)})
    for rows in (1, 8, 21):
        shape = (rows, rows) if "kj" in equation else (rows, 8)
        agrees(proto, opt_level, x=np.random.default_rng(rows).random(shape, np.float32))


@LEVELS
def test_a_product_and_more_of_its_second_operand(opt_level: int) -> None:
    nodes = [
        helper.make_node("Einsum", ["x", "w"], ["p"], equation="ik,jk->ij"),
        helper.make_node("Slice", ["w", "zero", "one", "one"], ["first"]),
        helper.make_node("Add", ["p", "first"], ["y"]),
    ]
    proto = model(nodes, {"x": (FLOAT, ["n", 8]), "w": (FLOAT, ["n", 8])}, zero=np.array([0]), one=np.array([1]))
    rng = np.random.default_rng(5)
    agrees(proto, opt_level, x=rng.random((20, 8), np.float32), w=rng.random((20, 8), np.float32))


@LEVELS
def test_positions_of_maxima_that_nobody_else_asks_for(opt_level: int) -> None:
    """The first result of the pool is dropped, and the second one stays where it is."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("MaxPool", ["c"], ["maxima", "positions"], kernel_shape=[2, 2]),
        helper.make_node("Neg", ["positions"], ["y"]),
    ]
    rng = np.random.default_rng(6)
    proto = model(nodes, {"x": (FLOAT, ["n", 3, "h", "w"])}, w=rng.random((4, 3, 3, 3), np.float32))
    agrees(proto, opt_level, x=rng.random((2, 3, 7, 6), np.float32))


@LEVELS
@pytest.mark.parametrize("equation", ["ab,ca->", "ab,yxa->", "ab,a->"])
def test_a_sum_of_products_that_leaves_no_axis(equation: str, opt_level: int) -> None:
    ranks = len(equation.partition("->")[0].partition(",")[2])
    weight = np.random.default_rng(2).random((3, 2, 4)[-ranks:], np.float32)
    proto = model(
        [helper.make_node("Einsum", ["x", "w"], ["y"], equation=equation)], {"x": (FLOAT, [4, "n"])}, w=weight
    )
    agrees(proto, opt_level, x=np.random.default_rng(3).random((4, 5), np.float32))


@LEVELS
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_numbers_that_are_cast_to_a_half_and_back_are_rounded(half: str, opt_level: int) -> None:
    to = onnx.TensorProto.DataType.Value(half.upper())
    proto = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[n, 8] x) => (float[n, m] y) {{
            h = Cast <to: int = {to}> (x)
            r = Cast <to: int = 1> (h)
            t = Transpose (r)
            y = MatMul (r, t)
        }}"""
    )
    x = np.random.default_rng(4).uniform(-3, 3, (5, 8)).astype(np.float32)
    x[0, 0] = 70000.0
    with np.errstate(invalid="ignore", over="ignore"):
        rounded = x.astype(helper.tensor_dtype_to_np_dtype(to)).astype(np.float32)
        (found,) = run_compiled(proto, {"x": x}, opt_level)
        np.testing.assert_allclose(found, rounded @ rounded.T, rtol=1e-5)


@LEVELS
def test_one_row_of_a_quantized_table(opt_level: int) -> None:
    node = helper.make_node(
        "GatherBlockQuantized", ["w", "i", "s"], ["y"], domain="com.microsoft", bits=4, block_size=32, quantize_axis=1
    )
    table = np.random.default_rng(5).integers(0, 256, (5, 32)).astype(np.uint8)
    proto = model([node], {"i": (INT64, [])}, "com.microsoft", w=table, s=np.full((5, 2), 0.5, np.float32))
    agrees(proto, opt_level, i=np.array(3))


@LEVELS
@pytest.mark.parametrize("output", ["ij", "i"])
@pytest.mark.parametrize("count", [33, 300])
def test_a_product_of_very_many_operands(count: int, output: str, opt_level: int) -> None:
    """The expression of an element is no deeper than what may be walked by recursion."""
    equation = ",".join(["ij"] * count) + f"->{output}"
    proto = model(
        [helper.make_node("Einsum", ["x", *["w"] * (count - 1)], ["y"], equation=equation)],
        {"x": (FLOAT, ["n", "m"]), "w": (FLOAT, ["n", "m"])},
    )
    rng = np.random.default_rng(2)
    x, w = (rng.uniform(0.99, 1.01, (3, 5)).astype(np.float32) for _ in range(2))
    wanted = x * w.astype(np.float64) ** (count - 1)
    (found,) = run_compiled(proto, {"x": x, "w": w}, opt_level)
    np.testing.assert_allclose(found, wanted if output == "ij" else wanted.sum(1), rtol=1e-4)


def test_one_of_more_operands_than_a_kernel_may_have_is_refused() -> None:
    equation = ",".join(["i"] * 1025) + "->i"
    with pytest.raises(IngotError, match="too many operands") as caught:
        run_compiled(
            model([helper.make_node("Einsum", ["x"] * 1025, ["y"], equation=equation)], {"x": (FLOAT, ["n"])}), {}
        )
    assert caught.value.code is ErrorCode.LIMIT_EXCEEDED
