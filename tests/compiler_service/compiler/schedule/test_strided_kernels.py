"""Arguments and outputs that are slices of larger tensors: every rule reads and writes the elements, and nothing between them."""

from __future__ import annotations

import pytest

from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.operators.pooling import max_pool
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute, placeholder
from shared_ir.dtype import DType
from shared_ir.expr import maximum
from shared_ir.expr.dim import symbol
from tests.cases import every
from tests.compiler_service.compiler.schedule.algorithms.test_attention_nest import attention
from tests.compiler_service.compiler.schedule.kernels import (
    ONE_QUICK_TARGET,
    TARGETS,
    arguments_of,
    check,
    with_strides,
)
from tests.compiler_service.compiler.schedule.test_default_schedules import (
    convolution,
    matmul,
    softmax,
    transposed_convolution,
    transposed_matmul,
)

F32 = DType.FLOAT32
n, h = symbol("n"), symbol("h")
SIZES = {"n": 3, "h": 6}


def elementwise() -> Tensor:
    x, y = placeholder("x", (n, 4, 37), F32), placeholder("y", (37,), F32)
    return compute(x.shape, lambda i, j, k: maximum(x[i, j, k] + y[k], 0.0), name="relu")


def transpose() -> Tensor:
    x = placeholder("x", (2, 35, n), F32)
    return compute((2, n, 35), lambda i, j, k: x[i, k, j], name="transpose")


def pool() -> Tensor:
    pooled, _ = max_pool(placeholder("x", (n, h, h, 20), F32), kernel_shape=(3, 3), pads=(1, 1, 1, 1), layout="NHWC")
    return pooled


KERNELS = {
    "elementwise": elementwise(),
    "transpose": transpose(),
    "pool": pool(),
    "matmul": matmul(n, 40, 19),
    "rows": matmul(29, 40, 19),
    "transposed": transposed_matmul(5, n, 17),
    "pointwise": convolution(n, 6, 5, 18, 33, 1, 1, 0),
    "convolution": convolution(2, h, 7, 18, 33, 3, 1, 1),
    "strided": convolution(1, 9, 9, 16, 32, 3, 2, 1),
    "grouped": convolution(1, 6, 6, 32, 32, 3, 1, 1, groups=8),
    "depthwise": convolution(1, 6, 6, 21, 21, 3, 1, 1, groups=21),
    "transposed convolution": transposed_convolution(4, 5, 8, 20, 2, 2, 0),
    "softmax": softmax(n, 45),
    "attention": attention(1, 2, n, 9, 8, 8),
}


@pytest.mark.sampled
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize("kernel", every(KERNELS, quick={"elementwise", "transpose", "rows", "pointwise", "depthwise"}))
@pytest.mark.parametrize("packed", [True, pytest.param(False, marks=pytest.mark.slow)], ids=("packed", "unpacked"))
def test_rules_read_and_write_through_strides(kernel: str, target: str, packed: bool) -> None:
    output, _ = coalesce(with_strides(KERNELS[kernel], frozenset("w" if packed else "")))
    constants = frozenset(a for a in arguments_of(output) if a.name == "w" and packed)
    check(output, SIZES, TARGETS[target], constants, after_passes=True)
    check(output, SIZES, TARGETS[target], constants, after_passes=False)


def test_axes_merge_up_to_the_gaps() -> None:
    x = placeholder("x", (2, 3, 4, 5), F32, strides=(72, 24, 6, 1))
    merged, _ = coalesce(compute(x.shape, lambda *i: x[i], name="copy"))
    assert merged.shape == (24, 5)
    assert arguments_of(merged)[0].strides == (6, 1)
    apart = placeholder("x", (2, 3, 4, 5), F32, strides=(100, 20, 5, 1))
    merged, _ = coalesce(compute(apart.shape, lambda *i: apart[i], name="copy"))
    assert merged.shape == (2, 60)
    assert arguments_of(merged)[0].strides == (100, 1)
