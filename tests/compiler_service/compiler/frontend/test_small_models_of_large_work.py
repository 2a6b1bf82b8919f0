"""Models of a few hundred bytes that name billions of elements are compiled, or refused in a sentence, in seconds and little memory."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.pipeline import ModelSource, compile_model
from shared_ir.errors import Blame, IngotError

_MEMORY_BYTES = 4 << 30
_PROCESSOR_SECONDS = 30
_BILLION = 10**9


def model(nodes: Sequence[Any], inputs: dict[str, Any], constants: dict[str, Any], output: int = T.FLOAT) -> bytes:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, T.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info("y", output, None)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    made: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(made.SerializeToString())


node = helper.make_node
counted = {"a": np.int64(0), "b": np.int64(_BILLION), "c": np.int64(1)}
one = np.ones(1, np.float32)
MODELS = {
    "Range": model([node("Range", ["a", "b", "c"], ["y"])], {}, counted, T.INT64),
    "sum of a Range": model(
        [node("Range", ["a", "b", "c"], ["r"]), node("ReduceSum", ["r"], ["y"])], {}, counted, T.INT64
    ),
    "ConstantOfShape": model([node("ConstantOfShape", ["s"], ["y"])], {}, {"s": np.array([10**5, 10**5])}),
    "sum of exponentials": model(
        [node("ConstantOfShape", ["s"], ["r"]), node("Exp", ["r"], ["e"]), node("ReduceSum", ["e"], ["y"])],
        {},
        {"s": np.array([10**5, 10**4])},
    ),
    "squares of squares of a size": model(
        [
            node("Shape", ["x"], ["m0"]),
            *(node("Mul", [f"m{i}", f"m{i}"], [f"m{i + 1}"]) for i in range(64)),
            node("Mod", ["m64", "seven"], ["y"]),
        ],
        {"x": ["n"]},
        {"seven": np.array([7])},
        T.INT64,
    ),
    "powers of a sum of sizes": model(
        [
            node("Shape", ["x"], ["s"]),
            node("ReduceSum", ["s"], ["m0"], keepdims=0),
            *(node("Mul", [f"m{i}", f"m{i}"], [f"m{i + 1}"]) for i in range(8)),
            node("Identity", ["m8"], ["y"]),
        ],
        {"x": ["a", "b", "c", "d"]},
        {},
        T.INT64,
    ),
    "Tile": model([node("Tile", ["x", "r"], ["y"])], {}, {"x": one, "r": np.array([_BILLION])}),
    "Expand": model([node("Expand", ["x", "r"], ["y"])], {}, {"x": one, "r": np.array([10**5, 10**5])}),
    "Pad": model([node("Pad", ["x", "r"], ["y"])], {}, {"x": one, "r": np.array([_BILLION, _BILLION])}),
    "OneHot": model(
        [node("OneHot", ["i", "d", "v"], ["y"])],
        {},
        {"i": np.arange(10**5), "d": np.int64(10**5), "v": np.array([0, 1], np.float32)},
    ),
    "outer product": model(
        [node("MatMul", ["a", "b"], ["y"])],
        {},
        {"a": np.ones((60000, 1), np.float32), "b": np.ones((1, 60000), np.float32)},
    ),
    "Einsum": model([node("Einsum", ["a"] * 4, ["y"], equation="i,j,k,l->ijkl")], {}, {"a": np.ones(300, np.float32)}),
    "Resize": model(
        [node("Resize", ["x", "", "s"], ["y"], mode="nearest")],
        {},
        {"x": one.reshape(1, 1, 1, 1), "s": np.array([1, 1, 60000, 60000], np.float32)},
    ),
    "parts of a sequence": model(
        [
            node("SplitToSequence", ["x"], ["q"], keepdims=0),
            node("ConcatFromSequence", ["q"], ["y"], axis=0, new_axis=1),
        ],
        {"x": [300_000]},
        {},
    ),
    "NonMaxSuppression": model(
        [node("NonMaxSuppression", ["b", "s", "m"], ["y"])],
        {},
        {"b": np.ones((1, 30000, 4), np.float32), "s": np.ones((1, 1, 30000), np.float32), "m": np.int64(10**6)},
        T.INT64,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MODELS))
def test_it_ends_soon_and_takes_little(name: str) -> None:
    host_target()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_CPU, (_PROCESSOR_SECONDS, _PROCESSOR_SECONDS))
            compile_model(ModelSource.of(MODELS[name]), host_target(), workers=0)
            status = 0
        except IngotError as error:
            status = 0 if error.blame is Blame.USER else 1
            print(error, file=sys.stderr)
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
