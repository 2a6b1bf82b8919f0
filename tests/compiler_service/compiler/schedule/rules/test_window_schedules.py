"""Windows over images of every size: edges, tails, overlapping tiles."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.loop_ir.ir import BufferLoad, Ramp, Shuffle, expressions_of, walk_statements
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.apply import apply_schedule
from compiler_service.compiler.schedule.language.schedule import Step
from compiler_service.compiler.schedule.language.steps import Inline, Overlap, Peel, Reorder, Split, Unroll, Vectorize
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.schedule.model.analysis import KernelView
from compiler_service.compiler.schedule.records import from_json, to_json
from compiler_service.compiler.schedule.rules.window import window_schedule
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.operators.convolution import conv, conv_transpose
from compiler_service.compiler.tensor_expr.operators.folding import sum_taps
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.errors import IngotError
from shared_ir.expr import Expr, lift, logical_and, maximum, select, walk
from shared_ir.expr.dim import Dim, as_dim, symbol
from tests.cases import every
from tests.compiler_service.compiler.schedule.kernels import (
    AVX512,
    ONE_QUICK_TARGET,
    TARGETS,
    check,
    interpreted,
    random_feeds,
)

F32 = DType.FLOAT32
n, h, w = symbol("n"), symbol("h"), symbol("w")


def window(images: Dim, height: Dim, width: Dim, channels: Dim, kernel: int, stride: int, pool: bool = False) -> Tensor:
    """A depthwise convolution with bias and ReLU, or a max pool, "same" padded, channels last."""
    pad = kernel // 2
    x = placeholder("x", (images, height, width, channels), F32)
    weight, bias = placeholder("w", (channels, kernel, kernel), F32), placeholder("b", (channels,), F32)
    empty = lift(float("-inf") if pool else 0.0, F32)

    def padded(b: Expr, i: Expr, j: Expr, c: Expr) -> Expr:
        rows = logical_and(i >= pad, i < lift(height) + pad)
        return select(logical_and(rows, logical_and(j >= pad, j < lift(width) + pad)), x[b, i - pad, j - pad, c], empty)

    source = compute((images, lift(height) + 2 * pad, lift(width) + 2 * pad, channels), padded, name="pad")
    shape = (images, *(as_dim((lift(d) + 2 * pad - kernel) // stride + 1) for d in (height, width)), channels)

    def step(b: Expr, i: Expr, j: Expr, c: Expr, kh: Expr, kw: Expr) -> Expr:
        value = source[b, i * stride + kh, j * stride + kw, c]
        return value if pool else value * weight[c, kh, kw]

    axes, reduced = ("n", "oh", "ow", "c"), ("kh", "kw")
    op = ReduceOp.MAX if pool else ReduceOp.SUM
    found = reduce(op, shape, (kernel, kernel), step, name="window", axes=axes, reduced=reduced)
    if pool:
        return found
    return compute(shape, lambda *i: maximum(found[i] + bias[i[3]], 0.0), name="relu", axes=axes)


def line(width: Dim, channels: int, kernel: int) -> Tensor:
    """A depthwise convolution of a signal, unpadded."""
    x, weight = placeholder("x", (width, channels), F32), placeholder("w", (channels, kernel), F32)
    shape = (as_dim(lift(width) - (kernel - 1)), channels)
    return reduce(
        ReduceOp.SUM, shape, (kernel,), lambda i, c, k: x[i + k, c] * weight[c, k], name="conv", axes=("ow", "c")
    )


STATIC = [
    window(1, 9, 20, 40, 3, 1),
    window(2, 6, 7, 24, 5, 1),
    window(1, 11, 17, 8, 3, 2),
    window(1, 5, 33, 16, 5, 2),
    window(1, 3, 4, 70, 7, 1),
    window(1, 12, 12, 20, 3, 2, pool=True),
    window(2, 7, 9, 40, 2, 2, pool=True),
    window(1, 6, 5, 20, 3, 3),
    window(1, 4, 4, 900, 3, 4),
    line(40, 24, 4),
    line(9, 3, 9),
]
DYNAMIC = [
    (window(n, h, w, 24, 3, 1), [{"n": 1, "h": 2, "w": 1}, {"n": 2, "h": 5, "w": 9}, {"n": 1, "h": 3, "w": 40}]),
    (window(1, h, w, 40, 5, 2), [{"h": 1, "w": 2}, {"h": 4, "w": 13}, {"h": 7, "w": 37}]),
    (window(1, h, w, 16, 3, 2, pool=True), [{"h": 3, "w": 3}, {"h": 9, "w": 24}]),
    (window(1, 4, w, symbol("c"), 3, 1), [{"w": 5, "c": 3}, {"w": 12, "c": 37}]),
    (line(w, 20, 3), [{"w": 3}, {"w": 30}]),
]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize("case", range(len(STATIC)))
def test_windows_of_known_sizes(case: int, target: str) -> None:
    output, placeholders = coalesce(STATIC[case])
    constants = frozenset(new for old, new in placeholders.items() if old.name == "w")
    check(output, {}, TARGETS[target], constants, after_passes=True)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize("case", range(len(DYNAMIC)))
def test_windows_of_any_size(case: int, target: str) -> None:
    tensor, sizes = DYNAMIC[case]
    output, placeholders = coalesce(tensor)
    known = (new for old, new in placeholders.items() if old.name == "w" and all(isinstance(d, int) for d in new.shape))
    constants = frozenset(known)
    for symbols in sizes:
        for after_passes in (False, True):
            check(output, symbols, TARGETS[target], constants, after_passes=after_passes)


@pytest.mark.parametrize(("channels", "vectors"), [(64, 4), (384, 24), (400, 13), (2000, 21)])
def test_windows_that_share_nothing_are_read_in_long_pieces(channels: int, vectors: int) -> None:
    output, _ = coalesce(window(1, 8, 8, channels, 2, 2, pool=True))
    schedule = window_schedule(KernelView.of(output, frozenset()), AVX512)
    assert schedule is not None
    sizes = [s.factor for s in schedule if isinstance(s, Split) and s.axis == "c"]
    assert max(sizes) == vectors * 16
    assert not any(isinstance(s, Unroll) and s.loop == "ow" for s in schedule)


def test_unknown_widths_are_peeled_and_known_ones_are_not() -> None:
    def steps(width: Dim) -> set[type]:
        found = window_schedule(KernelView.of(coalesce(window(1, 8, width, 24, 3, 1))[0], frozenset()), AVX512)
        assert found is not None
        assert from_json(to_json(found)) == found
        return {type(s) for s in found}

    assert {Peel, Overlap} <= steps(w)
    assert Peel not in steps(32)


def shifted(width: Dim) -> Tensor:
    x = placeholder("x", (width,), F32)
    inner = compute((width,), lambda i: select(i >= 2, x[maximum(i - 2, 0)], lift(0.0, F32)), name="shift")
    return compute((width,), lambda i: inner[i] + x[i], name="sum", axes=("i",))


@pytest.mark.parametrize("extent", [1, 4, 5, 9, 16])
@pytest.mark.parametrize("step", [Overlap, Peel])
def test_tiles_cover_every_element(step: type, extent: int) -> None:
    for width, symbols in ((extent, {}), (w, {"w": extent})):
        output = shifted(width)
        schedule = (Inline("shift"), Split("sum", "i", 4), Unroll("sum", "i"), step("sum", "i.4"))
        feeds = random_feeds(output, symbols)
        (wanted,) = evaluate([output], feeds, symbols)
        got = interpreted(output, feeds, symbols, AVX512, schedule, after_passes=True)
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ((Overlap("relu", "c"),), "outermost of their axis"),
        ((Split("relu", "c", 16), Split("relu", "c", 4), Peel("relu", "c.4")), "outermost of their axis"),
        ((Split("window", "c", 16), Overlap("window", "c.16")), "is a reduction"),
        ((Reorder("relu", ("n",)),), "every loop once"),
    ],
)
def test_what_cannot_overlap(schedule: tuple[Step, ...], message: str) -> None:
    with pytest.raises(IngotError, match=message):
        apply_schedule(window(1, 4, 4, 16, 3, 1), schedule)


@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize(("channels", "times", "stride"), [(16, 2, 1), (24, 2, 2), (8, 4, 1), (5, 2, 1)])
def test_several_outputs_of_each_channel(channels: int, times: int, stride: int, target: str) -> None:
    x = placeholder("x", (1, 6, 7, channels), F32)
    weight = placeholder("w", (channels * times, 1, 3, 3), F32)
    made = conv(x, weight, group=channels, pads=(1, 1, 1, 1), strides=(stride, stride), layout="NHWC")
    output, placeholders = coalesce(made)
    constants = frozenset(new for old, new in placeholders.items() if old.name == "w")
    check(output, {}, TARGETS[target], constants, after_passes=True)


def test_outputs_of_a_channel_share_a_vector() -> None:
    x, weight = placeholder("x", (6, 7, 32), F32), placeholder("w", (64, 3), F32)
    output = reduce(
        ReduceOp.SUM, (6, 5, 64), (3,), lambda i, j, c, k: x[i, j + k, c // 2] * weight[c, k], axes=("i", "j", "c")
    )
    schedule = default_schedule(output, frozenset({weight}), AVX512)
    assert any(isinstance(s, Vectorize) and s.loop == "c" for s in schedule)
    assert any(isinstance(s, Unroll) and s.loop == "j" for s in schedule)
    function = passes.run(lower("window", output, [x, weight], [], schedule, AVX512))
    values = [e for s in walk_statements(function.body) for own in expressions_of(s) for e in walk(own)]
    assert all(
        isinstance(e.indices[0], Ramp) for e in values if isinstance(e, BufferLoad) and e.buffer.name.startswith("x")
    )
    assert any(isinstance(e, Shuffle) for e in values)


@pytest.mark.sampled
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize(
    ("height", "width", "kernel"), every([(5, 40, 3), (4, 7, 3), (9, 33, 7), (2, 2, 5)], quick={(4, 7, 3)})
)
@pytest.mark.parametrize("known", every([True, False], quick={True}))
def test_windows_in_steps_of_one_slide_along_the_lanes(
    height: int, width: int, kernel: int, known: bool, target: str
) -> None:
    pad, sizes = kernel // 2, {} if known else {"h": height, "w": width}
    extents = (height, width) if known else (h, w)
    x = placeholder("x", (2, kernel * kernel, 3, *extents), F32)
    kind = {"kernel_shape": (kernel, kernel), "dilations": (1, 1), "pads": (pad,) * 4}
    output, _ = coalesce(sum_taps(x, **kind))
    schedule = default_schedule(output, frozenset(), TARGETS[target])
    assert any(isinstance(s, Vectorize) and s.loop == "ow" for s in schedule)
    for after_passes in (False, True):
        check(output, sizes, TARGETS[target], frozenset(), after_passes)


@pytest.mark.parametrize("sizes", [{"h": 3, "w": 5}, {"h": 1, "w": 20}])
def test_phases_of_a_transposed_convolution_do_not_slide(sizes: dict[str, int]) -> None:
    """Their weights are read along the phases in steps of one, the data along the pixels."""
    x, weight = placeholder("x", (1, 2, h, w), F32), placeholder("w", (2, 1, 3, 3), F32)
    output, _ = coalesce(conv_transpose(x, weight, strides=(2, 2)))
    for after_passes in (False, True):
        check(output, sizes, AVX512, frozenset(), after_passes)
