"""Products whose weights are stored narrower than they are used: the template reads bytes and halves."""

from __future__ import annotations

import pytest

from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.steps import Pack
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.operators.conversion import cast, dequantize_linear
from compiler_service.compiler.tensor_expr.operators.matmul import matmul
from compiler_service.compiler.tensor_expr.operators.nibbles import matmul_nibbles
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, symbol
from tests.cases import every
from tests.compiler_service.compiler.schedule.kernels import ONE_QUICK_TARGET, TARGETS, check

F32 = DType.FLOAT32


def halves(rows: Dim, depth: int, columns: int) -> tuple[Tensor, Tensor]:
    w = placeholder("w", (depth, columns), DType.FLOAT16)
    return matmul(placeholder("x", (rows, depth), F32), cast(w, to=F32)), w


def scaled(rows: Dim, depth: int, columns: int, block: int, *, zeros: bool) -> tuple[Tensor, Tensor]:
    """A scale for each column (``block`` 0) or for ``block`` rows of it, with or without zero points."""
    w = placeholder("w", (depth, columns), DType.INT8)
    shape: tuple[Dim, ...] = (-(-depth // block), columns) if block else (columns,)
    zero = placeholder("z", shape, DType.INT8) if zeros else None
    wide = dequantize_linear(w, placeholder("s", shape, F32), zero, axis=0 if block else 1, block_size=block)
    return matmul(placeholder("x", (rows, depth), F32), wide), w


def nibbles(rows: Dim, depth: int, columns: int, block: int, *, zeros: bool) -> tuple[Tensor, Tensor]:
    """Codes of 4 bits, eight to a word; a zero point for each scale, or one for all."""
    words = placeholder("w", (depth // 8, columns), DType.UINT32)
    shape = (depth // block, columns)
    x, sums = placeholder("x", (rows, depth), F32), placeholder("sums", (rows, depth // block), F32)
    zero = placeholder("z", shape if zeros else (), DType.INT8)
    return matmul_nibbles(x, words, placeholder("s", shape, F32), zero, sums, block_size=block), words


def checked(output: Tensor, weight: Tensor, sizes: dict[str, int], target: str) -> None:
    output, _ = coalesce(output)
    constants = frozenset(t for t in arguments(output) if t.name not in ("x", "sums"))
    schedule = default_schedule(output, constants, TARGETS[target])
    assert next(s.tensor for s in schedule if isinstance(s, Pack)) == weight.name
    for after_passes in (False, True):
        check(output, sizes, TARGETS[target], constants, after_passes=after_passes)


def arguments(output: Tensor) -> set[Tensor]:
    found, stack = set(), [output]
    while stack:
        tensor = stack.pop()
        found.add(tensor)
        stack.extend(tensor.producers)
    return {t for t in found if not t.producers}


@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 40, 48), (3, 24, 40), (9, 17, 70)])
def test_halves(rows: int, depth: int, columns: int, target: str) -> None:
    checked(*halves(rows, depth, columns), {}, target)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("depth", "columns", "block"), [(40, 48, 0), (64, 40, 16), (40, 70, 32)])
@pytest.mark.parametrize("rows", [1, 5])
def test_scaled_bytes(rows: int, depth: int, columns: int, block: int, zeros: bool, target: str) -> None:
    checked(*scaled(rows, depth, columns, block, zeros=zeros), {}, target)


@pytest.mark.sampled
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("depth", "columns", "block"), [(64, 40, 16), (48, 150, 8), (32, 70, 32)])
@pytest.mark.parametrize("rows", every([1, 5, 11], quick={1}))
def test_words_of_nibbles(rows: int, depth: int, columns: int, block: int, zeros: bool, target: str) -> None:
    checked(*nibbles(rows, depth, columns, block, zeros=zeros), {}, target)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize("rows", [1, 2, 13])
def test_rows_that_only_the_run_knows(rows: int, target: str) -> None:
    checked(*scaled(symbol("m"), 32, 48, 16, zeros=False), {"m": rows}, target)
    checked(*nibbles(symbol("m"), 32, 48, 16, zeros=True), {"m": rows}, target)
    checked(*halves(symbol("m"), 32, 48), {"m": rows}, target)
