"""Code generators of one's own: the C99 of the examples makes kernels of every kind, and answers as ours does."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ingot
from examples.c99_backend import C99Backend, main, small_network
from ingot.codegen import LlvmBackend, SourceCode

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
TARGET = f"c99 -mtriple={platform.machine()}-linux-gnu"


@pytest.fixture(autouse=True)
def backend() -> C99Backend:
    registered = C99Backend()
    ingot.register_backend("c99", registered)
    return registered


def answers(artifact: ingot.Artifact, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return list(ingot.load(artifact, threads=1).run(feeds).values())


def test_the_example_agrees_with_our_own(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    assert re.search(r"largest difference of two code generators: \d", capsys.readouterr().out)


def test_every_kernel_is_of_the_registered_generator(backend: C99Backend) -> None:
    artifact = ingot.compile(small_network(), target=TARGET)
    assert len(backend.written) == artifact.report["kernels"]
    assert all(text.startswith("#include <stdint.h>") for text in backend.written.values())
    assert not artifact.report["faults"]


def test_files_and_bytes_are_compiled_in_the_process_that_knows_the_generator() -> None:
    data = small_network().SerializeToString()
    assert ingot.compile(data, target=TARGET).manifest.key == ingot.compile(small_network(), target=TARGET).manifest.key


def test_an_artifact_is_known_by_its_generator() -> None:
    class Another(C99Backend):
        version = "c99-2"

    first = ingot.compile(small_network(), target=TARGET).manifest
    ingot.register_backend("c99", Another())
    second = ingot.compile(small_network(), target=TARGET).manifest
    assert first.compiler_version.endswith("+c99-1")
    assert second.compiler_version.endswith("+c99-2")
    assert first.key != second.key


@pytest.mark.parametrize(
    ("op", "attributes", "extents"),
    [
        ("Softmax", {}, (["n", 7],)),
        ("ReduceMean", {"axes": [1]}, (["n", 9, 4],)),
        ("Tanh", {}, ([3, 5],)),
        ("Sigmoid", {}, (["n"],)),
        ("MatMul", {}, (["n", 5], [5, 33])),
        ("GlobalAveragePool", {}, (["n", 3, 5, 5],)),
        ("Transpose", {"perm": [1, 0]}, (["n", 6],)),
        ("Concat", {"axis": 1}, (["n", 3], ["n", 4])),
    ],
)
def test_operators(op: str, attributes: dict[str, int | list[int]], extents: tuple[list[str | int], ...]) -> None:
    names = [f"x{i}" for i in range(len(extents))]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, e) for n, e in zip(names, extents, strict=True)]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attributes)], op, inputs, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    random = np.random.default_rng(3)
    feeds = {
        n: random.standard_normal([d if isinstance(d, int) else 4 for d in e]).astype(np.float32)
        for n, e in zip(names, extents, strict=True)
    }
    (ours,), (theirs,) = answers(ingot.compile(model, target=TARGET), feeds), answers(ingot.compile(model), feeds)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(p.stem for p in LIGHT.glob("*.onnx")))
def test_light_models(name: str) -> None:
    model = onnx.load(LIGHT / f"{name}.onnx")
    constant = {i.name for i in model.graph.initializer}
    feeds = {
        i.name: np.random.default_rng(0)
        .standard_normal([d.dim_value or 1 for d in i.type.tensor_type.shape.dim])
        .astype(np.float32)
        for i in model.graph.input
        if i.name not in constant
    }
    (ours,), (theirs,) = answers(ingot.compile(model, target=TARGET), feeds), answers(ingot.compile(model), feeds)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


def test_what_it_cannot_write_names_the_kernel() -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT16, [4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "half", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with pytest.raises(ingot.IngotError, match="no C for the type float16") as caught:
        ingot.compile(model, target=TARGET)
    assert caught.value.code is ingot.ErrorCode.UNSUPPORTED_OPERATOR


def test_a_kind_that_nobody_registered_is_no_target() -> None:
    with pytest.raises(ingot.IngotError) as caught:
        ingot.compile(small_network(), target="wasm -mtriple=x86_64-linux-gnu")
    assert caught.value.code is ingot.ErrorCode.INVALID_TARGET


@pytest.mark.parametrize("kind", ["llvm", "host", "", "C99", "a b", "9x", "a" * 33])
def test_names_that_are_none(kind: str) -> None:
    with pytest.raises(ingot.IngotError, match="no kind of targets"):
        ingot.register_backend(kind, LlvmBackend())


def test_a_generator_that_is_wrong_breaks_only_its_own_compilation() -> None:
    class Wrong(C99Backend):
        def kernel(self, *_: object) -> SourceCode:
            return SourceCode("c", "this is no C")

    ingot.register_backend("c99", Wrong())
    with pytest.raises(ingot.IngotError) as caught:
        ingot.compile(small_network(), target=TARGET)
    assert caught.value.code is ingot.ErrorCode.COMPILER_FAULT
    assert ingot.compile(small_network()).library
