"""Constants come to the same bytes on every machine: numpy, its BLAS and the C library take other kernels on other processors."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compiler_service.compiler.tensor_expr.meaning.contraction import product_in_order
from compiler_service.compiler.tensor_expr.meaning.rounding import EXACT
from compiler_service.compiler.tensor_expr.meaning.scalar_semantics import BINARY, UNARY
from shared_ir.expr import BinaryOp, UnaryOp

_ROOT = Path(__file__).parents[5]
_OF_OTHERS = {
    "haswell": {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"},
    "nehalem": {
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2_Usable,-FMA_Usable,-AVX2,-FMA,-FMA4",
    },
}

_DIGESTS = """
import hashlib, warnings
warnings.simplefilter("ignore")  # of features that this machine lacks anyway
import numpy as np
from compiler_service.compiler.graph_passes.analysis.values import evaluate_node
from compiler_service.compiler.schedule.algorithms.winograd.weights import LinearTransform
from compiler_service.compiler.tensor_expr.meaning.scalar_semantics import BINARY, UNARY
from shared_ir.dtype import DType
from shared_ir.graph.ir import Node, Value
from shared_ir.types import TensorType

def show(name, array):
    print(name, hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:12])

rng = np.random.default_rng(0)
show("numpy", rng.standard_normal((70, 600)) @ rng.standard_normal((600, 530)))
for dtype in (DType.FLOAT32, DType.FLOAT64):
    left, right = (rng.standard_normal(s).astype(dtype.numpy) for s in ((70, 600), (600, 530)))
    a, b = (Value(n, TensorType(dtype, x.shape)) for n, x in (("a", left), ("b", right)))
    for op, result in (("MatMul", (70, 530)), ("Gemm", (70, 530))):
        y = Value("y", TensorType(dtype, result))
        show(f"{dtype} {op}", evaluate_node(Node(op, (a, b), (y,), {}), {a: left, b: right})[y])
    for op, rows in (("ReduceSum", left), ("ReduceMean", left), ("Softmax", left)):
        x = Value("x", TensorType(dtype, rows.shape))
        y = Value("y", TensorType(dtype, (70, 600) if op == "Softmax" else (1, 1)))
        show(f"{dtype} {op}", evaluate_node(Node(op, (x,), (y,), {}), {x: rows})[y])
    for op, function in UNARY.items():
        show(f"{dtype} {op.name}", function(left[0:8].astype(bool) if op.name == "NOT" else
            left[0:8].view(f"i{left.itemsize}") if op.name in ("BIT_NOT", "POPCOUNT") else left[0:8]))
    for op in ("POW", "ATAN2", "DIV", "FLOOR_MOD"):
        function = next(f for o, f in BINARY.items() if o.name == op)
        show(f"{dtype} {op}", function(np.abs(left[0:8]), left[8:16]))
    matrix = tuple(map(tuple, rng.standard_normal((6, 3)).tolist()))
    weights = rng.standard_normal((40, 30, 3, 3)).astype(dtype.numpy)
    show(f"{dtype} filtering", LinearTransform((2, 3), (0, 1), matrix).apply(weights))
"""

_ARTIFACT = """
import hashlib, warnings
warnings.simplefilter("ignore")
import numpy as np
from onnx import ValueInfoProto, helper, numpy_helper
from compiler_service.compiler.pipeline import ModelSource, compile_model
from shared_ir.machine.target import parse_target

rng = np.random.default_rng(0)
arrays = {"w": rng.standard_normal((48, 48)), "k": rng.standard_normal((16, 16, 3, 3)), "s": np.abs(rng.standard_normal((48, 48)))}
ops = ("Exp", "Tanh", "Sin", "Sigmoid", "Erf", "Softplus")
nodes = [helper.make_node(op, ["w"], [op]) for op in ops] + [helper.make_node("Log", ["s"], ["Log"])]
nodes += [helper.make_node("Concat", [*ops, "Log"], ["all"], axis=1), helper.make_node("MatMul", ["w", "all"], ["product"])]
nodes += [helper.make_node("MatMul", ["x", "product"], ["y"]), helper.make_node("Conv", ["i", "k"], ["z"], pads=[1, 1, 1, 1])]
inputs = [helper.make_tensor_value_info("x", 1, ["n", 48]), helper.make_tensor_value_info("i", 1, [1, 16, 56, 56])]
constants = [numpy_helper.from_array(a.astype(np.float32), name) for name, a in arrays.items()]
graph = helper.make_graph(nodes, "g", inputs, [ValueInfoProto(name="y"), ValueInfoProto(name="z")], constants)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
artifact = compile_model(ModelSource(model), parse_target("x86-64-v3"), workers=0)
weights = artifact.weights if isinstance(artifact.weights, memoryview) else artifact.weights.read_bytes()
print(artifact.manifest.key, *(hashlib.sha256(part).hexdigest() for part in (weights, artifact.library)))
"""


def _digests(environment: dict[str, str], script: str = _DIGESTS) -> list[str]:
    known = {**os.environ, "PYTHONPATH": str(_ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env=known,
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names kernels for processors of x86-64")
@pytest.mark.slow
def test_the_bytes_are_those_of_other_processors() -> None:
    (matmul, *here), *others = (_digests(environment) for environment in ({}, *_OF_OTHERS.values()))
    for _, *there in others:
        assert there == here
    if all(name == matmul for name, *_ in others):
        pytest.skip("this numpy multiplies with one kernel whatever the processor: nothing was compared")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names kernels for processors of x86-64")
@pytest.mark.slow
def test_artifacts_of_equal_keys_are_equal_on_other_processors() -> None:
    """Weights that are products and functions of constants, and those of Winograd's method."""
    here, *others = (_digests(environment, _ARTIFACT) for environment in ({}, *_OF_OTHERS.values()))
    assert others == [here] * len(others)


@pytest.mark.parametrize(
    "shapes", [((5, 7), (7, 3)), ((2, 1, 5, 300), (4, 300, 600)), ((3, 0), (0, 2)), ((1, 1), (1, 1))]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_in_order_are_products(shapes: tuple[tuple[int, ...], ...], dtype: type[np.floating]) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    found = product_in_order(a, b)
    assert found.dtype == dtype
    exact = np.matmul(a.astype(np.longdouble), b.astype(np.longdouble))
    np.testing.assert_allclose(found, exact.astype(dtype), rtol=1e-6 if dtype == np.float32 else 1e-12, atol=1e-12)


def test_products_in_order_keep_what_is_not_finite() -> None:
    a, b = np.array([[np.inf, 1.0], [np.nan, 0.0]]), np.array([[0.0, 1.0], [2.0, 3.0]])
    np.testing.assert_array_equal(product_in_order(a, b), [[np.nan, np.inf], [np.nan, np.nan]])


@pytest.mark.parametrize("op", [UnaryOp.EXP, UnaryOp.LOG, UnaryOp.SIN, UnaryOp.TANH, UnaryOp.ERF, UnaryOp.SIGMOID])
def test_functions_of_float64_are_rounded_correctly(op: UnaryOp) -> None:
    exact = {UnaryOp.SIGMOID: lambda x: 1 / (1 + EXACT.exp(-x))}.get(op) or getattr(EXACT, op.value)
    numbers = np.abs(np.random.default_rng(2).standard_normal(500))
    wanted = [float(exact(EXACT.mpf(float(x)))) for x in numbers]  # mpmath rounds to nearest even
    np.testing.assert_array_equal(UNARY[op](numbers), wanted)


def test_what_lies_between_two_numbers_becomes_the_even_one() -> None:
    base = np.array([1 + 2.0**-12, 1 + 3 * 2.0**-12], np.float32)  # their squares end in half a unit
    np.testing.assert_array_equal(BINARY[BinaryOp.POW](base, np.array([2, 2], np.float32)), base * base)


def test_the_sine_of_nearly_a_half_turn_has_all_its_digits() -> None:
    assert UNARY[UnaryOp.SIN](np.array([np.pi]))[0] == 1.2246467991473532e-16
    assert UNARY[UnaryOp.SIN](np.array([1e22]))[0] == -0.8522008497671888
