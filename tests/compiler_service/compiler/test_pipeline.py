"""The whole compiler on small models: levels agree, equal inputs give equal bytes, any size runs, errors name the node."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench.calls import sum_model
from compiler_service.compiler.backends import llvm
from compiler_service.compiler.backends.table import backend_of
from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import (
    ModelSource,
    allowed_methods,
    check_model,
    compile_model,
    inference,
    optimize,
    tune_model,
    verify_artifact,
)
from compiler_service.compiler.program.definitions import define_kernels
from compiler_service.compiler.program.kernels import TuningRecordWarning, distinct_kernels
from compiler_service.compiler.program.variants import import_variants
from compiler_service.compiler.progress import Log, silent
from compiler_service.compiler.reference.comparison import compare
from compiler_service.compiler.schedule.language.steps import Split
from compiler_service.compiler.tune.measuring.trial import OutcomeKind
from compiler_service.compiler.tune.records.book import merge
from compiler_service.compiler.tune.records.journal import Journal
from compiler_service.compiler.tune.records.lines import read_lines, write_lines
from compiler_service.compiler.tune.records.record import TrialRecord, Workload
from compiler_service.stages.compiler import RUN_ONCE
from runtime_service.loading.loader import load_model
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import parse_target
from shared_ir.plan.json_form import write_plan
from tests.cases import every
from tests.compiler_service.compiler.tune.records.trials import trial


def image_model() -> bytes:
    """Convolutions of every kind, batch norm, pooling, a gate, a residual: dynamic batch, height and width."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array((rng.standard_normal(shape) * 0.3).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c0", "s", "t", "mu", "var"], ["n0"]),
        helper.make_node("HardSwish", ["n0"], ["h0"]),
        helper.make_node("Conv", ["h0", "w1"], ["c1"], kernel_shape=[5, 5], pads=[2, 2, 2, 2], group=24),
        helper.make_node("GlobalAveragePool", ["c1"], ["g"]),
        helper.make_node("Conv", ["g", "w2"], ["c2"], kernel_shape=[1, 1]),
        helper.make_node("Sigmoid", ["c2"], ["gate"]),
        helper.make_node("Mul", ["c1", "gate"], ["m"]),
        helper.make_node("Conv", ["m", "w3"], ["c3"], kernel_shape=[1, 1]),
        helper.make_node("Add", ["c3", "h0"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["p"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"], axis=0),
        helper.make_node("Concat", ["batch", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["p", "target"], ["flat"]),
        helper.make_node("ReduceMean", ["flat", "last"], ["mean"], keepdims=0),
        helper.make_node("MatMul", ["mean", "w4"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["y"], axis=-1),
    ]
    initializers = [
        *(weight("w0", 24, 3, 3, 3), weight("b0", 24), weight("w1", 24, 1, 5, 5), weight("w2", 24, 24, 1, 1)),
        *(weight("w3", 24, 24, 1, 1), weight("w4", 24, 10), weight("s", 24), weight("t", 24), weight("mu", 24)),
        numpy_helper.from_array(rng.uniform(0.5, 1.5, 24).astype(np.float32), "var"),
        numpy_helper.from_array(np.array([0], np.int64), "zero"),
        numpy_helper.from_array(np.array([24, -1], np.int64), "rest"),
        numpy_helper.from_array(np.array([2], np.int64), "last"),
    ]
    graph = helper.make_graph(
        nodes,
        "image",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return bytes(model.SerializeToString())


def text_model() -> bytes:
    """One attention layer with dynamic sequence length: transposes, batched matmuls, softmax, layer norm, GELU."""
    rng = np.random.default_rng(1)
    width, heads = 32, 4

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array((rng.standard_normal(shape) * 0.2).astype(np.float32), name)

    def head(name: str) -> list[onnx.NodeProto]:
        return [
            helper.make_node("MatMul", ["e", f"w{name}"], [f"m{name}"]),
            helper.make_node("Reshape", [f"m{name}", "split"], [f"r{name}"]),
            helper.make_node("Transpose", [f"r{name}"], [f"t{name}"], perm=[0, 2, 1, 3]),
        ]

    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], axis=0),
        *head("q"),
        *head("k"),
        *head("v"),
        helper.make_node("Transpose", ["tk"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["tq", "kt"], ["scores"]),
        helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "tv"], ["o"]),
        helper.make_node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["ot", "join"], ["oj"]),
        helper.make_node("MatMul", ["oj", "wo"], ["out"]),
        helper.make_node("Add", ["out", "e"], ["res"]),
        helper.make_node("LayerNormalization", ["res", "gamma", "beta"], ["ln"], axis=-1),
        helper.make_node("MatMul", ["ln", "w1"], ["f"]),
        helper.make_node("Gelu", ["f"], ["a"]),
        helper.make_node("MatMul", ["a", "w2"], ["y"]),
    ]
    initializers = [
        *(weight(n, width, width) for n in ("wq", "wk", "wv", "wo")),
        *(weight("table", 50, width), weight("w1", width, 4 * width), weight("w2", 4 * width, width)),
        *(weight("gamma", width), weight("beta", width)),
        numpy_helper.from_array(np.array([0, 0, heads, width // heads], np.int64), "split"),
        numpy_helper.from_array(np.array([0, 0, width], np.int64), "join"),
        numpy_helper.from_array(np.float32(0.35), "scale"),
    ]
    graph = helper.make_graph(
        nodes,
        "text",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n", "seq"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "seq", width])],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return bytes(model.SerializeToString())


MODELS = {"image": image_model(), "text": text_model()}
SIZES: dict[str, list[tuple[int, ...]]] = {
    "image": [(1, 3, 16, 16), (2, 3, 21, 34), (3, 3, 64, 8)],
    "text": [(1, 1), (2, 7), (1, 33)],
}


@cache
def compiled(model: str, **options: Any) -> CompiledArtifact:
    return anew(model, **options)


def anew(model: str, **options: Any) -> CompiledArtifact:
    return compile_model(ModelSource.of(MODELS[model]), host_target(), CompileOptions(**options), workers=0)


def feed(model: str, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return rng.integers(0, 50, shape) if model == "text" else rng.standard_normal(shape).astype(np.float32)


def reference(model: str, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(MODELS[model], providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {session.get_inputs()[0].name: x})
    return np.asarray(result)


@pytest.mark.sampled
@pytest.mark.parametrize("model", every(MODELS, quick={"text"}))
@pytest.mark.parametrize("level", [*(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1, 2)), 3])
def test_every_level_matches_onnx_runtime_at_every_size(model: str, level: int) -> None:
    with load_model(compiled(model, opt_level=level), threads=1) as loaded:
        for shape in SIZES[model]:
            x = feed(model, shape)
            (got,) = loaded.run({loaded.inputs[0].name: x}).values()
            wanted = reference(model, x)
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_executors_and_thread_counts_give_the_same_bits(model: str) -> None:
    artifact = compiled(model)
    x = feed(model, SIZES[model][1])
    results = []
    for threads in (1, 2, 3):
        for executor in ("aot", "graph"):
            with load_model(artifact, threads=threads, executor=executor) as loaded:
                (got,) = loaded.run({loaded.inputs[0].name: x}).values()
                results.append(got.tobytes())
    assert len(set(results)) == 1


@pytest.mark.slow
def test_equal_inputs_give_equal_bytes() -> None:
    first, second = compiled("image"), anew("image")
    assert first.manifest == second.manifest
    assert (first.library, first.weights, write_plan(first.plan)) == (
        second.library,
        second.weights,
        write_plan(second.plan),
    )


@pytest.mark.slow
def test_everything_that_changes_code_is_in_the_key() -> None:
    keys = {
        compiled("text").manifest.key,
        compiled("text", opt_level=2).manifest.key,
        anew("text", shapes={"ids": (1, "seq")}).manifest.key,
        compiled("image").manifest.key,
    }
    assert len(keys) == 4


@pytest.mark.slow
def test_a_disabled_pass_does_not_run() -> None:
    plain = compiled("image", disabled_passes=("choose-layout",))
    assert plain.library != compiled("image").library
    with pytest.raises(IngotError, match="unknown pass 'no-such-pass'"):
        compiled("image", disabled_passes=("no-such-pass",))


@pytest.mark.slow
def test_layers_of_equal_shape_share_a_kernel() -> None:
    plan = compiled("text").plan
    assert len(plan.kernels) < len(plan.steps)


@pytest.mark.slow
def test_every_preset_compiles() -> None:
    for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4", "raspberry-pi/4b", "aws/graviton3", "armv7/generic"):
        artifact = compile_model(ModelSource.of(MODELS["text"]), parse_target(name), workers=0)
        assert artifact.library[:4] == b"\x7fELF"
        assert artifact.manifest.triple == parse_target(name).triple


@pytest.mark.slow
def test_verification_finds_a_wrong_answer() -> None:
    source, artifact = ModelSource.of(MODELS["image"]), compiled("image")
    report = verify_artifact(artifact, source, CompileOptions(), RUN_ONCE)
    assert report["state"] == "verified"
    assert report["outputs"][0]["max_rel_error"] < 1e-4
    right = np.ones((1, 10), np.float32)
    with pytest.raises(IngotError) as caught:
        compare(artifact.plan.outputs, [right * 1.01], [right])
    assert caught.value.code is ErrorCode.NUMERIC_MISMATCH
    assert caught.value.tensor == "y"


def confirmed(record: TrialRecord) -> TrialRecord:
    """As if it had been twice as fast as the default schedule."""
    return replace(record, confirmed=True, seconds=1e-4, default_seconds=2e-4, outcome=OutcomeKind.MEASURED, time=1e10)


@pytest.mark.slow
def test_tuning_records_are_used_by_the_next_compilation(tmp_path: Path) -> None:
    source, options = ModelSource.of(MODELS["image"]), CompileOptions(shapes={"x": (1, 3, 256, 256)})
    told: list[tuple[str, int, int, str]] = []
    for seconds in (20, 80, 320):  # a machine that others share may need longer for its first candidate
        told.clear()
        limited = replace(options, tune=seconds)
        records = tune_model(
            source, host_target(), limited, lambda *said: told.append(said), journal=tmp_path / "trials"
        )
        if any(re.search(r"\d+ trials, [\d.]+ ms of", message) for *_, message in told):
            break
    else:
        pytest.fail(f"in {seconds} s nothing was measured: {told}")
    found, unreadable = read_lines(records)
    assert found
    assert not unreadable.count
    assert {r.target for r in found} == {str(host_target())}
    assert merge(Journal(tmp_path / "trials").read_new()) == merge(found), "each was written down as it ended"
    tuning = [said for said in told if said[0] == "tune"]
    assert all(done <= total <= seconds for _, done, total, _ in tuning), "seconds, of those that it has"
    measured = next(r for r in found if r.outcome is OutcomeKind.MEASURED)
    data = write_lines([*found, confirmed(measured)])
    tuned = compile_model(source, host_target(), options, records=data, workers=0)
    assert "tuned" in tuned.report["rules"].values()
    assert tuned.manifest.key != compile_model(source, host_target(), options, workers=0).manifest.key
    x = feed("image", (1, 3, 256, 256))
    with load_model(tuned, threads=1) as loaded:
        (got,) = loaded.run({"x": x}).values()
    np.testing.assert_allclose(got, reference("image", x), rtol=1e-4, atol=1e-6)


def test_records_that_a_compilation_cannot_use_change_nothing() -> None:
    source, options = ModelSource.of(MODELS["text"]), CompileOptions()
    plain = compile_model(source, host_target(), options, workers=0)
    foreign = write_lines([trial(), trial(compiler="old", confirmed=True), trial(confirmed=True)]) + b"no record\n\xff"
    other = compile_model(source, host_target(), options, records=foreign, workers=0)
    assert other.manifest.key == plain.manifest.key
    assert bytes(other.library) == bytes(plain.library)


def test_a_record_that_does_not_fit_its_kernel_is_passed_over() -> None:
    """Its checksum is right, and what it says is not: somebody wrote it."""
    source, target = ModelSource.of(MODELS["text"]), host_target()
    plain = compile_model(source, target, CompileOptions(), workers=0)
    variants = import_variants(source, CompileOptions().import_options, inference(), fast=True)
    log = Log.from_environment(silent)
    defined = [define_kernels(optimize(v, target, CompileOptions(), log)) for v in variants]
    kernels, _ = distinct_kernels((v.definitions, v.constants) for v in defined)
    methods = tuple(sorted(allowed_methods(CompileOptions(), backend_of(target))))
    lies = [
        confirmed(
            trial(
                Workload.of(k.key, "?"), schedules=((Split("nowhere", "m", 3),),), target=str(target), methods=methods
            )
        )
        for k in kernels
    ]
    with pytest.warns(TuningRecordWarning, match="does not fit, and is passed over"):
        artifact = compile_model(source, target, CompileOptions(), records=write_lines(lies), workers=0)
    assert artifact.report["rules"] == plain.report["rules"]
    assert artifact.manifest.key != plain.manifest.key


def test_tuning_for_another_machine_is_refused() -> None:
    with pytest.raises(IngotError, match="tuning measures on the machine that compiles"):
        tune_model(ModelSource.of(MODELS["text"]), parse_target("raspberry-pi/4b"), CompileOptions(tune=60))


def test_check_lists_nothing_for_a_good_model() -> None:
    assert not check_model(ModelSource.of(MODELS["image"])).obstacles


def test_a_kernel_that_no_code_can_be_made_of_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(*_: Any) -> str:
        raise IngotError(ErrorCode.COMPILER_FAULT, "no code is made today")

    monkeypatch.setattr(llvm, "emit_kernel", breaks)
    monkeypatch.setenv("DEBUG", "4")
    with pytest.raises(IngotError, match="no code is made today"):
        compile_model(ModelSource(sum_model().SerializeToString()), host_target(), CompileOptions(opt_level=0))
    said = capsys.readouterr().err
    assert "(rule: " in said
    assert said.count("function k") == 2, "as it was lowered, and behind all passes"
