"""The light models of the onnx package: structure after the whole pipeline, and equal results."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler_service.compiler.frontend.importing.inference import Inference
from compiler_service.compiler.frontend.load import import_model
from compiler_service.compiler.frontend.options import ImportOptions
from compiler_service.compiler.graph_passes.analysis.aliases import runs_no_kernel
from compiler_service.compiler.graph_passes.cleaning.fold_constants import FoldConstants
from compiler_service.compiler.graph_passes.memory.plan_memory import plan_memory
from compiler_service.compiler.graph_passes.pipelines import default_pipeline
from compiler_service.compiler.graph_passes.rewriting.instruments import Verify
from compiler_service.compiler.graph_passes.rewriting.pass_manager import PassContext
from compiler_service.compiler.reference.interpret import run_graph
from compiler_service.compiler.tensor_expr.registry import OPERATORS, infer
from shared_ir.dtype import DType
from shared_ir.graph.ir import GROUP_OP, Graph, Module, Node

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def _model(name: str) -> Module:
    return import_model((LIGHT / f"light_{name}.onnx").read_bytes(), ImportOptions(), Inference(infer, OPERATORS))


def _optimised(module: Module) -> Module:
    return default_pipeline(3).run(module, PassContext(3, instruments=(Verify(),)))


def _kernels(module: Module) -> list[Node]:
    return [n for n in module.graph.nodes if not runs_no_kernel(n)]


def _inner(node: Node) -> list[str]:
    return [n.op for g in node.subgraphs for n in g.nodes]


MOST_KERNELS = {
    "bvlc_alexnet": 21,
    "densenet121": 190,
    "inception_v1": 75,
    "inception_v2": 83,
    "resnet50": 58,
    "shufflenet": 75,
    "squeezenet": 32,
    "vgg19": 28,
    "zfnet512": 21,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n == "densenet121" else []) for n in MOST_KERNELS]
)
def test_structure(name: str) -> None:
    module = _model(name)
    optimised = _optimised(module)
    assert all(n.op == GROUP_OP for n in optimised.graph.nodes)
    assert len(_kernels(optimised)) <= MOST_KERNELS[name]
    plan = plan_memory(optimised.graph)
    assert isinstance(plan.arena_size, int)
    assert isinstance(plan.unshared_size, int)
    assert plan.arena_size < 0.75 * plan.unshared_size


@pytest.mark.slow
def test_resnet50_is_its_convolutions_and_little_more() -> None:
    optimised = _optimised(_model("resnet50"))
    inner = [_inner(n) for n in _kernels(optimised)]
    assert sum("Conv" in ops for ops in inner) == 53
    assert len(inner) == 57
    assert sum(ops == ["Conv", "Add", "Relu"] for ops in inner) == 16
    left = Counter(op for ops in inner for op in ops)
    assert left["BatchNormalization"] == 0
    assert left["Transpose"] == 0  # the first convolution reads NCHW


def _with_random_weights(graph: Graph) -> Graph:
    """The light models have uniform weights, which hide every mistake in the order of channels."""
    random = np.random.default_rng(0)
    constants = {}
    for value, array in FoldConstants().run(graph).constants.items():
        if value.dtype is DType.FLOAT32 and array.ndim > 1:
            fan_in = array.size // array.shape[0]
            array = random.standard_normal(array.shape).astype(np.float32) * np.float32(np.sqrt(2 / fan_in))
        elif value.dtype is DType.FLOAT32:
            array = random.uniform(0.5, 1.5, array.shape).astype(np.float32)
        constants[value] = array
    return FoldConstants().run(graph).with_(constants=constants)


def _up_to_logits(graph: Graph) -> Graph:
    """Random weights make logits large, and the softmax of large numbers is 0 and 1."""
    softmax = next(n for n in reversed(graph.nodes) if n.op == "Softmax")
    return graph.with_(outputs=(softmax.operands[0],))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "resnet50", "inception_v2"])
def test_results_stay_the_same(name: str) -> None:
    module = _model(name)
    module = replace(module, graph=_up_to_logits(_with_random_weights(module.graph)))
    optimised = _optimised(module)
    x = module.graph.inputs[0]
    shape = tuple(d for d in x.shape if isinstance(d, int))
    picture = np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)
    (wanted,) = run_graph(module.graph, {x.name: picture})
    (found,) = run_graph(optimised.graph, {x.name: picture})
    assert len(np.unique(wanted)) > 500
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 * float(np.abs(wanted).max()))
