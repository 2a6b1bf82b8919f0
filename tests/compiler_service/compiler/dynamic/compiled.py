"""Small ONNX models with control flow and sizes that depend on data, compiled and compared with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import compile_model
from runtime_service.loading.loader import load_model
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.machine.target import Target

Array = NDArray[Any]
Feeds = Mapping[str, Array]
FLOAT, INT32, INT64, BOOL = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.INT32,
    onnx.TensorProto.INT64,
    onnx.TensorProto.BOOL,
)
Case = tuple[onnx.ModelProto, Sequence[Feeds]]
"""A model and the requests that it must answer."""
EXECUTORS: tuple[Literal["aot", "graph"], ...] = ("aot", "graph")

onnx_proto = onnx.ModelProto
node = helper.make_node


def tensor(name: str, shape: Sequence[int | str | None] | None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def constant(name: str, values: Any, dtype: Any = np.int64) -> onnx.NodeProto:
    return node("Constant", [], [name], value=numpy_helper.from_array(np.array(values, dtype)))


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    name: str = "body",
) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, inputs, outputs)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Mapping[str, Array] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    initializers = [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    whole = helper.make_graph(nodes, "main", inputs, outputs, initializers)
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compiled(proto: onnx.ModelProto, opt_level: int = 3, target: Target | None = None) -> CompiledArtifact:
    return _artifact(proto.SerializeToString(deterministic=True), opt_level, target or host_target())


@lru_cache(maxsize=16)
def _artifact(proto: bytes, opt_level: int, target: Target) -> CompiledArtifact:
    return compile_model(ModelSource.of(proto), target, CompileOptions(opt_level=opt_level), workers=0)


def assert_equals_onnxruntime(
    proto: onnx.ModelProto,
    requests: Sequence[Feeds],
    opt_level: int = 3,
    tolerance: float = 2e-5,
    target: Target | None = None,
) -> CompiledArtifact:
    """Every request through both executors, in order over one handle each; outputs equal those of ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    artifact = compiled(proto, opt_level, target)
    for executor in EXECUTORS:
        with load_model(artifact, threads=2, executor=executor) as loaded:
            for feeds in requests:
                results = loaded.run(feeds)
                for spec, expected in zip(loaded.outputs, session.run(None, dict(feeds)), strict=True):
                    _assert_equal(results[spec.name], expected, f"{executor}: {spec.name}", tolerance)
    return artifact


def check_cases(cases: Sequence[Callable[[], Case]]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorates ``test(case, opt_level)``: every case, optimised and not; by default one of them."""

    def parametrised(test: Callable[..., None]) -> Callable[..., None]:
        marked: Callable[..., None]
        by_level = pytest.mark.parametrize("opt_level", [3, 0], ids=("optimised", "unoptimised"))(test)
        marked = pytest.mark.slow(pytest.mark.parametrize("case", cases, ids=lambda c: c.__name__)(by_level))
        sampled: Callable[..., None] = pytest.mark.sampled(marked)
        return sampled

    return parametrised


def _assert_equal(found: Array, expected: Array, where: str, tolerance: float) -> None:
    assert found.dtype == expected.dtype, where
    if found.size or expected.size:  # ONNX Runtime makes every free extent of an empty result 0
        assert found.shape == expected.shape, where
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=where)
    else:
        assert len(found.shape) == len(expected.shape), where
