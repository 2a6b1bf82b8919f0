"""What a call from Python costs beside arithmetic: ``python -m bench.calls``.

Times ``model.run(feeds)`` of a model that adds three vectors of 16 elements, some ten nanoseconds of work: the rest is checking
three inputs, finding the plan of their shapes, making the output and entering native code.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

import ingot
from bench.machine import describe_machine

INPUTS = ("a", "b", "c")
_SHAPE = (1, 16)
_CALLS = 1000
_ROUNDS = 200


def sum_model() -> onnx.ModelProto:
    """``y = a + b + c``"""
    a, b, c = INPUTS
    nodes = [helper.make_node("Add", [a, b], ["t"]), helper.make_node("Add", ["t", c], ["y"])]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, _SHAPE) for name in (*INPUTS, "y")]
    graph = helper.make_graph(nodes, "sum", ends[:-1], ends[-1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def seconds_per_call(calls: int = _CALLS, rounds: int = _ROUNDS) -> tuple[float, float]:
    """The least and the median over ``rounds`` of the mean of ``calls`` calls."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sum.onnx"
        onnx.save(sum_model(), path)
        artifact = ingot.compile(path)
    feeds = {name: np.ones(_SHAPE, np.float32) for name in INPUTS}
    means = []
    with ingot.load(artifact, threads=1) as model:
        for _ in range(rounds):
            start = time.perf_counter()
            for _ in range(calls):
                model.run(feeds)
            means.append((time.perf_counter() - start) / calls)
    return min(means), statistics.median(means)


def main() -> None:
    for line in describe_machine().lines():
        print(line)
    least, median = seconds_per_call()
    print(f"a call with {len(INPUTS)} inputs: {median * 1e6:.2f} us, at best {least * 1e6:.2f} us")


if __name__ == "__main__":
    main()
