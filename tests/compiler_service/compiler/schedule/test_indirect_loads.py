"""Loads from where another load says: lanes beyond the end must perform neither, since what they would read is no index."""

from __future__ import annotations

from compiler_service.compiler.loop_ir.ir import BufferLoad, Store
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.steps import ComputeAt
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute, placeholder
from shared_ir.dtype import DType
from shared_ir.expr import lift, maximum, minimum, walk
from shared_ir.expr.dim import symbol
from tests.compiler_service.compiler.schedule.kernels import AVX512, arguments_of, check


def gathered() -> Tensor:
    x, index = placeholder("x", (4, 7), DType.FLOAT32), placeholder("index", (4, 7), DType.INT64)
    return compute((4, 7), lambda i, j: x[i, index[i, j]], name="gather")


def stores(statement: object) -> list[Store]:
    if isinstance(statement, Store):
        return [statement]
    inner = getattr(statement, "statements", None) or [getattr(statement, "body", None)]
    return [s for part in inner if part is not None for s in stores(part)]


def test_the_lanes_of_a_tail_are_masked_in_both_loads() -> None:
    output = gathered()
    function = lower("gather", output, arguments_of(output), (), default_schedule(output, frozenset(), AVX512), AVX512)
    for store in stores(function.body):
        loads = [e for e in walk(store.value) if isinstance(e, BufferLoad)]
        assert len(loads) == 2
        assert store.mask is not None
        assert [load.mask for load in loads] == [store.mask] * 2


def test_a_load_that_stands_still_needs_no_mask_though_the_size_bounds_its_index() -> None:
    n, m = symbol("n"), symbol("m")
    x, index = placeholder("x", (m,), DType.FLOAT32), placeholder("index", (n,), DType.INT64)
    output = compute((n, m), lambda i, j: x[minimum(index[i], lift(m) - 1)] + x[j], name="gather")
    for after_passes in (False, True):
        check(output, {"n": 3, "m": 21}, AVX512, frozenset(), after_passes)


def test_a_part_that_data_points_into_is_kept_as_a_whole() -> None:
    """Its first row used to be where the first index points, which says nothing about the others."""
    x, index = placeholder("x", (40, 3), DType.FLOAT32), placeholder("index", (40, 20), DType.INT64)
    part = compute((40, 3), lambda i, j: x[i, j], name="part")
    place = compute((40, 20), lambda i, j: index[i, j], name="place")
    output = compute(
        (40, 20, 3), lambda i, k, c: part[maximum(minimum(place[i, k], 39), 0), c], name="gather", axes=("i", "k", "c")
    )
    schedule = default_schedule(output, frozenset(), AVX512)
    assert any(isinstance(s, ComputeAt) and s.stage == "part" for s in schedule)
    for after_passes in (False, True):
        check(output, {}, AVX512, frozenset(), after_passes)
