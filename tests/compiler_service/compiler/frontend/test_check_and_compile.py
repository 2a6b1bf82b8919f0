"""What a check finds is what a compilation would say: element types of every operator, and of reductions of integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from compiler_service.compiler.pipeline import ModelSource, check_model, compile_model
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import parse_target
from tests.compiler_service.compiler.frontend.retyped_models import retyped_models
from tests.conformance.compiled import one_node, run_compiled

TARGET = parse_target("x86-64-v3")


def _refusal(model: onnx.ModelProto) -> str:
    """What a compilation says; empty where it succeeds."""
    try:
        compile_model(ModelSource(model.SerializeToString()), TARGET, workers=0)
    except IngotError as error:
        return f"{error.code}: {error.message}"
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
def test_of_every_operator(dtype: str) -> None:
    seen, wrong = 0, {}
    for name, model in retyped_models([dtype]):
        seen += 1
        report = check_model(ModelSource(model.SerializeToString()))
        said = _refusal(model)
        if report.is_supported != (not said):
            wrong[name] = said or report.obstacles
    assert seen > 30
    assert wrong == {}


def test_a_type_on_which_an_operator_means_nothing_is_refused_by_both_in_the_same_words() -> None:
    model = next(model for name, model in retyped_models(["bool"]) if name == "GridSample-bool")
    (obstacle,) = check_model(ModelSource(model.SerializeToString())).obstacles
    with pytest.raises(IngotError) as caught:
        compile_model(ModelSource(model.SerializeToString()), TARGET, workers=0)
    assert caught.value.code is obstacle.code is ErrorCode.TYPE_MISMATCH
    assert caught.value.message.lower() in obstacle.reason.lower()
    assert (caught.value.expected, caught.value.received) == ("a float", "bool")


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
@pytest.mark.parametrize(
    ("op", "meaning"),
    [
        ("ReduceLogSumExp", lambda v: np.log(np.exp(v - v.max()).sum()) + v.max()),
        ("ReduceLogSum", lambda v: np.log(v.sum())),
        ("ReduceL2", lambda v: np.sqrt((v * v).sum())),
        ("ReduceMean", np.mean),
    ],
)
def test_reductions_of_integers_are_those_of_real_numbers(
    op: str, meaning: Callable[[np.ndarray], np.float64], dtype: type[np.integer]
) -> None:
    """Also where the sum, or the squares, are beyond the type."""
    x = np.array([70_000, 3, 60_000, 65_000, 900_000_000, 900_000_001, 900_000_002], dtype)
    for opt_level in (0, 3):
        (found,) = run_compiled(one_node(op, {"x": x}, keepdims=0), {"x": x}, opt_level)
        assert found == meaning(x.astype(np.float64)).astype(dtype)
