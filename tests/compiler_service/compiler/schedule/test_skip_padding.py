"""Turns of a window's loops that would read padding alone are left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.steps import SkipPadding
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.schedule.records import from_json, to_json
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.operators.movement import padded
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.errors import IngotError
from shared_ir.expr import Expr, lift
from shared_ir.expr.dim import Dim, symbol
from tests.compiler_service.compiler.schedule.kernels import (
    AVX512,
    ONE_QUICK_TARGET,
    TARGETS,
    arguments_of,
    interpreted,
    random_feeds,
)

F32 = DType.FLOAT32


def convolution(
    h: Dim, w: Dim, dilation: tuple[int, int], stride: int = 1, fill: float = 0.0, channels: int = 16
) -> Tensor:
    """3x3 over an image that keeps its size (with stride 1); padded with ``fill``."""
    x, weight = placeholder("x", (h, w, 4), F32), placeholder("w", (channels, 4, 3, 3), F32)
    around = (*dilation, 0)
    image = padded(x, around, around, lift(fill, F32), axes=("ih", "iw", "ic"))

    def body(i: Expr, j: Expr, o: Expr, kh: Expr, kw: Expr, c: Expr) -> Expr:
        return image[i * stride + kh * dilation[0], j * stride + kw * dilation[1], c] * weight[o, c, kh, kw]

    sizes = [d if isinstance(d, Expr) else -(-d // stride) for d in (h, w)]
    output = reduce(
        ReduceOp.SUM, (*sizes, channels), (3, 3, 4), body, axes=("oh", "ow", "oc"), reduced=("kh", "kw", "c")
    )
    return coalesce(output)[0]


def skipped(output: Tensor) -> list[tuple[str, str]]:
    steps = default_schedule(output, constants(output), AVX512)
    return [(s.loop, s.axis) for s in steps if isinstance(s, SkipPadding)]


def constants(output: Tensor) -> frozenset[Tensor]:
    return frozenset(t for t in arguments_of(output) if t.name == "w")


CASES = {
    "rows": (convolution(5, 9, (2, 1)), [("kh", "ih")]),
    "both": (convolution(7, 6, (4, 6)), [("kh", "ih"), ("kw", "iw")]),
    "longer than a tile": (convolution(3, 40, (1, 30)), [("kh", "ih"), ("kw", "iw")]),
    "stride": (convolution(12, 10, (4, 2), stride=2), [("kh", "ih")]),
    "columns of any number": (convolution(6, symbol("w"), (3, 3)), [("kh", "ih")]),
    "little padding": (convolution(60, 60, (1, 1)), []),
    "other fill": (convolution(5, 9, (4, 4), fill=1.0), []),
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
def test_what_is_left_out_adds_nothing(target: str, case: str) -> None:
    output, wanted = CASES[case]
    assert skipped(output) == wanted
    schedule = default_schedule(output, constants(output), TARGETS[target])
    assert from_json(to_json(schedule)) == schedule
    sizes = {"w": 11}
    feeds = random_feeds(output, sizes)
    got = interpreted(output, feeds, sizes, TARGETS[target], schedule, after_passes=True)
    np.testing.assert_allclose(got, evaluate([output], feeds, sizes)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("after_passes", [False, True])
def test_taps_that_meet_only_padding_are_not_multiplied(after_passes: bool) -> None:
    """They would make infinite weights show."""
    output = convolution(3, 2, (3, 2))
    feeds = random_feeds(output, {})
    (weight,) = constants(output)
    for outside in (0, 2):
        feeds[weight][:, :, outside, :] = feeds[weight][:, :, :, outside] = np.inf
    schedule = default_schedule(output, constants(output), AVX512)
    got = interpreted(output, feeds, {}, AVX512, schedule, after_passes=after_passes)
    (data,) = (feeds[t] for t in feeds if t.name == "x")
    wanted = data @ feeds[weight][:, :, 1, 1].T
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loop": "oh"}, "loop of its reduction"),
        ({"padded": "reduce"}, "not a sum of products"),
        ({"axis": "none"}, "no axis"),
    ],
)
def test_steps_that_do_not_fit(change: dict[str, str], message: str) -> None:
    output = convolution(5, 9, (4, 4))
    schedule = default_schedule(output, constants(output), AVX512)
    changed = tuple(replace(s, **change) if isinstance(s, SkipPadding) else s for s in schedule)
    with pytest.raises(IngotError, match=message):
        lower("kernel", output, arguments_of(output), [], changed, AVX512)


def test_only_zeros_are_padding() -> None:
    zeros, output = convolution(5, 9, (4, 4)), convolution(5, 9, (4, 4), fill=1.0)
    step = next(s for s in default_schedule(zeros, constants(zeros), AVX512) if isinstance(s, SkipPadding))
    schedule = default_schedule(output, constants(output), AVX512)
    with pytest.raises(IngotError, match="not padding with zeros"):
        lower("kernel", output, arguments_of(output), [], (*schedule, step), AVX512)
