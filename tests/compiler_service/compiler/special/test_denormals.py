"""Denormal numbers: those that a model reads count everywhere; results that are denormal are zero on x86 unless asked for."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.program.weights import Weights
from compiler_service.compiler.schedule.language.packing import Preparation
from compiler_service.compiler.tensor_expr.tensor import placeholder
from shared_ir.dtype import DType
from shared_ir.graph.ir import Value
from shared_ir.types import TensorType
from tests.compiler_service.compiler.special.special_cases import Array, Case, results

X = np.array([1e-40, -1e-40, 1e-45, -1e-45, 1.1e-38, 0, -0.0, 1, -1] * 3, np.float32)


def computed(op: str, *operands: Array, opt_level: int = 3, denormals: bool = False, **attributes: object) -> Array:
    found = results([Case(op, operands, attributes)], opt_level, denormals=denormals)
    np.testing.assert_array_equal(found["run0"], found["folded0"])
    return found["run0"]


@pytest.mark.parametrize("opt_level", [0, 3])
def test_denormal_operands_count(opt_level: int) -> None:
    half = np.full_like(X, 1e30)
    assert computed("Ceil", X, opt_level=opt_level).tolist() == np.ceil(X).tolist()
    assert computed("Floor", X, opt_level=opt_level).tolist() == np.floor(X).tolist()
    assert computed("Sign", X, opt_level=opt_level).tolist() == np.sign(X).tolist()
    assert computed("Sqrt", np.abs(X), opt_level=opt_level).tolist() == np.sqrt(np.abs(X)).tolist()
    assert computed("Mul", X, half, opt_level=opt_level).tolist() == (X * half).tolist()
    assert computed("Greater", X, np.zeros_like(X), opt_level=opt_level).tolist() == (X > 0).tolist()
    assert computed("Equal", X, np.zeros_like(X), opt_level=opt_level).tolist() == (X == 0).tolist()


def test_logarithms_of_denormal_numbers() -> None:
    with np.errstate(divide="ignore"):
        expected = np.log(np.abs(X).astype(np.float64))
    found = results([Case("Log", (np.abs(X),))], 3)
    np.testing.assert_allclose(found["run0"], expected, rtol=1e-6)
    np.testing.assert_allclose(found["folded0"], expected, rtol=1e-6)


@pytest.mark.parametrize("denormals", [False, True])
def test_denormal_results(denormals: bool) -> None:
    flushes = host_target().architecture == "x86_64" and not denormals
    exact = X * np.float32(0.75)
    expected = np.where(np.abs(exact) < np.finfo(np.float32).tiny, exact * 0, exact) if flushes else exact
    found = computed("Mul", X, np.full_like(X, 0.75), denormals=denormals)
    assert found.view(np.uint32).tolist() == expected.astype(np.float32).view(np.uint32).tolist()


def test_exponentials_reach_the_least_number_where_asked_for() -> None:
    x = np.linspace(-103.5, -87, 33).astype(np.float32)
    found = results([Case("Exp", (x,))], 3, denormals=True)["run0"]
    truth = np.exp(x.astype(np.float64)).astype(np.float32)
    assert np.abs(found.view(np.int32) - truth.view(np.int32)).max() <= 2


def test_the_thread_of_the_host_is_given_back() -> None:
    libm = ctypes.CDLL(None)
    libm.ldexp.restype, libm.ldexp.argtypes = ctypes.c_double, (ctypes.c_double, ctypes.c_int)
    computed("Mul", X, X)
    assert np.float32(1e-39) * np.float32(0.5) > 0
    assert libm.ldexp(1.0, -1074) > 0


def test_weights_of_products_lose_denormal_numbers() -> None:
    array = np.array([[1e-40, 1.0], [-1e-41, 0.0]], np.float32)
    value = Value("w", TensorType(DType.FLOAT32, (2, 2)))
    argument = placeholder("w", (2, 2), DType.FLOAT32)
    packed = Preparation(order=((1, 1, 0), (0, 1, 0)))
    for preparation, denormals, kept in ((packed, False, 0), (packed, True, 2), (Preparation(), False, 2)):
        weights = Weights()
        weights.place(value, array, argument, preparation)
        written = weights.write(denormals=denormals)
        assert isinstance(written, memoryview)
        found = np.frombuffer(written, np.float32)
        assert ((found != 0) & (np.abs(found) < 1e-38)).sum() == kept


def test_the_option_is_part_of_the_key() -> None:
    assert CompileOptions().to_dict() != CompileOptions(denormals=True).to_dict()
    assert CompileOptions.from_dict({"denormals": True}).denormals
