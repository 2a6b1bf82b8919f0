"""Models of a few hundred bytes that name billions of elements are compiled, or refused in a sentence, in seconds and little memory."""

from __future__ import annotations

import os
import resource
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.fallback import OptimisationFaultWarning
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
WIDE = [f"x{i}" for i in range(5000)]
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
    "Concat of a symbol each": model([node("Concat", WIDE, ["y"], axis=0)], {n: [f"n{n}"] for n in WIDE}, {}),
    "Concat of very many": model([node("Concat", ["x"] * 200_000, ["y"], axis=0)], {"x": ["n"]}, {}),
    "Sum of many": model([node("Sum", WIDE, ["y"])], {n: [4] for n in WIDE}, {}),
    "a tower of remainders": model(
        [
            node("Shape", ["x"], ["m0"]),
            *(
                n
                for i in range(1500)
                for n in (node("Mod", [f"m{i}", f"k{i % 7}"], [f"q{i}"]), node("Add", [f"q{i}", "m0"], [f"m{i + 1}"]))
            ),
            node("Identity", ["m1500"], ["y"]),
        ],
        {"x": ["n"]},
        {f"k{i}": np.array([i + 2]) for i in range(7)},
        T.INT64,
    ),
    "Det": model([node("ConstantOfShape", ["s"], ["r"]), node("Det", ["r"], ["y"])], {}, {"s": np.array([3000, 3000])}),
    "GridSample": model(
        [node("ConstantOfShape", ["s"], ["g"]), node("GridSample", ["x", "g"], ["y"])],
        {},
        {"x": np.ones((1, 1, 3, 3), np.float32), "s": np.array([1, 5000, 5000, 2])},
    ),
    "TfIdfVectorizer": model(
        [
            node(
                "TfIdfVectorizer",
                ["t"],
                ["y"],
                max_gram_length=1,
                max_skip_count=0,
                min_gram_length=1,
                mode="TF",
                ngram_counts=[0],
                ngram_indexes=[1 << 40],
                pool_int64s=[1],
            )
        ],
        {},
        {"t": np.array([1, 2])},
    ),
}


@pytest.mark.sampled
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
            warnings.simplefilter("error", OptimisationFaultWarning)
            compile_model(ModelSource.of(MODELS[name]), host_target(), workers=0)
            status = 0
        except IngotError as error:
            status = 0 if error.blame is Blame.USER else 1
            print(error, file=sys.stderr)
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
