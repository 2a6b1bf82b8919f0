"""What schedules rely on: the stages of definitions; layouts; dims as symbols give the same numbers."""

from typing import Any, TypeAlias

import numpy as np
import pytest

from compiler_service.compiler.tensor_expr.meaning.rounding import Array
from compiler_service.compiler.tensor_expr.registry import infer
from compiler_service.compiler.tensor_expr.tensor import Compute, Load, Placeholder, Tensor, placeholder
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp
from tests.compiler_service.compiler.tensor_expr.reference import assert_close, by_definition, random


def stages(op: str, *shapes: tuple[int, ...], **attributes: Any) -> list[Tensor]:
    """The computes of the first output, producers first."""
    inputs = tuple(placeholder(f"x{i}", shape, DType.FLOAT32) for i, shape in enumerate(shapes))
    found: list[Tensor] = []

    def visit(t: Tensor) -> None:
        for producer in t.producers:
            visit(producer)
        if not isinstance(t.op, Placeholder) and t not in found:
            found.append(t)

    (y, *_) = infer(op, inputs, attributes)
    assert y is not None
    visit(y)
    return found


def names(op: str, *shapes: tuple[int, ...], **attributes: Any) -> list[str]:
    return [t.name for t in stages(op, *shapes, **attributes)]


def test_stages_of_a_convolution() -> None:
    x, w, b = (1, 8, 8, 4), (6, 4, 3, 3), (6,)
    assert names("Conv", x, w, b, layout="NHWC", pads=(1, 1, 1, 1)) == ["pad", "conv", "bias"]
    assert names("Conv", x, w, layout="NHWC") == ["conv"]
    pad, conv, bias = stages("Conv", x, w, b, layout="NHWC", pads=(1, 1, 1, 1))
    assert pad.shape == (1, 10, 10, 4)
    assert isinstance(conv.op, Compute)
    assert conv.op.reduction is not None
    assert [a.name.lstrip("$") for a in conv.op.axes] == ["n", "oh", "ow", "oc"]
    assert [a.name.lstrip("$") for a in conv.op.reduction.axes] == ["kh", "kw", "ic"]
    assert isinstance(conv.op.body, Binary)
    assert conv.op.body.op is BinaryOp.MUL
    assert isinstance(conv.op.body.lhs, Load)
    assert isinstance(conv.op.body.rhs, Load)
    assert (conv.op.body.lhs.tensor, conv.op.body.rhs.tensor.name) == (pad, "x1")
    assert bias.producers[0] is conv


def test_depthwise_convolution_has_one_inner_channel() -> None:
    (conv,) = stages("Conv", (1, 8, 8, 4), (4, 1, 3, 3), layout="NHWC", group=4)
    assert isinstance(conv.op, Compute)
    assert conv.op.reduction is not None
    assert [a.extent for a in conv.op.reduction.axes] == [3, 3, 1]


def test_stages_of_matmul_and_softmax() -> None:
    (matmul,) = stages("MatMul", (2, 3, 4), (4, 5))
    assert isinstance(matmul.op, Compute)
    assert [a.name.lstrip("$") for a in matmul.op.all_axes] == ["b0", "m", "n", "k"]
    assert names("Gemm", (3, 4), (4, 5), (5,)) == ["matmul", "bias"]
    assert names("Softmax", (3, 4)) == ["max", "exp", "sum", "inverse", "softmax"]


LAID_OUT: list[tuple[str, tuple[tuple[int, ...], ...], dict[str, Any]]] = [
    ("Conv", ((2, 4, 8, 7), (6, 2, 3, 3), (6,)), {"group": 2, "strides": (2, 1), "pads": (1, 0, 1, 2)}),
    ("Conv", ((2, 4, 9), (6, 4, 3)), {"auto_pad": "SAME_LOWER", "strides": (2,)}),
    ("Conv", ((1, 2, 4, 5, 6), (3, 2, 2, 2, 2)), {}),
    ("ConvTranspose", ((1, 4, 5, 4), (4, 3, 3, 2)), {"strides": (2, 3), "pads": (1, 0, 1, 1)}),
    ("MaxPool", ((2, 3, 8, 7),), {"kernel_shape": (3, 2), "strides": (2, 2), "ceil_mode": 1, "pads": (1, 0, 1, 0)}),
    ("AveragePool", ((2, 3, 8, 7),), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}),
    ("GlobalAveragePool", ((2, 3, 8, 7),), {}),
    ("GlobalMaxPool", ((2, 3, 8, 7),), {}),
    ("GlobalLpPool", ((2, 3, 8, 7),), {"p": 3}),
    ("BatchNormalization", ((2, 3, 8, 7), (3,), (3,), (3,), (3,)), {"epsilon": 100.0}),
    ("InstanceNormalization", ((2, 3, 8, 7), (3,), (3,)), {}),
    ("LRN", ((2, 5, 4, 3),), {"size": 3}),
    ("DepthToSpace", ((2, 8, 3, 5),), {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", ((2, 3, 4, 6),), {"blocksize": 2}),
]


@pytest.mark.parametrize(("op", "shapes", "attributes"), LAID_OUT)
def test_channels_last_is_the_same_transposed(
    op: str, shapes: tuple[tuple[int, ...], ...], attributes: dict[str, Any]
) -> None:
    x, *rest = (random(shape, seed=i) for i, shape in enumerate(shapes))
    (first,) = by_definition(op, [x, *rest], attributes)
    (last,) = by_definition(op, [np.moveaxis(x, 1, -1).copy(), *rest], attributes | {"layout": "NHWC"})
    assert_close([np.moveaxis(last, -1, 1)], [first])


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_channels_last_keeps_the_order_of_its_scales(mode: str) -> None:
    x, scales = random((1, 3, 4, 5)), np.array([1, 1, 2, 1.5], np.float32)
    (first,) = by_definition("Resize", [x, None, scales], {"mode": mode})
    (last,) = by_definition("Resize", [np.moveaxis(x, 1, -1).copy(), None, scales], {"mode": mode, "layout": "NHWC"})
    assert_close([np.moveaxis(last, -1, 1)], [first])


Row: TypeAlias = "tuple[str, list[Array | None], dict[str, Any], list[list[str | None]]]"
IMAGE: list[str | None] = ["n", None, "h", "w"]


def symbolic_rows() -> list[Row]:
    x, w = random((2, 4, 8, 7)), random((6, 4, 3, 3), seed=1)
    a, b = random((2, 5, 6)), random((6, 3), seed=2)
    window = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 0, 1)}
    scales = np.array([1, 1, 1.5, 2], np.float32)

    def ints(*values: int) -> Array:
        return np.array(values, np.int64)

    return [
        ("Conv", [x, w], {"strides": (2, 1), "pads": (1, 1, 1, 1)}, [IMAGE]),
        ("Conv", [x, w], {"auto_pad": "SAME_UPPER", "strides": (2, 3)}, [IMAGE]),
        ("Conv", [x, random((4, 1, 3, 3))], {"group": 4}, [IMAGE]),
        ("ConvTranspose", [x, random((4, 3, 3, 3))], {"strides": (2, 2), "pads": (1, 1, 1, 1)}, [IMAGE]),
        ("MaxPool", [x], {**window, "ceil_mode": 1}, [IMAGE]),
        ("AveragePool", [x], window, [IMAGE]),
        ("AveragePool", [x], {**window, "ceil_mode": 1, "count_include_pad": 1}, [IMAGE]),
        ("GlobalAveragePool", [x], {}, [IMAGE]),
        ("InstanceNormalization", [x, random((4,)), random((4,))], {}, [IMAGE]),
        ("GroupNormalization", [x, random((4,)), random((4,))], {"num_groups": 2}, [IMAGE]),
        ("LayerNormalization", [a, random((6,))], {}, [["n", "s", None]]),
        ("Softmax", [a], {}, [["n", "s", "t"]]),
        ("MatMul", [a, b], {}, [["n", "m", "k"], ["k", "p"]]),
        ("Gemm", [a[0], b, random((3,))], {}, [["m", None], [None, "p"], ["p"]]),
        ("ReduceMean", [a, ints(0, 2)], {}, [["n", "s", "t"]]),
        ("ArgMax", [a], {"axis": -1}, [["n", "s", "t"]]),
        ("CumSum", [a, np.array(1)], {}, [["n", "s", None]]),
        ("Add", [a, random((5, 1))], {}, [["n", "s", "t"], ["s", None]]),
        ("Concat", [a, random((2, 3, 6))], {"axis": 1}, [["n", "s", None], ["n", "u", None]]),
        ("Slice", [a, ints(1, -3), ints(-1, 2**63 - 1), ints(1, 2)], {}, [["n", "s", "t"]]),
        ("Slice", [a, ints(-1), ints(-(2**63)), ints(1), ints(-2)], {}, [["n", "s", "t"]]),
        ("Split", [a], {"axis": 1, "num_outputs": 2}, [["n", "s", None]]),
        ("Transpose", [a], {"perm": (2, 0, 1)}, [["n", "s", "t"]]),
        ("Reshape", [a, ints(0, -1, 3, 2)], {}, [["n", "s", None]]),
        ("Reshape", [a, ints(-1, 3)], {}, [["n", "s", None]]),
        ("Tile", [a, ints(1, 2, 1)], {}, [["n", "s", "t"]]),
        ("Pad", [a, ints(0, 1, 2, 0, 3, 1)], {"mode": "reflect"}, [["n", "s", "t"]]),
        ("Gather", [a, np.array([[0, -1]])], {"axis": 1}, [["n", "s", "t"], [None, None]]),
        ("Resize", [x, None, scales], {"mode": "linear"}, [IMAGE]),
        ("Resize", [x, None, scales], {"mode": "cubic", "coordinate_transformation_mode": "align_corners"}, [IMAGE]),
        ("Resize", [x, None, scales], {"coordinate_transformation_mode": "pytorch_half_pixel"}, [IMAGE]),
        ("DepthToSpace", [x], {"blocksize": 2}, [IMAGE]),
        ("Trilu", [a], {}, [["n", "s", "t"]]),
    ]


@pytest.mark.parametrize("row", symbolic_rows(), ids=lambda row: row[0])
def test_symbols_bound_at_run_time_give_the_static_answer(row: Row) -> None:
    op, inputs, attributes, symbolic = row
    static = by_definition(op, inputs, attributes)
    assert_close(by_definition(op, inputs, attributes, symbolic=symbolic), static)
