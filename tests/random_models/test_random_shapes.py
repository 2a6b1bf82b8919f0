"""Shape arithmetic of all kinds feeding operators on data, at every level, at the sizes it was drawn for and at others: ONNX
Runtime is the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import compile_model
from runtime_service.loading.loader import load_model
from shared_ir.errors import ErrorCode, IngotError
from tests.oracle.vote import agree
from tests.random_models.model_maker import Array, Maker
from tests.random_models.shape_steps import SHAPE_STEPS

QUICK = (8, 18, 43, 44, 47)
"""Of the faults that the generator finds: moves that read what is calculated from dims, and divisions by t // 2."""
_CHUNK = 20
_OTHER_SIZES = 3


def shape_model(seed: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """4 to 24 nodes on one or two inputs, most of whose extents only the run knows."""
    random = np.random.default_rng(seed)

    def choose(options: Sequence[Any]) -> Any:
        return options[int(random.integers(len(options)))]

    make = Maker(choose, random)
    for _ in range(choose([1, 1, 2])):
        shape = [choose([2, 3, 4, 5, 6, 7]) for _ in range(choose([2, 3, 3, 4]))]
        dims = [f"s{make.count}_{i}" if choose([1, 1, 1, 0]) else extent for i, extent in enumerate(shape)]
        make.input(_numbers(random, shape), dims)
    wanted = choose(range(4, 25))
    for _ in range(60):
        if len(make.nodes) >= wanted:
            break
        choose(SHAPE_STEPS)(make)
    return make.model(), make.feeds


def _numbers(random: np.random.Generator, shape: Sequence[int]) -> Array:
    """Different multiples of 1/8."""
    return (random.permutation(np.arange(-2100, 2100))[: int(np.prod(shape))].reshape(shape) / 8).astype(np.float32)


def _other_feeds(model: onnx.ModelProto, random: np.random.Generator) -> dict[str, Array]:
    feeds = {}
    for info in model.graph.input:
        dims = info.type.tensor_type.shape.dim
        feeds[info.name] = _numbers(random, [d.dim_value or int(random.integers(1, 8)) for d in dims])
    return feeds


def _oracle(model: onnx.ModelProto) -> Callable[[dict[str, Array]], list[Array] | None]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def run(feeds: dict[str, Array]) -> list[Array] | None:
        try:
            found = [np.asarray(v) for v in session.run(None, feeds)]
        except Exception:  # sizes that the model does not take
            return None
        tame = all(np.isfinite(v).all() for v in found if v.dtype.kind == "f")
        return found if tame else None

    return run


def _asks_for_a_copied_zero(refused: IngotError, model: onnx.ModelProto) -> bool:
    """A limit that docs/compiler-service.md states: a size that a Reshape calculates is what it is, also where it is 0 in a run, for
    which ONNX Runtime takes that of the operand. Where another size is -1, nothing is divided by it."""
    reshapes = (n for n in model.graph.node if n.op_type == "Reshape")
    named = any(refused.message.startswith((f"node '{n.name}': ", f"node '{n.name}' (Reshape): ")) for n in reshapes)
    return named and refused.code is ErrorCode.INVALID_ARGUMENT and refused.expected in ("0", "at least 1")


def check(seed: int, levels: Sequence[int]) -> list[str]:
    """What is wrong with the model of a seed."""
    model, feeds = shape_model(seed)
    if not model.graph.node:
        return []
    oracle, random, wrong = _oracle(model), np.random.default_rng(seed + 10**6), []
    requests = [feeds, *(_other_feeds(model, random) for _ in range(_OTHER_SIZES))]
    expected = [oracle(r) for r in requests]
    for level in levels:
        try:
            source = ModelSource.of(model.SerializeToString())
            artifact = compile_model(source, host_target(), CompileOptions(opt_level=level), workers=0)
            with load_model(artifact, threads=1) as loaded:
                for request, answer in zip(requests, expected, strict=True):
                    if answer is None:
                        continue
                    try:
                        found = loaded.run(request)
                    except IngotError as refused:
                        if _asks_for_a_copied_zero(refused, model):
                            continue
                        raise
                    if not agree([found[s.name] for s in loaded.outputs], answer):
                        wrong.append(f"seed {seed} level {level}: {[a.shape for a in request.values()]} differ")
        except Exception as error:
            wrong.append(f"seed {seed} level {level}: {type(error).__name__}: {error}")
    return wrong


@pytest.mark.parametrize("seed", QUICK)
def test_what_was_found_stays_mended(seed: int) -> None:
    assert not check(seed, (0, 3))


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, _CHUNK))
def test_every_level_equals_onnx_runtime(first: int) -> None:
    assert not [line for seed in range(first, first + _CHUNK) for line in check(seed, (0, 1, 2, 3))]
