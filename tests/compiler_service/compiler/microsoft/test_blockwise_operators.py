"""MatMulNBits and GatherBlockQuantized against ONNX Runtime, and against numpy where it goes astray."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from shared_ir.errors import ErrorCode, IngotError
from tests.conformance.compiled import run_compiled, run_onnx_runtime

Array = np.ndarray
BLOCK = 16


def packed(codes: Array, bits: int) -> Array:
    """Codes of ``bits`` side by side in bytes along the last axis, the lower bits first."""
    per = 8 // bits
    rest = -codes.shape[-1] % per
    wide = np.concatenate([codes, np.zeros((*codes.shape[:-1], rest), codes.dtype)], -1)
    wide = wide.reshape(*codes.shape[:-1], -1, per)
    whole: Array = (wide.astype(np.int64) << (bits * np.arange(per))).sum(-1)
    return whole.astype(np.uint8)


def model_of(
    op: str, given: dict[str, Array], held: dict[str, onnx.TensorProto], order: list[str], **attributes: Any
) -> onnx.ModelProto:
    """``given`` with a symbolic first axis, ``held`` as constants."""
    node = helper.make_node(op, order, ["y"], name="node", domain="com.microsoft", **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), ["rows", *x.shape[1:]])
        for n, x in given.items()
    ]
    graph = helper.make_graph([node], op, infos, [onnx.ValueInfoProto(name="y")], list(held.values()))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


class Product:
    """A product with weights ``[k, n]`` that are held as codes of some bits."""

    def __init__(
        self, bits: int, zeros: str, *, seed: int = 0, is_grouped: bool = False, has_bias: bool = False
    ) -> None:
        rng = np.random.default_rng([bits, seed])
        self.rows, columns = int(rng.integers(17, 70)), int(rng.integers(1, 8))
        blocks = -(-self.rows // BLOCK)
        codes = rng.integers(0, 1 << bits, (columns, blocks * BLOCK))
        scales = (rng.random((columns, blocks)) * 0.1 + 0.01).astype(np.float32)
        self.x = rng.standard_normal((int(rng.integers(1, 5)), self.rows)).astype(np.float32)
        self.held = {"b": packed(codes.reshape(columns, blocks, BLOCK), bits), "scales": scales}
        centre = np.full((columns, blocks), 1 << (bits - 1), np.float32)
        if zeros == "codes":
            points = rng.integers(0, 1 << bits, (columns, blocks))
            centre, self.held["zeros"] = points.astype(np.float32), packed(points, bits)
        elif zeros == "floats":
            centre = self.held["zeros"] = (rng.random((columns, blocks)) * (1 << bits)).astype(np.float32)
        groups = np.arange(self.rows) // BLOCK
        if is_grouped:
            groups = rng.integers(0, blocks, self.rows)
            self.held["groups"] = groups.astype(np.int32)
        if has_bias:
            self.held["bias"] = rng.standard_normal(columns).astype(np.float32)
        weights = (codes[:, : self.rows] - centre[:, groups]) * scales[:, groups]
        self.expected = self.x @ weights.T + self.held.get("bias", 0)
        self.attributes = {"K": self.rows, "N": columns, "bits": bits, "block_size": BLOCK}

    def model(self, *, is_constant: bool = True, **more: Any) -> tuple[onnx.ModelProto, dict[str, Array]]:
        order = ["x", *(n if n in self.held else "" for n in ("b", "scales", "zeros", "groups", "bias"))]
        while not order[-1]:
            order.pop()
        given = {"x": self.x} if is_constant else {"x": self.x, **self.held}
        held = {n: numpy_helper.from_array(v, n) for n, v in self.held.items()} if is_constant else {}
        model = model_of("MatMulNBits", given, held, order, **self.attributes, **more)
        if not is_constant:
            for info in model.graph.input[1:]:
                info.type.tensor_type.shape.dim[0].dim_value = self.held[info.name].shape[0]
        return model, given


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("zeros", ["none", "codes", "floats"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_products_of_blocks(bits: int, zeros: str, is_constant: bool, level: int) -> None:
    product = Product(bits, zeros, has_bias=zeros != "codes", seed=is_constant)
    model, given = product.model(is_constant=is_constant)
    (found,) = run_compiled(model, given, level)
    np.testing.assert_allclose(found, product.expected, rtol=1e-4, atol=2e-4)
    if (bits, zeros) != (8, "floats"):  # which ONNX Runtime's processor kernel refuses
        np.testing.assert_allclose(found, run_onnx_runtime(model, given)[0], rtol=1e-4, atol=2e-4)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("zeros", ["none", "codes", "floats"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rows_that_name_their_block(bits: int, zeros: str) -> None:
    """ONNX Runtime follows g_idx for 4 bits alone, and not where zero points are codes."""
    product = Product(bits, zeros, is_grouped=True, has_bias=True)
    model, given = product.model()
    (found,) = run_compiled(model, given)
    np.testing.assert_allclose(found, product.expected, rtol=1e-4, atol=2e-4)
    if bits == 4 and zeros != "codes":
        np.testing.assert_allclose(found, run_onnx_runtime(model, given)[0], rtol=1e-4, atol=2e-4)


@pytest.mark.slow
def test_weights_that_are_left_out_are_zeros() -> None:
    product = Product(4, "none", has_bias=True)
    product.held["b"] = product.held["b"][:, :, :0]
    model, given = product.model()
    np.testing.assert_array_equal(run_compiled(model, given)[0], run_onnx_runtime(model, given)[0])


def test_the_accuracy_level_is_a_hint() -> None:
    product = Product(4, "none")
    model, given = product.model(accuracy_level=4)
    np.testing.assert_allclose(run_compiled(model, given)[0], product.expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize(("field", "more"), [("bits", {"bits": 3}), ("weight_prepacked", {"weight_prepacked": 1})])
def test_other_layouts_are_refused_by_name(field: str, more: dict[str, int]) -> None:
    product = Product(4, "none")
    product.attributes |= more
    model, given = product.model()
    with pytest.raises(IngotError) as caught:
        run_compiled(model, given, 0)
    assert (caught.value.code, caught.value.field) == (ErrorCode.UNSUPPORTED_ATTRIBUTE, field)


ROWS = [((20, 48), 0, 1), ((20, 40), 0, 1), ((20, 3, 48), 0, 2)]
"""Shape, axis of the indices, axis of the blocks."""
OTHERS = [((20, 32, 6), 0, 1), ((3, 20, 32), -2, -1), ((32, 6), 0, 0), ((6, 40), 1, 1)]
TABLES = [
    *itertools.product(ROWS, ("UINT4", "INT4", "bytes 2", "bytes 4", "bytes 8")),
    *itertools.product(OTHERS, ("UINT4", "INT4")),
]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize(("has_zeros", "level"), [(True, 0), (False, 3), (True, 3)])
@pytest.mark.parametrize(("table", "kind"), TABLES)
def test_rows_of_tables(table: tuple[tuple[int, ...], int, int], kind: str, has_zeros: bool, level: int) -> None:
    """Indices count from the end where negative; what is outside of the table is 0."""
    shape, gathered, blocked = table
    bits = int(kind[6:] or 4) if kind.startswith("bytes") else 4
    rng = np.random.default_rng([*shape, bits])
    low, high = (-8, 8) if kind == "INT4" else (0, 1 << bits)
    wanted = list(shape)
    wanted[blocked] = -(-shape[blocked] // BLOCK)
    codes, zeros = rng.integers(low, high, shape), rng.integers(low, high, wanted)
    arrays = {"data": codes, **({"zeros": zeros} if has_zeros else {})}
    if kind.startswith("bytes"):
        held = {n: numpy_helper.from_array(packed(v, bits), n) for n, v in arrays.items()}
    else:
        kinds = getattr(TensorProto, kind)
        held = {n: helper.make_tensor(n, kinds, v.shape, v.ravel().tolist()) for n, v in arrays.items()}
    scales = (rng.random(wanted) + 0.1).astype(np.float32)
    held["scales"] = numpy_helper.from_array(scales, "scales")
    extent = shape[gathered]
    given = {"indices": np.array([[0, extent - 1, -1], [-extent, extent, 3]])}
    order = ["data", "indices", "scales", *(["zeros"] if has_zeros else [])]
    attributes = {"gather_axis": gathered, "quantize_axis": blocked, "block_size": BLOCK, "bits": bits}
    model = model_of("GatherBlockQuantized", given, held, order, **attributes)
    (found,) = run_compiled(model, given, level)
    (expected,) = run_onnx_runtime(model, given)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_rows_of_a_table_of_halves() -> None:
    rng = np.random.default_rng(5)
    codes, scales = rng.integers(0, 16, (20, 32)), (rng.random((20, 2)) + 0.1).astype(np.float16)
    held = {
        "data": numpy_helper.from_array(packed(codes, 4), "data"),
        "scales": numpy_helper.from_array(scales, "scales"),
    }
    given = {"indices": np.array([[3], [19]], np.int32)}
    model = model_of("GatherBlockQuantized", given, held, ["data", "indices", "scales"], block_size=BLOCK)
    (found,), (expected,) = run_compiled(model, given), run_onnx_runtime(model, given)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize(
    ("field", "attributes"),
    [("quantize_axis", {"quantize_axis": 0}), ("bits", {"bits": 3}), ("block_size", {"block_size": 0})],
)
def test_other_tables_are_refused_by_name(field: str, attributes: dict[str, int]) -> None:
    held = {"data": np.zeros((20, 16), np.uint8), "scales": np.ones((20, 2), np.float32)}
    order = ["data", "indices", "scales"]
    protos = {n: numpy_helper.from_array(v, n) for n, v in held.items()}
    given = {"indices": np.array([1])}
    model = model_of("GatherBlockQuantized", given, protos, order, **{"block_size": BLOCK, **attributes})
    with pytest.raises(IngotError) as caught:
        run_compiled(model, given, 0)
    assert (caught.value.code, caught.value.field) == (ErrorCode.UNSUPPORTED_ATTRIBUTE, field)
