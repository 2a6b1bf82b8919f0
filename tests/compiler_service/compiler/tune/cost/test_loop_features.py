"""Features of loop functions: always as many, finite, the same for equal loops, and counts that are counts."""

from __future__ import annotations

import re

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from compiler_service.compiler.backends.table import backend_of
from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.loop_ir.ir import Function
from compiler_service.compiler.loop_ir.parse import parse_function
from compiler_service.compiler.loop_ir.text import print_function
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import inference, optimize
from compiler_service.compiler.program.definitions import define_kernels
from compiler_service.compiler.program.kernels import distinct_kernels
from compiler_service.compiler.program.variants import import_variants
from compiler_service.compiler.progress import Log, silent
from compiler_service.compiler.tune.cost.features import CACHE_BYTES, FEATURES, NAMES, loop_features
from tests.compiler_service.compiler.loop_ir.loop_programs import (
    convolution,
    guarded_scale,
    padded_copy,
    register_tiled_matmul,
    row_sums,
    slice_copy,
)
from tests.random_models.generate import drawn_model, frozen_model

MAKERS = (guarded_scale, register_tiled_matmul, convolution, padded_copy, slice_copy, row_sums)
PROGRAMS = {make.__name__: make() for make in MAKERS}
TILED = """
function product(A: float32[{m}, {k}], B: float32[2, {k}, 32], out C: float32[{m}, 64])
for task t in 0..{m} // 4 * 2:
    let rows = t // 2
    let columns = t % 2
    stack acc: float32[4, 32]
    for i in 0..4 unrolled:
        for j in 0..2 unrolled:
            for v in 0..16 vectorized:
                acc[i, j * 16 + v] = 0.0
    for k in 0..{k}:
        for i in 0..4 unrolled:
            for j in 0..2 unrolled:
                for v in 0..16 vectorized:
                    acc[i, j * 16 + v] = acc[i, j * 16 + v] + A[rows * 4 + i, k] * B[columns, k, j * 16 + v]
    for i in 0..4 unrolled:
        for j in 0..2 unrolled:
            for v in 0..16 vectorized:
                C[rows * 4 + i, columns * 32 + (j * 16 + v)] = max(acc[i, j * 16 + v], 0.0)
"""


def named(function: Function, **sizes: int) -> dict[str, float]:
    """The features by name, logarithms undone."""
    found = dict(zip(NAMES, loop_features(function, sizes).astype(float), strict=True))
    return {
        name: value if name == "hot share" or name.endswith("private") else 2**value - 1
        for name, value in found.items()
    }


def product(m: int = 64, k: int = 128) -> dict[str, float]:
    return named(parse_function(TILED.format(m=m, k=k)))


def test_operations_are_counted() -> None:
    found = product()
    assert found["multiply elements"] == pytest.approx(64 * 64 * 128)
    assert found["add elements"] == pytest.approx(64 * 64 * 128)
    assert found["fused elements"] == pytest.approx(64 * 64 * 128)
    assert found["select elements"] == pytest.approx(64 * 64)
    assert found["tasks"] == pytest.approx(32)
    assert found["function elements"] == found["dot elements"] == found["branches"] == 0


@pytest.mark.parametrize("axis", ["m", "k"])
def test_twice_the_extent_is_twice_the_arithmetic(axis: str) -> None:
    once, twice = product(**{axis: 64}), product(**{axis: 128})
    for name in ("multiply elements", "add elements", "fused elements"):
        assert twice[name] == pytest.approx(2 * once[name])


def test_what_does_not_change_in_an_unrolled_loop_is_read_once() -> None:
    found, turns = product(), 32 * 128
    assert found["single loads"] == pytest.approx(turns * 4)  # A, once for both vectors of a row
    assert found["contiguous loads"] == pytest.approx(turns * 2)  # B, once for all four rows
    assert found["contiguous stores"] == pytest.approx(64 * 64 / 16)
    assert found["spread loads"] == found["masked"] == 0
    assert found["hot loads"] == pytest.approx(6)
    assert found["hot copies"] == pytest.approx(8)
    assert found["hot turns"] == pytest.approx(turns)


def test_bytes_are_those_that_are_reached() -> None:
    found = product()
    assert found["bytes touched"] == pytest.approx(4 * (64 * 128 + 128 * 64 + 64 * 64))
    assert found["stack bytes"] == pytest.approx(4 * 4 * 32)
    assert found["stack buffers"] == 1
    assert found["buffer 0 bytes touched"] == pytest.approx(4 * 128 * 64)  # B, which is read in vectors
    assert found["buffer 0 lane stride"] == pytest.approx(1)
    assert found["buffer 0 turn stride"] == pytest.approx(32)
    assert found["buffer 1 lane stride"] == 0  # A: all lanes are one element


def test_a_larger_cache_is_brought_less() -> None:
    found = product(m=1024, k=4096)
    brought = [found[f"traffic {size >> 10} KiB"] for size in CACHE_BYTES]
    assert brought == sorted(brought, reverse=True)
    assert brought[0] > 10 * brought[-1]
    assert brought[-1] == pytest.approx(found["lines touched"] + found["stack bytes"])


def test_lanes_that_are_no_neighbours_are_told_from_neighbours() -> None:
    text = "function f(x: float32[64, 16], out y: float32[64])\nfor task t in 0..4:\n    for v in 0..16 vectorized:\n"
    rows = named(parse_function(f"{text}        y[t * 16 + v] = x[t * 16 + v, 0]\n"))
    assert rows["spread loads"] == pytest.approx(4)
    assert rows["contiguous loads"] == 0
    assert rows["buffer 0 lane stride"] == pytest.approx(16)


def test_symbols_have_the_sizes_that_they_are_measured_with() -> None:
    function = PROGRAMS["guarded_scale"]
    assert named(function, n=160)["multiply elements"] == pytest.approx(160)
    assert named(function, n=320)["multiply elements"] == pytest.approx(320)
    assert named(function)["multiply elements"] == pytest.approx(64)


@pytest.mark.parametrize("name", PROGRAMS)
def test_names_change_nothing(name: str) -> None:
    text = print_function(PROGRAMS[name])
    words = sorted(
        set(re.findall(r"(?:for|let|task|stack|scratch|[(,;])\s+([a-z_A-Z]\w*)\s*(?:=|in|:)", text)) - {"task"}
    )
    other = re.sub(rf"\b({'|'.join(words)})\b", lambda word: f"z{len(words) - words.index(word[0])}_{word[0]}", text)
    renamed = parse_function(other)
    sizes = {s.name: 8 + 4 * n for n, s in enumerate(PROGRAMS[name].symbols)}
    others = {s.name: 8 + 4 * n for n, s in enumerate(renamed.symbols)}
    np.testing.assert_array_equal(loop_features(PROGRAMS[name], sizes), loop_features(renamed, others))
    assert words


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "row_sums"])
def test_the_loop_passes_leave_the_arithmetic(name: str) -> None:
    """But for sums over lanes, which become one operation."""
    before, after = named(PROGRAMS[name]), named(passes.run(PROGRAMS[name]))
    for kind in ("add", "multiply", "fused"):
        assert after[f"{kind} elements"] == pytest.approx(before[f"{kind} elements"], rel=0.02)


def test_every_feature_is_documented() -> None:
    assert len(NAMES) == len(FEATURES) == len(set(NAMES))
    assert all(FEATURES.values())


def check_kernels(seed: int, data: bytes) -> None:
    """The features of every kernel of a model are finite, and the same when they are asked for again."""
    options, target, log = CompileOptions(), host_target(), Log.from_environment(silent)
    variants = import_variants(ModelSource.of(data), options.import_options, inference(), fast=options.fast_ways)
    variants = tuple(define_kernels(optimize(v, target, options, log)) for v in variants)
    kernels, _ = distinct_kernels((v.definitions, v.constants) for v in variants)
    for kernel in kernels:
        function = kernel.lower(kernel.chosen_schedule(target).schedule, target)
        again = kernel.lower(kernel.chosen_schedule(target).schedule, target)
        for own in (function, backend_of(target).loop_pipeline.run(function)):
            found = loop_features(own, {})
            assert found.shape == (len(FEATURES),), seed
            assert found.dtype == np.float32
            assert np.isfinite(found).all()
            assert (found >= 0).all()
        np.testing.assert_array_equal(loop_features(function, {}), loop_features(again, {}))


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(s, marks=pytest.mark.slow) for s in range(4, 20))])
def test_kernels_of_frozen_models_have_features(seed: int) -> None:
    check_kernels(seed, frozen_model(seed)[0].SerializeToString())


@pytest.mark.slow
@settings(deadline=None, max_examples=8, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_kernels_of_random_models_have_features(data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 2**16), label="weights"))
    model, _ = drawn_model(lambda options: data.draw(st.sampled_from(options)), random)
    if model.graph.node:
        check_kernels(-1, model.SerializeToString())
