"""A kernel that does far more than its memory asks for ends soon after its run is to end, whatever it computes."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.pipeline import ModelSource, compile_model
from runtime_service.executors.stop import Stop
from runtime_service.loading.loader import ExecutorKind, load_model
from shared_ir.errors import ErrorCode, IngotError

LATEST = 2.0
"""Seconds of the process after which a run that is stopped must have ended; it takes some hundredths."""


@dataclass(frozen=True)
class Case:
    """An operator and a request that keeps it busy for minutes."""

    op: str
    feeds: Mapping[str, np.ndarray]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def model(self) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(
                name,
                helper.np_dtype_to_tensor_dtype(array.dtype),
                [extent if extent <= 5 else f"{name}{axis}" for axis, extent in enumerate(array.shape)],
            )
            for name, array in self.feeds.items()
        ]
        node = helper.make_node(self.op, [*self.feeds], ["y"], **self.attributes)
        graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def ones(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {name: np.ones(shape, np.float32) for name, shape in shapes.items()}


NGRAMS = {
    "mode": "TF",
    "min_gram_length": 1,
    "max_gram_length": 3,
    "max_skip_count": 100_000,
    "ngram_counts": [0, 2, 6],
    "ngram_indexes": [0, 1, 2, 3, 4],
    "pool_int64s": [1, 2, 1, 1, 1, 2, 1, 1, 1],
}
REGION: Mapping[str, np.ndarray] = {"r": np.array([[0, 0, 7, 7]], np.float32), "b": np.zeros(1, np.int64)}

CASES = {
    "window": Case("LpPool", ones(x=(1, 1, 2000, 2000)), {"kernel_shape": [1500, 1500], "p": 3}),
    "weights of the run": Case("Conv", ones(x=(1, 1, 1500, 1500), w=(1, 1, 1200, 1200))),
    "skips": Case("TfIdfVectorizer", {"x": np.ones(200_000, np.int64)}, NGRAMS),
    "samples": Case("RoiAlign", {**ones(x=(1, 1, 8, 8)), **REGION}, {"sampling_ratio": 200_000}),
    "samples along one axis": Case("RoiAlign", {**ones(x=(1, 1, 8, 8)), **REGION}, {"sampling_ratio": (1 << 31) - 1}),
    "neighbours": Case("LRN", ones(x=(1, 60_000, 2, 2)), {"size": (1 << 31) - 1}),
}


def drawn(seed: int) -> Case:
    """A sum of products over five letters or more, each of which runs over so much that the whole takes hours."""
    random = Random(seed)
    operands: list[str] = []
    while len(set("".join(operands))) < 5:
        operands.append("".join(random.sample("abcdef", random.randint(1, 2))))
    equation = f"{','.join(operands)}->{random.choice(['', operands[0]])}"
    feeds = ones(**{f"x{i}": (700,) * len(operand) for i, operand in enumerate(operands)})
    return Case("Einsum", feeds, {"equation": equation})


def ends(case: Case, executor: ExecutorKind) -> None:
    artifact = compile_model(ModelSource.of(case.model().SerializeToString()), host_target(), workers=0)
    with load_model(artifact, threads=1, executor=executor) as model:
        stop = Stop()
        timer = threading.Timer(0.1, stop.set)
        timer.start()
        begun = time.thread_time()
        with pytest.raises(IngotError, match="stopped") as caught:
            model.run(case.feeds, stop)
        assert caught.value.code is ErrorCode.CANCELLED
        assert time.thread_time() - begun < LATEST


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_kernels_of_many_steps_are_stopped_inside(case: Case) -> None:
    ends(case, "aot")


def test_so_are_those_that_are_run_step_by_step() -> None:
    ends(CASES["window"], "graph")


@pytest.mark.parametrize("seed", range(6))
def test_large_sums_are_stopped_inside(seed: int) -> None:
    ends(drawn(seed), "aot" if seed % 3 else "graph")
