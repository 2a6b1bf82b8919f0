"""Parts of models for code generators of others, through public names: patterns, the three passes, and what runs in the end."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot import codegen, ir

Executor = Literal["aot", "graph"]

RANDOM = np.random.default_rng(0)
EXECUTORS: tuple[Executor, ...] = ("aot", "graph")

SCALING = """
#include <stdlib.h>
#include <string.h>
static int32_t open_part(const void *const *constants, int32_t threads, void **state, char *error) {
  float *kept = malloc(sizeof(float));
  *kept = *(const float *)constants[0];
  *state = kept;
  return 0;
}
static int32_t run_part(void *state, void *const *buffers, const int64_t *symbols, char *error) {
  const float *x = buffers[0], *scale = state;
  float *y = buffers[2];
  if (symbols[0] == 13) { strcpy(error, "thirteen is not computed"); return 4; }
  for (int64_t i = 0; i < symbols[0]; i++) y[i] = x[i] > 0 ? x[i] * *scale : 0;
  return 0;
}
"""


class Scaling(codegen.ExternalCodegen):
    """``Relu(x) * s`` of a vector; ``made`` is what it was asked for."""

    version = "scaling-1"

    def __init__(self, opens: str = "open_part", patterns: Sequence[str] = ("Mul(Relu(x), s)",)) -> None:
        self.opens = opens
        self.made: list[ir.Graph] = []
        self._patterns = tuple(
            codegen.NodePattern(text, constants=frozenset({"s"} if "s" in text else ())) for text in patterns
        )

    @property
    def patterns(self) -> Sequence[codegen.NodePattern]:
        return self._patterns

    def part(self, graph: ir.Graph, target: codegen.Target, symbol: str) -> bytes:
        self.made.append(graph)
        refuse = 'static int32_t refuse(const void *const *c, int32_t t, void **s, char *e) { strcpy(e, "there is no library"); return 3; }'
        tail = f"const ingot_part {symbol} = {{{self.opens}, run_part, free}};"
        return codegen.compile_c("\n".join((codegen.part_header(), SCALING, refuse, tail)), target)


@pytest.fixture
def scaling() -> Scaling:
    own = Scaling()
    codegen.register_external("scaling", own)
    return own


def scaled(scale: float = 3.0) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"], "twice"),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("Mul", ["s", "r"], ["m"], "scale"),
        helper.make_node("Neg", ["m"], ["y"], "neg"),
    ]
    return model_of(nodes, {"x": ("n",)}, {"s": np.array([scale], np.float32)})


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int | str, ...]],
    weights: dict[str, np.ndarray],
    output: str = "y",
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def parts_of(module: ir.Module) -> list[str]:
    return [str(n.attributes["function"]) for n in module.main.graph.nodes if n.op == "ingot.Invoke"]


def partition(model: onnx.ModelProto, name: str = "scaling") -> ir.Module:
    passes = [ir.passes.AnnotateTarget(name), ir.passes.MergeRegions(), ir.passes.PartitionGraph()]
    return ir.Sequential(passes)(ir.from_onnx(model))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_part_is_computed_by_its_code_generator(scaling: Scaling, executor: Executor, tmp_path: Path) -> None:
    module = partition(scaled())
    artifact = ingot.compile(module)
    assert [(k.part, k.constants) for k in artifact.plan.kernels] == [("", 0), ("scaling", 1), ("", 0)]
    (graph,) = scaling.made
    assert [n.op for n in graph.nodes] == ["Relu", "Mul"]
    assert [a.tolist() for a in graph.constants.values()] == [[3.0]]
    artifact.save(tmp_path)
    told = subprocess.run(
        [sys.executable, "-m", "ingot", "inspect", str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"^parts +1 by scaling *$", told, re.MULTILINE), told
    for source in (artifact, tmp_path):
        with ingot.load(source, executor=executor) as model:
            for count in (5, 0, 1, 5):
                x = RANDOM.standard_normal(count).astype(np.float32)
                np.testing.assert_array_equal(model.run({"x": x})["y"], -np.maximum(x * 2, 0) * np.float32(3))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_part_that_fails_ends_its_run_alone(scaling: Scaling, executor: Executor) -> None:
    with ingot.load(ingot.compile(partition(scaled())), executor=executor) as model:
        with pytest.raises(ingot.IngotError, match="thirteen is not computed") as caught:
            model.run({"x": np.ones(13, np.float32)})
        assert caught.value.code is ingot.ErrorCode.INTERNAL
        assert model.run({"x": np.ones(2, np.float32)})["y"].tolist() == [-6.0, -6.0]


def test_a_part_that_cannot_be_opened_is_told_at_load() -> None:
    codegen.register_external("scaling", Scaling("refuse"))
    artifact = ingot.compile(partition(scaled()))
    with pytest.raises(ingot.IngotError, match="there is no library") as caught, ingot.load(artifact) as model:
        model.run({"x": np.ones(2, np.float32)})
    assert caught.value.code is ingot.ErrorCode.ARTIFACT_INCOMPATIBLE


def test_two_models_of_one_library_have_their_own_state(scaling: Scaling) -> None:
    artifacts = [ingot.compile(partition(scaled(s))) for s in (3.0, 5.0)]
    with ingot.load(artifacts[0]) as a, ingot.load(artifacts[1]) as b, ingot.load(artifacts[0]) as c:
        x = np.ones(1, np.float32)
        assert [m.run({"x": x})["y"].item() for m in (a, b, c)] == [-6.0, -10.0, -6.0]


def test_a_foreign_machine_gets_its_part_too(scaling: Scaling) -> None:
    artifact = ingot.compile(partition(scaled()), target="llvm -mtriple=aarch64-linux-gnu")
    assert [k.part for k in artifact.plan.kernels] == ["", "scaling", ""]


def test_the_version_of_a_code_generator_is_part_of_the_key(scaling: Scaling) -> None:
    first = ingot.compile(partition(scaled())).manifest.key
    scaling.version = "scaling-2"
    assert ingot.compile(partition(scaled())).manifest.key != first


def test_modules_with_parts_are_interpreted_and_read_back(scaling: Scaling) -> None:
    whole = ir.from_onnx(scaled())
    annotated = ir.passes.AnnotateTarget("scaling")(whole)
    partitioned = ir.passes.PartitionGraph()(ir.passes.MergeRegions()(annotated))
    x = RANDOM.standard_normal(7).astype(np.float32)
    for module in (annotated, partitioned):
        module.verify()
        assert str(ir.Module.parse(str(module), module.constants)) == str(module)
        np.testing.assert_array_equal(module.interpret(x)[0], whole.interpret(x)[0])


def test_what_was_only_annotated_stays_ours(scaling: Scaling) -> None:
    artifact = ingot.compile(ir.passes.AnnotateTarget("scaling")(ir.from_onnx(scaled())))
    assert [k.part for k in artifact.plan.kernels] == [""]
    assert not scaling.made


def test_the_passes_stand_in_a_pipeline(scaling: Scaling) -> None:
    pipeline = ir.default_pipeline("host")
    for own in (ir.passes.AnnotateTarget("scaling"), ir.passes.MergeRegions(), ir.passes.PartitionGraph()):
        pipeline = pipeline.before("fuse", own)
    artifact = ingot.compile(scaled(), pipeline=pipeline, in_process=True)
    assert [k.part for k in artifact.plan.kernels] == ["", "scaling", ""]
    with ingot.load(artifact) as model:
        assert model.run({"x": np.ones(2, np.float32)})["y"].tolist() == [-6.0, -6.0]


def test_a_pipeline_that_annotates_and_does_not_partition_is_refused(scaling: Scaling) -> None:
    pipeline = ir.default_pipeline("host").before("fuse", ir.passes.AnnotateTarget("scaling"))
    with pytest.raises(ingot.IngotError, match="partition-graph"):
        ingot.compile(scaled(), pipeline=pipeline, in_process=True)


def test_who_is_not_registered_is_not_found() -> None:
    with pytest.raises(ingot.IngotError, match="no code generator 'nobody'"):
        ir.passes.AnnotateTarget("nobody")
    module = ir.passes.AnnotateTarget("nobody", [codegen.NodePattern("Relu(x)")])(ir.from_onnx(scaled()))
    with pytest.raises(ingot.IngotError, match="no code generator 'nobody'"):
        ingot.compile(ir.passes.PartitionGraph()(module))
    for name in ("", "A", "x" * 33, "a b"):
        with pytest.raises(ingot.IngotError, match="is no name for a code generator"):
            codegen.register_external(name, Scaling())


def test_a_model_cannot_name_a_code_generator() -> None:
    model = model_of([helper.make_node("External", ["x"], ["y"], domain="ingot")], {"x": (3,)}, {})
    model.opset_import.append(helper.make_opsetid("ingot", 1))
    with pytest.raises(ingot.IngotError) as caught:
        ingot.compile(model)
    assert caught.value.code is ingot.ErrorCode.UNSUPPORTED_DOMAIN


# -- patterns and regions


def regions(model: onnx.ModelProto, *patterns: codegen.NodePattern, merged: bool = False) -> list[list[str]]:
    """Operators of each region."""
    module = ir.passes.AnnotateTarget("any", patterns)(ir.from_onnx(model))
    module = ir.passes.MergeRegions()(module) if merged else module
    module.verify()
    groups = (n for n in module.main.graph.nodes if n.op == "ingot.Group")
    return [[n.op for n in group.subgraphs[0].nodes] for group in groups]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mul(Relu(x), s)", [["Relu", "Mul"]]),
        ("Mul(s, Relu(x))", [["Relu", "Mul"]]),
        ("Mul(Relu(Add(x, x)), _)", [["Add", "Relu", "Mul"]]),
        ("Add(x, y)", [["Add"]]),
        ("Neg(Mul(_, s))", [["Mul", "Neg"]]),
        ("Mul(x, x)", []),
        ("Relu(x, absent_or_none)", [["Relu"]]),
        ("Relu(x, absent)", []),
        ("Relu(Relu(x))", []),
    ],
)
def test_patterns_fit(text: str, expected: list[list[str]]) -> None:
    assert regions(scaled(), codegen.NodePattern(text)) == expected


def test_a_pattern_says_which_operands_are_constants_and_what_else_must_hold() -> None:
    assert not regions(
        scaled(),
        codegen.NodePattern("Mul(r, s)", constants=frozenset({"r"}), where=lambda m: m.values["s"].name == "s"),
    )
    assert regions(scaled(), codegen.NodePattern("Mul(r, s)", constants=frozenset({"s"}))) == [["Mul"]]
    assert not regions(
        scaled(), codegen.NodePattern("Mul(r, s)", where=lambda match: match.node("Mul").name != "scale")
    )
    assert regions(
        scaled(4.0),
        codegen.NodePattern("Mul(r, s)", constants=frozenset({"s"}), where=lambda m: m.constants["s"].item() == 4.0),
    ) == [["Mul"]]


@pytest.mark.parametrize("text", ["", "x", "Relu(", "Relu(x).y", "Relu(x=1)", "Relu(3)", "Relu(x); Neg(x)", "f.g.x"])
def test_what_is_no_pattern_is_said(text: str) -> None:
    with pytest.raises(ingot.IngotError, match="is no pattern of nodes"):
        codegen.NodePattern(text)


def test_constants_that_a_pattern_does_not_name_are_refused() -> None:
    with pytest.raises(ingot.IngotError, match="is no pattern of nodes"):
        codegen.NodePattern("Relu(x)", constants=frozenset({"w"}))


def test_what_others_read_stays_outside() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Neg", ["r"], ["n"]),
        helper.make_node("Add", ["n", "r"], ["y"]),
    ]
    model = model_of(nodes, {"x": ("n",)}, {})
    assert regions(model, codegen.NodePattern("Neg(Relu(x))")) == []
    every = [codegen.NodePattern(f"{op}(x)") for op in ("Relu", "Neg")]
    assert regions(model, *every, codegen.NodePattern("Add(x, y)"), merged=True) == [["Relu", "Neg", "Add"]]
    assert regions(model, codegen.NodePattern("Relu(x)"), codegen.NodePattern("Add(x, y)"), merged=True) == [
        ["Relu"],
        ["Add"],
    ]


def test_the_first_pattern_that_fits_is_taken_from_the_outputs_up() -> None:
    patterns = codegen.NodePattern("Mul(Relu(x), s)"), codegen.NodePattern("Relu(x)"), codegen.NodePattern("Mul(x, y)")
    assert regions(scaled(), *patterns) == [["Relu", "Mul"]]
    assert regions(scaled(), *patterns[1:]) == [["Relu"], ["Mul"]]


def test_extents_that_are_sums_stay_ours() -> None:
    nodes = [helper.make_node("Concat", ["x", "x"], ["c"], axis=0), helper.make_node("Relu", ["c"], ["y"])]
    assert regions(model_of(nodes, {"x": ("n",)}, {}), codegen.NodePattern("Relu(x)")) == []
    assert regions(model_of(nodes, {"x": (4,)}, {}), codegen.NodePattern("Relu(x)")) == [["Relu"]]


def test_many_regions_are_joined_in_no_time_that_grows_with_their_square() -> None:
    """Two thousand nodes of one chain; joining them two by two, each time anew, would look at four million."""
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(2000)]
    model = model_of(nodes, {"v0": ("n",)}, {}, "v2000")
    assert [len(r) for r in regions(model, codegen.NodePattern("Relu(x)"), merged=True)] == [2000]


@pytest.mark.parametrize("seed", range(20))
def test_partitioned_graphs_mean_what_they_meant(seed: int) -> None:
    """Random graphs of sums, products and the like; any patterns of them, joined and made functions."""
    draw = np.random.default_rng(seed)
    values, nodes = ["x", "s"], list[onnx.NodeProto]()
    for i in range(25):
        op = str(draw.choice(["Add", "Mul", "Relu", "Neg", "Sub"]))
        operands = [str(draw.choice(values[-8:])) for _ in range(2 if op in ("Add", "Mul", "Sub") else 1)]
        nodes.append(helper.make_node(op, operands, [f"v{i}"]))
        values.append(f"v{i}")
    nodes.append(helper.make_node("Sum", values[2:], ["y"]))
    module = ir.from_onnx(model_of(nodes, {"x": ("n", 3)}, {"s": np.array([0.5], np.float32)}))
    texts = draw.permutation(
        ["Add(x, y)", "Mul(x, y)", "Neg(Relu(x))", "Relu(x)", "Sub(Mul(x, y), z)", "Add(Neg(x), x)"]
    )[:4]
    passes = [
        ir.passes.AnnotateTarget("any", [codegen.NodePattern(str(t)) for t in texts]),
        ir.passes.MergeRegions(),
        ir.passes.PartitionGraph(),
    ]
    x = draw.standard_normal((4, 3)).astype(np.float32)
    wanted = module.interpret(x)[0]
    for own in passes:
        module = own(module)
        module.verify()
        np.testing.assert_array_equal(module.interpret(x)[0], wanted)
    assert parts_of(module)
    assert str(ir.Module.parse(str(module), module.constants)) == str(module)


# -- oneDNN


def onednn_library() -> str:
    """The library of the wheel, or what the system has; empty: neither."""
    for name in (str(Path(sys.prefix) / "lib" / "libdnnl.so.3"), "libdnnl.so.3"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return ""


@pytest.fixture
def dnnl() -> Iterator[None]:
    library = onednn_library()
    if not library:
        pytest.skip("oneDNN is not installed: pip install onednn-cpu-gomp")
    codegen.register_external("dnnl", codegen.OneDnn(library))
    yield
    codegen.register_external("dnnl", codegen.OneDnn())


def weights(*shape: int) -> np.ndarray:
    array: np.ndarray = RANDOM.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)
    return array.astype(np.float32)


def conv(**attributes: object) -> Callable[[], tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]]:
    def make() -> tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]:
        groups = int(str(attributes.get("group", 1)))
        nodes = [
            helper.make_node("Conv", ["x", "k", "b"], ["c"], **attributes),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("Conv", ["r", "k2"], ["y"]),
        ]
        given = {"k": weights(12, 6 // groups, 3, 3), "b": weights(12), "k2": weights(5, 12, 1, 1)}
        return model_of(nodes, {"x": ("n", 6, 11, "w")}, given), {"x": (2, 6, 11, 14)}

    return make


def product() -> tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]:
    nodes = [
        helper.make_node("MatMul", ["x", "m"], ["p"]),
        helper.make_node("Add", ["b", "p"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("MatMul", ["r", "m2"], ["y"]),
    ]
    return model_of(nodes, {"x": ("n", "t", 9)}, {"m": weights(9, 7), "b": weights(7), "m2": weights(7, 4)}), {
        "x": (2, 5, 9)
    }


def product_and_convolution() -> tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]:
    """Tensors of four axes that products see as matrices."""
    nodes = [
        helper.make_node("MatMul", ["x", "m"], ["p"]),
        helper.make_node("Conv", ["p", "k"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("MatMul", ["c", "m2"], ["y"]),
    ]
    return model_of(nodes, {"x": (2, 3, 8, 9)}, {"m": weights(9, 8), "k": weights(4, 3, 3, 3), "m2": weights(8, 6)}), {
        "x": (2, 3, 8, 9)
    }


def gemm() -> tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]:
    nodes = [
        helper.make_node("Gemm", ["x", "g", "b"], ["h"], transB=1),
        helper.make_node("Gemm", ["h", "g2"], ["y"]),
    ]
    return model_of(nodes, {"x": ("n", 9)}, {"g": weights(7, 9), "b": weights(7), "g2": weights(7, 4)}), {"x": (3, 9)}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(conv(), id="convolution"),
        pytest.param(conv(pads=[1, 0, 2, 1], strides=[2, 1], dilations=[1, 2]), id="pads, strides, dilations"),
        pytest.param(conv(group=3, pads=[1, 1, 1, 1]), id="groups"),
        pytest.param(product, id="product"),
        pytest.param(product_and_convolution, id="product and convolution"),
        pytest.param(gemm, id="gemm"),
    ],
)
@pytest.mark.usefixtures("dnnl")
def test_onednn_computes_what_we_do(
    make: Callable[[], tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]], executor: Executor
) -> None:
    model, shapes = make()
    module = partition(model, "dnnl")
    assert len(parts_of(module)) == 1
    with ingot.load(ingot.compile(module), executor=executor) as theirs, ingot.load(ingot.compile(model)) as ours:
        for more in (0, 1, 0):
            grown = {
                k: tuple(d + more if isinstance(e, str) else d for d, e in zip(s, symbols_of(model, k), strict=True))
                for k, s in shapes.items()
            }
            feeds = {k: RANDOM.standard_normal(s).astype(np.float32) for k, s in grown.items()}
            np.testing.assert_allclose(theirs.run(feeds)["y"], ours.run(feeds)["y"], rtol=1e-5, atol=1e-5)


THREADS_OF_A_RUN = """
import os
import numpy as np
import ingot
from ingot import codegen, ir

codegen.register_external("dnnl", codegen.OneDnn(LIBRARY))
b = ir.GraphBuilder("main")
module = ir.Module((b.function(b.mat_mul(b.input("x", (ir.symbol("n"), 256)), np.ones((256, 256), np.float32))),))
passes = [ir.passes.AnnotateTarget("dnnl"), ir.passes.MergeRegions(), ir.passes.PartitionGraph()]
artifact = ingot.compile(ir.Sequential(passes)(module), workers=0)
before = len(os.listdir("/proc/self/task"))
with ingot.load(artifact, threads=1) as model:
    model.run({"x": np.ones((512, 256), np.float32)})
    assert len(os.listdir("/proc/self/task")) == before
with ingot.load(artifact, threads=3) as model:
    model.run({"x": np.ones((512, 256), np.float32)})
    assert len(os.listdir("/proc/self/task")) == before + 2 + 2
"""


def test_onednn_has_the_threads_of_its_model(dnnl: None) -> None:
    """Those of the model, and as many for the part."""
    text = THREADS_OF_A_RUN.replace("LIBRARY", repr(onednn_library()))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def symbols_of(model: onnx.ModelProto, name: str) -> list[int | str]:
    (given,) = (i for i in model.graph.input if i.name == name)
    return [d.dim_param or d.dim_value for d in given.type.tensor_type.shape.dim]


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address", "undefined"])
@pytest.mark.usefixtures("dnnl")
def test_onednn_parts_are_clean(sanitizer: str, tmp_path: Path) -> None:
    """Opened, run with other extents and closed, twice at once; the address sanitizer looks for what is left behind too."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("no gcc on this machine, and zig has no address sanitizer")
    part = partition(product()[0], "dnnl")["dnnl_0"]
    assert isinstance(part, ir.GraphFunction)
    (tmp_path / "part.c").write_text(codegen.OneDnn(onednn_library()).text(part.graph, "the_tested_part"))
    (tmp_path / "ingot_part.h").write_text(codegen.part_header())
    checks = (
        f"-fsanitize={sanitizer}",
        "-fno-sanitize-recover=all",
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
    )
    sources = (str(tmp_path / "part.c"), str(Path(__file__).with_name("onednn_driver.c")))
    command = [gcc, "-g", "-O1", *checks, f"-I{tmp_path}", *sources, "-o", str(tmp_path / "driver"), "-ldl"]
    subprocess.run(command, check=True)
    assert subprocess.run([tmp_path / "driver"], capture_output=True, text=True, check=True).stdout == "ok\n"


@pytest.mark.parametrize(
    ("library", "reason"),
    [("/nowhere/libdnnl.so.3", "there is no library"), ("libc.so.6", "it lacks dnnl_engine_create")],
)
def test_a_library_that_is_missing_or_another_is_told_at_load(library: str, reason: str) -> None:
    codegen.register_external("dnnl", codegen.OneDnn(library))
    artifact = ingot.compile(partition(gemm()[0], "dnnl"))
    codegen.register_external("dnnl", codegen.OneDnn())
    with pytest.raises(ingot.IngotError, match=reason) as caught, ingot.load(artifact) as model:
        model.run({"x": np.zeros((1, 9), np.float32)})
    assert caught.value.code is ingot.ErrorCode.ARTIFACT_INCOMPATIBLE


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Gemm", ["x", "g"], ["y"], alpha=2.0),
        helper.make_node("Gemm", ["x", "g"], ["y"], transA=1),
        helper.make_node("MatMul", ["g", "x"], ["y"]),
    ],
    ids=["alpha", "transposed", "weights on the left"],
)
def test_what_onednn_is_not_asked_for_stays_ours(node: onnx.NodeProto) -> None:
    model = model_of([node], {"x": (9, 9)}, {"g": weights(9, 9)})
    assert not parts_of(partition(model, "dnnl"))
