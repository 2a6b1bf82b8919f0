"""``ingot.compile``, ``Artifact.save``, ``ingot.load``: in one process, no service."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import ingot
from runtime_service.loading.loader import ExecutorKind
from shared_ir.errors import ErrorCode
from tests.ingot.small_models import classifier, expected_scores, scale, unsupported


@pytest.fixture(scope="module")
def artifact() -> ingot.Artifact:
    return ingot.compile(classifier(), workers=0)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 3, 8, 8), (3, 3, 5, 17), (2, 3, 1, 1)])
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_one_compilation_runs_at_every_size(
    artifact: ingot.Artifact, shape: tuple[int, ...], executor: ExecutorKind
) -> None:
    image = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    with ingot.load(artifact, threads=1, executor=executor) as model:
        scores = model.run({"image": image})["scores"]
    np.testing.assert_allclose(scores, expected_scores(classifier(), image), rtol=1e-4, atol=1e-6)


def test_what_a_model_says_of_itself(artifact: ingot.Artifact) -> None:
    with ingot.load(artifact) as model:
        assert [(t.name, str(t.dtype), len(t.shape)) for t in model.inputs] == [("image", "float32", 4)]
        assert [t.name for t in model.outputs] == ["scores"]
        launches = model.profile({"image": np.ones((1, 3, 8, 8), np.float32)}, repeat=2)
    assert any(launch.flops > 0 for launch in launches)
    assert artifact.report["kernels"] == len(artifact.plan.kernels)
    assert artifact.manifest.options["opt_level"] == 3


def test_save_and_load(artifact: ingot.Artifact, tmp_path: Path) -> None:
    folder, home = tmp_path / "model", tmp_path / "home"
    artifact.save(folder, home=home)
    artifact.save(folder, "other", home=home)
    image = np.ones((1, 3, 4, 4), np.float32)
    with ingot.load(folder, tag="latest", home=home) as model, ingot.load(artifact) as same:
        assert np.array_equal(model.run({"image": image})["scores"], same.run({"image": image})["scores"])
    with pytest.raises(ingot.IngotError, match="latest, other"):
        ingot.load(folder, home=home)
    with pytest.raises(ingot.IngotError) as caught:
        ingot.load(folder, tag="latest", home=tmp_path / "stranger")
    assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED


@pytest.mark.slow
def test_the_same_input_gives_the_same_artifact(artifact: ingot.Artifact) -> None:
    again = ingot.compile(classifier().SerializeToString(), workers=0)
    assert again.manifest.key == artifact.manifest.key
    assert again.library == artifact.library
    assert ingot.compile(classifier(), opt_level=1, workers=0).manifest.key != artifact.manifest.key


def test_shapes_can_be_pinned_and_named(tmp_path: Path) -> None:
    path = tmp_path / "scale.onnx"
    path.write_bytes(scale().SerializeToString())
    pinned = ingot.compile(path, shapes={"x": [2, None]}, workers=0)
    assert pinned.plan.inputs[0].shape == (2, 4)
    with ingot.load(pinned) as model, pytest.raises(ingot.IngotError, match="axis 0"):
        model.run({"x": np.ones((3, 4), np.float32)})


def test_progress_is_told() -> None:
    seen = []
    ingot.compile(scale(), workers=0, progress=lambda stage, done, total, message: seen.append(stage))
    assert {"import", "passes", "codegen", "link"} <= set(seen)


def test_a_cross_compiled_artifact_is_refused_by_this_machine() -> None:
    foreign = "riscv64" if sys.platform == "linux" else "aarch64"
    artifact = ingot.compile(scale(), "llvm -mtriple=riscv64-linux-gnu -mcpu=generic-rv64", workers=0)
    assert artifact.manifest.triple.startswith(foreign)
    with pytest.raises(ingot.IngotError) as caught:
        ingot.load(artifact)
    assert caught.value.code is ErrorCode.ARTIFACT_INCOMPATIBLE


def test_bundle_is_a_program_with_the_weights_inside(tmp_path: Path) -> None:
    artifact = ingot.compile(scale(), workers=0, bundle="executable")
    program, x = tmp_path / "program", np.arange(8, dtype=np.float32).reshape(2, 4)
    program.write_bytes(artifact.attachments["program"])
    program.chmod(0o755)
    x.tofile(tmp_path / "x.bin")
    subprocess.run([program, tmp_path / "x.bin", tmp_path / "y.bin"], check=True, capture_output=True)
    assert np.array_equal(np.fromfile(tmp_path / "y.bin", np.float32).reshape(2, 4), 2 * x)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"model": b""}, ErrorCode.INVALID_MODEL),
        ({"model": "no/such/file.onnx"}, ErrorCode.NOT_FOUND),
        ({"model": 7}, ErrorCode.INVALID_ARGUMENT),
        ({"model": unsupported()}, ErrorCode.UNSUPPORTED_DOMAIN),
        ({"model": scale(), "target": "commodore-64"}, ErrorCode.INVALID_TARGET),
        ({"model": scale(), "opt_level": 9}, ErrorCode.INVALID_ARGUMENT),
        ({"model": scale(), "no_such_option": 1}, ErrorCode.INVALID_ARGUMENT),
        ({"model": scale(), "bundle": "zip"}, ErrorCode.INVALID_ARGUMENT),
        ({"model": scale(), "shapes": {"nothing": [1]}}, ErrorCode.INVALID_ARGUMENT),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_a_reason(arguments: dict[str, Any], code: ErrorCode) -> None:
    with pytest.raises(ingot.IngotError) as caught:
        ingot.compile(workers=0, **arguments)
    assert caught.value.code is code
    assert caught.value.message


def test_import_loads_neither_compiler_nor_runtime_nor_grpc() -> None:
    heavy = ("onnx", "llvmlite", "grpc", "cryptography", "rich", "compiler_service", "runtime_service", "redis")
    script = f"import sys, ingot; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_an_extent_that_is_1_in_the_run_alone_broadcasts(executor: ExecutorKind) -> None:
    inputs = [onnx.helper.make_tensor_value_info(name, 1, [extent, 4]) for name, extent in (("a", "n"), ("b", "m"))]
    node = onnx.helper.make_node("Add", ["a", "b"], ["y"], name="sum")
    graph = onnx.helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    feeds = {"a": np.ones((3, 4), np.float32), "b": np.full((1, 4), 2, np.float32)}
    loaded = ingot.load(ingot.compile(model, workers=0), threads=1, executor=executor)
    with loaded:
        assert loaded.run(feeds)["y"].tolist() == [[3.0] * 4] * 3
        with pytest.raises(ingot.IngotError, match="node 'sum': m and n must be equal or 1"):
            loaded.run(feeds | {"b": np.ones((2, 4), np.float32)})


def test_no_verification_is_promised_where_none_is_done() -> None:
    with pytest.raises(ingot.IngotError, match="nothing is compared") as caught:
        ingot.compile(classifier(), workers=0, verification="required")
    assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, "verification")


def test_what_is_closed_is_closed_at_the_end_of_a_with() -> None:
    closed = [each for name in ingot.__all__ if hasattr(each := getattr(ingot, name), "close")]
    assert {each.__name__ for each in closed} == {"Client", "Endpoint", "Model"}
    for each in closed:
        assert hasattr(each, "__enter__"), each
    with ingot.Endpoint("127.0.0.1:1") as endpoint:
        pass
    with pytest.raises(ingot.IngotError, match="the client is closed"):
        endpoint.inputs("m")
