"""One model for several machines, from one machine: compiled, kept in one folder, and looked at; each machine loads what is its own.

python examples/cross_compile.py
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import ingot
from ingot import te

TARGETS = ("host", "x86-64-v2", "aarch64/generic", "armv7/generic", "riscv64/rvv")
"""The machine that compiles, and machines that have a name; ``ingot targets`` lists them all. Text such as
``llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72`` describes any other."""
LOOKED_AT = {"aarch64/generic": "fadd", "riscv64/rvv": "vfadd"}
"""Targets, and what their instruction is called that adds vectors of floats."""


def a_model() -> onnx.ModelProto:
    """A picture of one channel to ten numbers; how many pictures there are is known when it runs."""
    draw = np.random.default_rng(0)
    weights = {
        "filters": draw.standard_normal((8, 1, 3, 3), dtype=np.float32),
        "classes": draw.standard_normal((8, 10), dtype=np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["picture", "filters"], ["edges"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["edges"], ["found"]),
        helper.make_node("GlobalAveragePool", ["found"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["features"]),
        helper.make_node("MatMul", ["features", "classes"], ["scores"]),
    ]
    picture = helper.make_tensor_value_info("picture", TensorProto.FLOAT, ("n", 1, 28, 28))
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ("n", 10))
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "digits", [picture], [scores], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


# 1. Code for another machine is compiled as that for this one: schedules follow its vectors, caches and cores.


def compiled(model: onnx.ModelProto) -> dict[str, ingot.Artifact]:
    return {name: ingot.compile(model, target=name) for name in TARGETS}


def table(artifacts: Mapping[str, ingot.Artifact]) -> str:
    lines = [f"{'target':18}{'triple':24}{'cpu':16}{'vectors':>8}{'library':>12}{'weights':>10}"]
    for name, artifact in artifacts.items():
        target, weights = ingot.Target.parse(name), len(bytes(artifact.weights))
        sizes = f"{target.vector_bits:>8}{len(artifact.library):>10} B{weights:>8} B"
        lines.append(f"{name:18}{artifact.manifest.triple:24}{artifact.manifest.cpu:16}{sizes}")
    return "\n".join(lines)


# 2. What another machine's code looks like: a function of a schedule can be built and looked at here, though not called.


def innermost_loop(target: str, instruction: str) -> str:
    """The sum of two vectors in assembly of ``target``: what stands around ``instruction``, which adds vectors."""
    n = te.var("n")
    a, b = te.placeholder((n,), name="a"), te.placeholder((n,), name="b")
    total = te.compute((n,), lambda i: a[i] + b[i], name="total")
    s = te.schedule(total)
    s[total].vectorize("i", ingot.Target.parse(target).vector_bits // 32)
    blocks = re.split(r"\.L\w+:\n", te.build(s, [a, b], target=target, name="add").inspect("asm"))
    return next(block for block in blocks if instruction in block).rstrip()


def main() -> None:
    model = a_model()
    artifacts = compiled(model)
    print(f"-- one model, {len(artifacts)} machines\n\n{table(artifacts)}\n")
    for target, instruction in LOOKED_AT.items():
        print(f"-- the innermost loop of the sum of two vectors, {target}\n\n{innermost_loop(target, instruction)}\n")

    # 3. All of them are one version of the model: an OCI image with a manifest for each machine, signed as a whole.
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "digits"
        digest = ingot.save_artifacts(list(artifacts.values()), place, tag="1.0", home=folder)
        blobs = [file.stat().st_size for file in place.glob("blobs/sha256/*")]
        print(f"-- saved as {digest}: {len(blobs)} files, {sum(blobs)} bytes\n")

        # 4. Who loads it gets what was compiled for the machine that it is loaded on; of several, the one that uses most of it.
        loaded = ingot.load(place, home=folder)

    pictures = np.random.default_rng(1).random((3, 1, 28, 28), dtype=np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"picture": pictures})
    found = loaded.run({"picture": pictures})["scores"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    print(f"-- run here, and right: {found.shape[1]} numbers for each of {len(found)} pictures\n")

    # 5. The others say whose they are.
    for name in LOOKED_AT:
        try:
            ingot.load(artifacts[name])
        except ingot.IngotError as error:
            print(f"-- {name}: {error}")


if __name__ == "__main__":
    main()
