"""``ingot.backend`` as ``onnx.backend.base.Backend`` describes it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx.backend.base import Backend

import ingot.backend
from ingot.backend import IngotBackend
from shared_ir.errors import ErrorCode, IngotError
from tests.ingot.small_models import classifier, expected_scores, scale, unsupported


def test_prepare_and_run_with_a_list_of_inputs() -> None:
    image = np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)
    prepared = IngotBackend.prepare(classifier())
    (by_position,) = prepared.run([image])
    (by_name,) = prepared.run({"image": image})
    np.testing.assert_allclose(by_position, expected_scores(classifier(), image), rtol=1e-4, atol=1e-6)
    assert np.array_equal(by_position, by_name)


def test_run_model_and_the_module_as_a_backend() -> None:
    x = np.ones((1, 4), np.float32)
    assert IngotBackend.run_model(scale(), x)[0].tolist() == [[2.0] * 4]
    assert ingot.backend.run_model(scale(3.0), [x])[0].tolist() == [[3.0] * 4]
    assert issubclass(IngotBackend, Backend)


def test_run_node() -> None:
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((3, 2), np.float32)
    (product,) = IngotBackend.run_node(helper.make_node("MatMul", ["a", "b"], ["c"]), [a, b])
    assert np.array_equal(product, a @ b)


def test_devices() -> None:
    assert IngotBackend.supports_device("CPU")
    assert not IngotBackend.supports_device("CUDA")
    with pytest.raises(IngotError, match="no such device"):
        IngotBackend.prepare(scale(), "CUDA")


def test_what_cannot_be_compiled_is_an_error_and_never_run_otherwise() -> None:
    with pytest.raises(IngotError) as caught:
        IngotBackend.prepare(unsupported())
    assert caught.value.code is ErrorCode.UNSUPPORTED_DOMAIN
    assert "com.example" in str(caught.value)


def test_inputs_must_fit() -> None:
    prepared = IngotBackend.prepare(scale())
    with pytest.raises(IngotError, match="number of inputs"):
        prepared.run([])
    with pytest.raises(IngotError, match="element type"):
        prepared.run([np.ones((1, 4), np.float64)])
