"""What a call from Python costs beside arithmetic: ``python -m bench.calls``.

Times ``model.run(feeds)`` of a model that adds three vectors of 16 elements, some ten nanoseconds of work: the rest is checking
three inputs, finding the plan of their shapes, making the output and entering native code.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import onnx
from onnx import helper

import ingot
from bench.machine import describe_machine
from bench.timing import Slice, Timing, summarize

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


def time_call(calls: int = _CALLS, rounds: int = _ROUNDS) -> Timing:
    """One call; a run that is timed is the mean of ``calls`` in a row, since the clock costs as much as parts of a call."""
    feeds = {name: np.ones(_SHAPE, np.float32) for name in INPUTS}
    slices = []
    with ingot.load(ingot.compile(sum_model().SerializeToString()), threads=1) as model:
        for _ in range(rounds):
            start = time.perf_counter()
            for _ in range(calls):
                model.run(feeds)
            slices.append(Slice(((time.perf_counter() - start) / calls,)))
    return summarize(slices)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    for line in describe_machine().lines():
        print(line)
    timing = time_call()
    print(f"a call with {len(INPUTS)} inputs: {timing.median * 1e6:.2f} us, at best {timing.best * 1e6:.2f} us")


if __name__ == "__main__":
    main()
