"""What a compile does grows with the model and no faster, and nothing recurses along it.

Steps are counted, not timed: the calls that Python makes. A fixed part of them falls out of the differences between three sizes,
each twice the one before; of the rest the second difference is twice the first one where growth is linear, four times where it is
quadratic.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from types import FrameType

import numpy as np
import onnx
import onnxruntime
import pytest

import ingot
from bench.families import FAMILIES
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.loop_ir.passes import LOOP_PASSES
from compiler_service.compiler.loop_ir.pipeline import LoopPipeline
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import build_kernel, inference, optimize
from compiler_service.compiler.program.definitions import define_kernels
from compiler_service.compiler.program.kernels import distinct_kernels, schedules_for
from compiler_service.compiler.program.variants import import_variants
from compiler_service.compiler.progress import Log, silent
from compiler_service.compiler.tensor_expr.registry import infer
from compiler_service.compiler.tensor_expr.tensor import placeholder
from shared_ir.dtype import DType
from shared_ir.expr.dim import symbol
from shared_ir.machine.target import Target, parse_target

MOST = 2.5
"""2 ** 1.3: sorting, and the trees of sums, take the logarithm besides."""
SIZES = {"shapes": (320, 640, 1280)}
"""Of other sizes than the rest: sizes that are longer than 256 operations are left to the run, which costs kernels."""

TARGET: Target = parse_target("x86-64-v3")


def front(model: onnx.ModelProto, level: int) -> None:
    """From the model to its kernels and its memory: all that is done for every node."""
    options = CompileOptions(opt_level=level)
    for variant in import_variants(
        ModelSource(model.SerializeToString()), options.import_options, inference(), fast=options.fast_ways
    ):
        define_kernels(optimize(variant, TARGET, options, Log.from_environment(silent)))


def back(model: onnx.ModelProto) -> None:
    """From the model to the loop programs of its kernels: what is done for every operation of a kernel."""
    options, log = CompileOptions(), Log.from_environment(silent)
    (variant,) = import_variants(
        ModelSource(model.SerializeToString()), options.import_options, inference(), fast=False
    )
    defined = define_kernels(optimize(variant, TARGET, options, log))
    for kernel in distinct_kernels([(defined.definitions, defined.constants)])[0]:
        build_kernel(kernel, TARGET, schedules_for(kernel, TARGET, lambda *_: None), LoopPipeline(LOOP_PASSES), log)


def calls(work: Callable[[onnx.ModelProto], None], family: str, size: int) -> int:
    """Calls of functions, of Python's and of those in C, and resumptions of generators."""
    count = 0

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    model = FAMILIES[family](size)
    sys.setprofile(profile)
    try:
        work(model)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize(("family", "level"), list(product(FAMILIES, (0, 3))))
def test_steps_grow_no_faster_than_the_model(family: str, level: int) -> None:
    front(FAMILIES[family](100), level)  # what is remembered between compiles is not counted
    work = partial(front, level=level)
    small, middle, large = (calls(work, family, size) for size in SIZES.get(family, (120, 240, 480)))
    assert large - middle < MOST * (middle - small)


@pytest.mark.parametrize("family", ["elementwise", "positions"])
def test_so_do_those_for_the_operations_of_a_kernel(family: str) -> None:
    back(FAMILIES[family](3))
    small, middle, large = (calls(back, family, size) for size in (4, 8, 16))
    assert large - middle < MOST * (middle - small)


@pytest.mark.parametrize("family", ["cheap", "numbers"])
def test_operations_that_differ_in_numbers_alone_share_kernels(family: str) -> None:
    """LLVM takes as long for a kernel as everything else does for many nodes."""
    options = CompileOptions()
    (variant,) = import_variants(
        ModelSource(FAMILIES[family](300).SerializeToString()), options.import_options, inference(), fast=False
    )
    defined = define_kernels(optimize(variant, TARGET, options, Log.from_environment(silent)))
    kernels, numbers = distinct_kernels([(defined.definitions, defined.constants)])
    assert len(kernels) <= 2 < len(numbers)


def test_a_few_that_differ_in_numbers_have_kernels_that_know_them() -> None:
    options = CompileOptions()
    (variant,) = import_variants(
        ModelSource(FAMILIES["numbers"](100).SerializeToString()), options.import_options, inference(), fast=False
    )
    defined = define_kernels(optimize(variant, TARGET, options, Log.from_environment(silent)))
    assert {len(d.arguments) for d in defined.definitions} == {1}


def test_an_operation_takes_as_long_whatever_its_operands_come_from() -> None:
    def visits(depth: int) -> int:
        x = placeholder("x", (symbol("n"), 4), DType.FLOAT32)
        for _ in range(depth):
            (found,) = infer("Neg", (x,), {})
            assert found is not None
            x = found
        count = 0

        def profile(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(profile)
        try:
            infer("Relu", (x,), {})
        finally:
            sys.setprofile(None)
        return count

    assert visits(32) < 1.5 * visits(2)


def test_numbers_that_are_arguments_compute_what_onnx_runtime_computes() -> None:
    check(FAMILIES["numbers"](140), "numbers")


@pytest.mark.parametrize("family", FAMILIES)
def test_families_compute_what_onnx_runtime_computes(family: str) -> None:
    check(FAMILIES[family](24), family)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_long_models_compute_what_onnx_runtime_computes(family: str) -> None:
    check(FAMILIES[family](1200), family)


def check(model: onnx.ModelProto, family: str) -> None:
    random = np.random.default_rng(0)
    sizes = {"n": 5, "b": 2, "t": 3}
    given = {
        i.name: random.standard_normal(
            [sizes.get(d.dim_param, 3) if d.dim_param else d.dim_value for d in i.type.tensor_type.shape.dim]
        ).astype(np.float32)
        if i.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        else np.array(True)
        for i in model.graph.input
    }
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    found = ingot.load(ingot.compile(model, workers=1)).run(given)
    for (name, array), expected in zip(found.items(), wanted, strict=True):
        scale = float(np.abs(expected).max()) or 1.0
        np.testing.assert_allclose(array / scale, expected / scale, atol=1e-5, err_msg=f"{family}: {name}")
