"""Shape arithmetic: the definitions evaluated on dims."""

from typing import Any

import numpy as np
import pytest

from compiler_service.compiler.tensor_expr.assumptions import Assumption, assumptions
from compiler_service.compiler.tensor_expr.extents import fitting, joint_extent
from compiler_service.compiler.tensor_expr.registry import infer
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr, maximum
from shared_ir.expr.dim import Dim, as_dim, dims_text, evaluate, parse_dim, symbol
from shared_ir.graph.ir import Attribute

B, H, W = symbol("b"), symbol("h"), symbol("w")
ANY, BATCH = joint_extent(H, W), joint_extent(B, W)


def known(*values: Dim | float, dtype: DType = DType.INT64) -> Tensor:
    """A vector of known elements."""
    array = np.empty(len(values), object)
    array[:] = values
    return placeholder("known", array.shape, dtype, array)


def scalar(value: Dim | float, dtype: DType = DType.INT64) -> Tensor:
    array = np.empty((), object)
    array[()] = value
    return placeholder("scalar", (), dtype, array)


def image(*shape: Dim) -> Tensor:
    return placeholder("x", shape, DType.FLOAT32)


def run(op: str, *inputs: Tensor | None, **attributes: Any) -> Tensor:
    """The first output, as the next node sees it: a placeholder with what is known of it."""
    y = infer(op, inputs, attributes)[0]
    assert y is not None
    return placeholder(op, y.shape, y.dtype, y.value)


def texts(x: Tensor) -> list[str]:
    assert x.value is not None
    return [dims_text([v]) if isinstance(v, Expr) else str(v) for v in x.value.reshape(-1)]


def test_flatten_by_shape_arithmetic() -> None:
    """What exporters write for ``x.reshape(x.shape[0], -1)``."""
    x = image(B, 3, H, W)
    batch = run("Gather", run("Shape", x), scalar(0), axis=0)
    target = run("Concat", run("Unsqueeze", batch, known(0)), known(-1), axis=0)
    assert texts(target) == ["b", "-1"]
    assert run("Reshape", x, target).shape == (B, as_dim(H * W * 3))


def test_attention_heads() -> None:
    x = image(B, symbol("s"), 768)
    shape = run("Shape", x)
    heads = run("Concat", run("Slice", shape, known(0), known(2)), known(12, 64), axis=0)
    split = run("Reshape", x, heads)
    assert split.shape == (B, symbol("s"), 12, 64)
    assert run("Reshape", split, known(0, 0, -1)).shape == (B, symbol("s"), 768)


def test_doubling_by_floats() -> None:
    """Upsampling sizes computed by way of float32: Cast, Mul, Floor, Cast."""
    height = run("Gather", run("Shape", image(B, 3, H, W)), known(2))
    doubled = run("Mul", run("Cast", height, to=DType.FLOAT32), known(2.0, dtype=DType.FLOAT32))
    assert texts(run("Cast", run("Floor", doubled), to=DType.INT64)) == ["h * 2"]
    halved = run("Mul", run("Cast", height, to=DType.FLOAT32), known(0.5, dtype=DType.FLOAT32))
    assert texts(run("Cast", run("Ceil", halved), to=DType.INT64)) == ["(h + 1) // 2"]


def test_floats_that_round_are_not_known() -> None:
    height = run("Cast", known(H), to=DType.FLOAT32)
    assert run("Mul", height, known(0.1, dtype=DType.FLOAT32)).value is None
    assert run("Exp", height).value is None


def test_resize_to_the_size_of_another_tensor() -> None:
    x, other = image(B, 8, as_dim(H // 2), as_dim(W // 2)), image(B, 16, H, W)
    sizes = run(
        "Concat",
        run("Slice", run("Shape", x), known(0), known(2)),
        run("Slice", run("Shape", other), known(2), known(4)),
        axis=0,
    )
    assert run("Resize", x, None, None, sizes).shape == (B, 8, H, W)


def test_resize_by_a_quotient_of_dims() -> None:
    scale = run("Div", run("Cast", known(as_dim(H * 3)), to=DType.FLOAT32), run("Cast", known(H), to=DType.FLOAT32))
    scales = run("Concat", known(1.0, dtype=DType.FLOAT32), scale, axis=0)
    assert run("Resize", image(B, H), None, scales).shape == (B, as_dim(H * 3))


def test_division_truncates_only_where_it_is_a_floor() -> None:
    assert texts(run("Div", known(H, -7), known(2, 2))) == ["h // 2", "-3"]
    assert run("Div", known(as_dim(H - 3)), known(2)).value is None
    assert texts(run("Mod", known(H), known(4), fmod=1)) == ["h % 4"]


def test_comparisons_are_decided_or_unknown() -> None:
    assert texts(run("Equal", known(H, 3), known(-1, 3))) == ["False", "True"]
    assert run("Equal", known(H), known(3)).value is None
    chosen = run("Where", run("Equal", known(-1, H), known(-1, -1)), known(5, 6), known(-1, H))
    assert texts(chosen) == ["5", "h"]


def test_reductions_over_dims() -> None:
    assert texts(run("ReduceProd", run("Shape", image(B, 3, H)), keepdims=0)) == ["b * h * 3"]
    assert texts(run("Size", image(B, 3, H))) == ["b * h * 3"]


def test_values_keep_their_integer_type() -> None:
    small = run("Cast", known(H), to=DType.INT32)
    assert (small.dtype, texts(small)) == (DType.INT32, ["h"])
    assert texts(run("Add", known(2**31 - 1, dtype=DType.INT32), known(1, dtype=DType.INT32))) == [str(-(2**31))]


CONVOLUTION = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "expected"),
    [
        ("Conv", (image(B, 3, H, W), image(8, 3, 3, 3)), CONVOLUTION, "b, 8, (h + 1) // 2, (w + 1) // 2"),
        ("Conv", (image(B, 3, H, W), image(8, 3, 3, 3)), {"auto_pad": "SAME_UPPER"}, "b, 8, h, w"),
        (
            "MaxPool",
            (image(B, 8, H, W),),
            {"kernel_shape": (2, 2), "strides": (2, 2)},
            "b, 8, max(1, h // 2), max(1, w // 2)",
        ),
        (
            "MaxPool",  # of what a pool left, which has one row at least
            (image(B, 8, as_dim(maximum(H // 2, 1)), as_dim(maximum(W // 2, 1))),),
            {"kernel_shape": (2, 2), "strides": (2, 2)},
            "b, 8, max(1, max(1, h // 2) // 2), max(1, max(1, w // 2) // 2)",
        ),
        ("ConvTranspose", (image(B, 3, H, W), image(3, 8, 2, 2)), {"strides": (2, 2)}, "b, 8, h * 2, w * 2"),
        ("GlobalAveragePool", (image(B, 8, H, W),), {}, "b, 8, 1, 1"),
        ("MatMul", (image(B, H, 64), image(64, 5)), {}, "b, h, 5"),
        ("MatMul", (image(B, 12, H, 64), image(B, 12, 64, H)), {}, "b, 12, h, h"),
        ("Add", (image(B, 1, W), image(H, 1)), {}, "b, h, w"),
        ("Add", (image(B, W), image(7)), {}, "b, 7"),
        ("Concat", (image(B, H), image(B, 3), image(B, W)), {"axis": 1}, "b, h + w + 3"),
        ("Slice", (image(B, H), known(1), known(2**63 - 1), known(1)), {}, "b, max(0, h - 1)"),
        ("Slice", (image(B, H), known(0), known(-1), known(1)), {}, "b, max(0, h - 1)"),
        ("Slice", (image(B, H), known(0), known(2**31 - 1), known(1), known(2)), {}, "b, (h + 1) // 2"),
        ("Pad", (image(B, H), known(0, 1, 0, 2)), {}, "b, h + 3"),
        ("Tile", (image(B, H), known(1, 3)), {}, "b, h * 3"),
        ("Expand", (image(1, H), known(B, 1)), {}, "b, h"),
        ("Flatten", (image(B, 3, H, W),), {"axis": 1}, "b, h * w * 3"),
        ("Split", (image(B, 6, H),), {"axis": 1, "num_outputs": 2}, "b, 3, h"),
        ("Range", (scalar(0), scalar(H), scalar(2)), {}, "(h + 1) // 2"),
        ("DepthToSpace", (image(B, 8, H, W),), {"blocksize": 2}, "b, 2, h * 2, w * 2"),
        (
            "Resize",
            (image(B, 3, H, W), None, known(1.0, 1.0, 2.0, 0.5, dtype=DType.FLOAT32)),
            {},
            "b, 3, h * 2, w // 2",
        ),
    ],
)
def test_symbolic_shapes(op: str, inputs: tuple[Tensor | None, ...], attributes: dict[str, Any], expected: str) -> None:
    y = infer(op, inputs, attributes)[0]
    assert y is not None
    assert y.shape == tuple(parse_dim(text) for text in split_dims(expected)), dims_text(y.shape)


def split_dims(text: str) -> list[str]:
    """Split at commas outside of parentheses."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts]


@pytest.mark.parametrize("extent", range(1, 40))
@pytest.mark.parametrize("ceil_mode", [0, 1])
def test_pool_sizes_at_every_extent(extent: int, ceil_mode: int) -> None:
    attributes: dict[str, Attribute] = {"kernel_shape": (3,), "strides": (2,), "pads": (1, 1), "ceil_mode": ceil_mode}
    symbolic, static = (infer("MaxPool", (image(1, 1, d),), attributes)[0] for d in (H, extent))
    assert symbolic is not None
    assert static is not None
    assert evaluate(symbolic.shape[2], {"h": extent}) == static.shape[2]


def test_shapes_that_depend_on_data_are_refused() -> None:
    with pytest.raises(IngotError) as caught:
        infer("Reshape", (image(B, 6), placeholder("target", (2,), DType.INT64)), {})
    assert caught.value.code is ErrorCode.UNSUPPORTED_ATTRIBUTE
    assert caught.value.field == "shape"
    assert "known at compile time" in str(caught.value)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "code"),
    [
        ("Add", (image(2, 3), image(4)), {}, ErrorCode.TYPE_MISMATCH),
        ("Add", (image(2), known(1)), {}, ErrorCode.TYPE_MISMATCH),
        ("Add", (image(2),), {}, ErrorCode.TYPE_MISMATCH),
        ("Add", (image(2), None), {}, ErrorCode.TYPE_MISMATCH),
        ("MatMul", (image(2, 3), image(4, 5)), {}, ErrorCode.TYPE_MISMATCH),
        ("Conv", (image(1, 3, 8, 8), image(8, 4, 3, 3)), {}, ErrorCode.TYPE_MISMATCH),
        ("Conv", (image(1, 4, 8, 8), image(6, 2, 3, 3)), {"group": 4}, ErrorCode.TYPE_MISMATCH),
        ("Conv", (image(1, 3, 8, 8), image(8, 3, 3, 3), image(7)), {}, ErrorCode.TYPE_MISMATCH),
        ("Conv", (image(1, 3, 8, 8), image(8, 3, 9, 10)), {}, ErrorCode.TYPE_MISMATCH),
        ("Conv", (image(1, 3, 8, 8), image(8, 3, 3, 3)), {"strides": (0, 1)}, ErrorCode.UNSUPPORTED_ATTRIBUTE),
        ("Conv", (image(1, 3, 8, 8), image(8, 3, 3, 3)), {"kernel_shape": (5, 5)}, ErrorCode.UNSUPPORTED_ATTRIBUTE),
        ("ConvTranspose", (image(1, 3, 8, 8), image(4, 3, 3, 3)), {}, ErrorCode.TYPE_MISMATCH),
        ("BatchNormalization", (image(1, 3, 8), image(3), image(3), image(3), image(2)), {}, ErrorCode.TYPE_MISMATCH),
        ("Split", (image(6), known(2, 3)), {}, ErrorCode.TYPE_MISMATCH),
        ("DepthToSpace", (image(1, 6, 2, 2),), {"blocksize": 2}, ErrorCode.TYPE_MISMATCH),
        (
            "GroupNormalization",
            (image(1, 6, 2), image(6), image(6)),
            {"num_groups": 4},
            ErrorCode.UNSUPPORTED_ATTRIBUTE,
        ),
        ("Reshape", (image(2, 3), known(4, 2)), {}, ErrorCode.TYPE_MISMATCH),
        ("Transpose", (image(2, 3),), {"perm": (0, 0)}, ErrorCode.TYPE_MISMATCH),
        ("Conv", (image(1, 3, 8, 8), image(4, 3, 3, 3), image(8)), {}, ErrorCode.TYPE_MISMATCH),
        ("LayerNormalization", (image(2, 1), image(4)), {}, ErrorCode.TYPE_MISMATCH),
        ("Concat", (image(2, 3), image(3, 3)), {"axis": 1}, ErrorCode.TYPE_MISMATCH),
        ("Softmax", (image(2),), {"axis": 4}, ErrorCode.TYPE_MISMATCH),
        ("Softmax", (image(2),), {"axes": (1,)}, ErrorCode.UNSUPPORTED_ATTRIBUTE),
        ("Cast", (image(2),), {}, ErrorCode.UNSUPPORTED_ATTRIBUTE),
        ("Cast", (image(2),), {"to": DType.STRING}, ErrorCode.UNSUPPORTED_ATTRIBUTE),
        ("Pad", (image(2), known(1, 1)), {"mode": "cyclic"}, ErrorCode.UNSUPPORTED_ATTRIBUTE),
        ("Neg", (placeholder("s", (2,), DType.STRING),), {}, ErrorCode.UNSUPPORTED_DTYPE),
        ("NoSuchOperator", (), {}, ErrorCode.UNSUPPORTED_OPERATOR),
    ],
)
def test_refusals(op: str, inputs: tuple[Tensor | None, ...], attributes: dict[str, Any], code: ErrorCode) -> None:
    with pytest.raises(IngotError) as caught:
        infer(op, inputs, attributes)
    assert caught.value.code is code
    assert caught.value.received
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "expected"),
    [
        ("Add", (image(B, H), image(B, H)), {}, ()),
        ("Add", (image(B, 1), image(1, H)), {}, ()),
        ("Add", (image(B, H), image(B, W)), {}, (fitting(H, ANY), fitting(W, ANY))),
        ("Add", (image(B, 7), image(B, W)), {}, (fitting(W, 7),)),
        ("Add", (image(B, H + 2), image(B, W)), {}, (fitting(W, as_dim(H + 2)),)),
        ("Add", (image(B, H + 2), image(B, W * 2)), {}, ((as_dim(W * 2), as_dim(H + 2)),)),
        ("MatMul", (image(B, H), image(W, 5)), {}, ((W, H),)),
        ("Concat", (image(B, H), image(W, H)), {"axis": 1}, ((W, B),)),
        ("Softmax", (image(B, H),), {}, ()),
        ("Reshape", (image(B, H), known(B, 6)), {}, ((as_dim(B * H), as_dim(B * 6)), (H, 6, True))),
        ("Reshape", (image(B, H), known(0, -1)), {}, ()),
        ("Split", (image(B, H), known(2, 3)), {"axis": 1}, ((H, 5), (H, 2, True))),
        ("Conv", (image(B, H, 8, 8), image(8, 3, 3, 3)), {"group": 2}, ((H, 6),)),
        ("Conv", (image(B, H, 8, 8), image(8, 3, 3, 3)), {}, ((H, 3),)),
        ("MatMul", (image(B, 2, H), image(W, H, 5)), {}, (fitting(B, BATCH), fitting(W, BATCH))),
        ("Gemm", (image(B, 3), image(3, 5), image(W, 5)), {"alpha": 1.0, "beta": 1.0}, (fitting(W, B),)),
        ("Einsum", (image(H), image(W)), {"equation": "i,i->"}, (fitting(H, ANY), fitting(W, ANY))),
        ("Expand", (image(B, H), known(B, W)), {}, (fitting(H, ANY), fitting(W, ANY))),
        ("Conv", (image(B, 3, H, W), image(8, 3, 3, 3)), CONVOLUTION, ()),
        ("Conv", (image(B, 3, 8, 8), image(8, 3, 3, 3), image(W)), {}, ((W, 8),)),
        ("InstanceNormalization", (image(B, 4, 5), image(H), image(W)), {}, ((H, 4), (W, 4))),
        ("Einsum", (image(4, H),), {"equation": "ii->i"}, (fitting(H, 4), (H, 4))),
    ],
)
def test_assumptions(
    op: str, inputs: tuple[Tensor, ...], attributes: dict[str, Any], expected: tuple[tuple[Any, ...], ...]
) -> None:
    outputs = [y for y in infer(op, inputs, attributes) if y is not None]
    assert set(assumptions(outputs)) == {Assumption(*values) for values in expected}
