"""Numbers of the run that say which axis, how many elements or which image: what is none of them ends the run by name."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import compile_model
from runtime_service.loading.loader import load_model
from shared_ir.errors import ErrorCode, IngotError
from tests.cases import every

Array = np.ndarray

X = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
IMAGE = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)


def ran(body: str, opt_level: int, **feeds: Array) -> Array:
    """The first output of a model with symbolic extents alone, whose inputs are ``feeds``."""
    inputs = ", ".join(f"{_type(n, x)} {n}" for n, x in feeds.items())
    head = '<ir_version: 10, opset_import: ["" : 21]> g'
    model: onnx.ModelProto = parser.parse_model(f"{head} ({inputs}) => (float[] y) {{ {body} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    source = ModelSource.of(model.SerializeToString())
    artifact = compile_model(source, host_target(), CompileOptions(opt_level=opt_level), workers=0)
    with load_model(artifact, threads=1) as loaded:
        return np.asarray(dict(loaded.run(feeds))["y"])


def _type(name: str, x: Array) -> str:
    is_float = x.dtype.kind == "f"
    extents = ",".join(f"{name}{axis}" if is_float else str(extent) for axis, extent in enumerate(x.shape))
    return ("float" if is_float else "int64") + (f"[{extents}]" if extents else "")


TAKEN: tuple[tuple[str, int, Array], ...] = (
    ("y, z = TopK(x, k)", 0, X[..., :0]),
    ("y, z = TopK(x, k)", 2, X[..., ::-1]),
    ("y = CumSum(x, k)", -3, X.cumsum(0)),
    ("y = ReduceSum(x, k)", 2, X.sum(2, keepdims=True)),
)


@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize(("body", "number", "wanted"), TAKEN)
def test_numbers_within(body: str, number: int, wanted: Array, opt_level: int) -> None:
    np.testing.assert_array_equal(ran(body, opt_level, x=X, k=np.array([number])), wanted)


REFUSED = (
    (
        "y, z = TopK(x, k)",
        (3,),
        "more elements than there are along an axis of 'x', or less than none, where 0 is one that fits; expected 0, received 3",
    ),
    (
        "y, z = TopK(x, k)",
        (-1,),
        "an axis of 'x', or less than none, where 0 is one that fits; expected 0, received -1",
    ),
    ("y = CumSum(x, k)", (3,), "axes that are not within -3 and 2"),
    ("y = CumSum(x, k)", (-4,), "must be at least 0"),
    ("y = ReduceMax(x, k)", (5,), "axes that are not within -3 and 2"),
    ("y = ReduceSum(x, k)", (0, 3), "axes that are not within -3 and 2"),
    ("y = Squeeze(x, k)", (4,), "axes that are not within -3 and 2"),
    ("y = Unsqueeze(x, k)", (0, 5), "axes that are not within -5 and 4"),
    ("y = Unsqueeze(x, k)", (1, 1), "an axis is given twice"),
    ("y = Unsqueeze(x, k)", (1, -4), "an axis is given twice"),
)


@pytest.mark.sampled
@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize(("body", "numbers", "message"), every(REFUSED, quick=REFUSED[::3]))
def test_numbers_beyond(body: str, numbers: tuple[int, ...], message: str, opt_level: int) -> None:
    with pytest.raises(IngotError, match=message) as error:
        ran(body, opt_level, x=X[:, :1], k=np.array(numbers))
    assert error.value.code is ErrorCode.INVALID_ARGUMENT


PADDED = 'y = Pad<mode: string = "{}">(x, k)'
RULED_OUT: tuple[tuple[str, dict[str, Array], str], ...] = (
    (
        "s = Constant<value_ints: ints = [0]>() e = Constant<value_ints: ints = [2]>() y = Slice(x, s, e, s, k)",
        {"x": X, "k": np.array([0])},
        "elements of 'k' that are 0",
    ),
    (
        "z = Range(a, b, c) y = Cast<to: int = 1>(z)",
        {n: np.array(v) for n, v in zip("abc", (0, 5, 0), strict=True)},
        "elements of 'c' that are 0",
    ),
    (
        "y = Range(a, b, c)",
        {n: np.array(v, np.float32) for n, v in zip("abc", (0, np.nan, 1), strict=True)},
        "elements of 'b' that are infinite or no number",
    ),
    (
        "s = Constant<value_ints: ints = [0, -1]>() y = Reshape(x, s)",
        {"x": X[:0]},
        "a size divided by x0: x0 must be at least 1",
    ),
    ("y = Reshape(x, k)", {"x": X[:0], "k": np.array([0, -1])}, "must be at least 0; expected at least 0, received -1"),
    (
        "y = Reshape(x, k)",
        {"x": X[:0], "k": np.array([-1, -1])},
        "must be at least 0; expected at least 0, received -1",
    ),
    ("y = STFT(x, k)", {"x": X, "k": np.array(0)}, "elements of 'k' that are not at least 1"),
    ('y = STFT(x, k, "", n)', {"x": X, "k": np.array(1), "n": np.array(3)}, "longer than the x1 of 'x'"),
    ("y = DFT(x, k)", {"x": X, "k": np.array(0)}, "elements of 'k' that are not at least 1"),
    (
        "z = NonMaxSuppression(x, s, n, t) y = Cast<to: int = 1>(z)",
        {
            "x": np.ones((1, 2, 4), np.float32),
            "s": np.ones((1, 1, 2), np.float32),
            "n": np.array(2),
            "t": np.array(1.5, np.float32),
        },
        "elements of 't' that are not within 0 and 1",
    ),
    *(
        (PADDED.format(mode), {"x": X, "k": np.array([0, 0, -2, 0, 0, 3])}, "than negative widths leave")
        for mode in ("reflect", "edge", "wrap")
    ),
    (PADDED.format("reflect"), {"x": X, "k": np.array([0, 0, -1, 0, 0, 1])}, "than negative widths leave"),
)


@pytest.mark.sampled
@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize(("body", "feeds", "message"), RULED_OUT)
def test_values_that_operators_rule_out(body: str, feeds: dict[str, Array], message: str, opt_level: int) -> None:
    with pytest.raises(IngotError, match=message) as error:
        ran(body, opt_level, **feeds)
    assert error.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.sampled
@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("image", [-1.0, 1.0, 7.0])
def test_images_beyond_the_batch(image: float, opt_level: int) -> None:
    rois = np.array([[image, 0, 0, 2, 2]], np.float32)
    with pytest.raises(IngotError, match="images beyond the batch of 'x'"):
        ran("y = MaxRoiPool<pooled_shape: ints = [1, 1]>(x, r)", opt_level, x=IMAGE, r=rois)
    rois[0, 0] = 0
    found = ran("y = MaxRoiPool<pooled_shape: ints = [1, 1]>(x, r)", opt_level, x=IMAGE, r=rois)
    np.testing.assert_array_equal(found, [[[[10]]]])
