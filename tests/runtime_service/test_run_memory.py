"""What a run may take is bounded, and what it took beyond what is kept goes back to the system."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.pipeline import ModelSource, compile_model
from runtime_service.loading.loader import ExecutorKind, load_model
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError

MIB = 1 << 20


@pytest.fixture(scope="module")
def summed() -> CompiledArtifact:
    """``y`` [1]: the sum of cumulative sums of x[n, 1024], which are as large as x."""
    nodes = [
        helper.make_node("CumSum", ["x", "axis"], ["c"]),
        helper.make_node("ReduceSum", ["c"], ["s"], keepdims=0),
        helper.make_node("Reshape", ["s", "one"], ["y"]),
    ]
    constants = [numpy_helper.from_array(np.array(a, np.int64), n) for n, a in (("axis", 0), ("one", [1]))]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1024])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], constants), opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    return compile_model(ModelSource.of(model.SerializeToString()), host_target(), workers=0)


@pytest.fixture(scope="module")
def filled() -> CompiledArtifact:
    """``y`` of the shape that the data of ``s`` say."""
    s = helper.make_tensor_value_info("s", TensorProto.INT64, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["k"])
    graph = helper.make_graph([helper.make_node("ConstantOfShape", ["s"], ["y"])], "g", [s], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return compile_model(ModelSource.of(model.SerializeToString()), host_target(), workers=0)


def rows(mib: int) -> dict[str, np.ndarray]:
    return {"x": np.ones((mib * 256, 1024), np.float32)}


def resident_mib() -> int:
    line = next(text for text in Path("/proc/self/status").read_text().splitlines() if text.startswith("VmRSS"))
    return int(line.split()[1]) // 1024


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_a_run_that_needs_more_is_refused_and_others_are_served(
    summed: CompiledArtifact, executor: ExecutorKind
) -> None:
    with load_model(summed, threads=1, executor=executor, memory_bytes=64 * MIB) as model:
        assert model.run(rows(16))["y"] > 0
        with pytest.raises(IngotError) as caught:
            model.run(rows(128))
        assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
        assert str(64 * MIB) in str(caught.value)
        assert model.run(rows(16))["y"] > 0


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_outputs_that_the_run_sizes_are_bounded(filled: CompiledArtifact, executor: ExecutorKind) -> None:
    with load_model(filled, threads=1, executor=executor, memory_bytes=64 * MIB) as model:
        for size in (32 * MIB, 1 << 40, (1 << 62) + 1):
            with pytest.raises(IngotError) as caught:
                model.run({"s": np.array([size], np.int64)})
            assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
        assert model.run({"s": np.array([1 * MIB], np.int64)})["y"].shape == (MIB,)


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_what_is_not_kept_is_given_back(summed: CompiledArtifact, executor: ExecutorKind) -> None:
    small, large = rows(1), rows(256)
    with load_model(summed, threads=1, executor=executor, kept_bytes=16 * MIB) as model:
        model.run(small)
        before = resident_mib()
        model.run(large)
        assert resident_mib() - before < 64
        assert model.run(small)["y"] > 0
