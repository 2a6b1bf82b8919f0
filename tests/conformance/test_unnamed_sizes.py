"""onnx's own cases with no extent declared: every size is one that only the run knows, and the answers stay what they are."""

from __future__ import annotations

import importlib
import warnings
from types import SimpleNamespace

import onnx
import onnx.backend.test.case.node
import pytest

from compiler_service.compiler.fallback import OptimisationFaultWarning
from compiler_service.compiler.program.kernels import ScheduleFaultWarning
from ingot.conformance import run_case
from tests.cases import every
from tests.conformance.test_suite import QUICK

LIMITS = (
    "an extent of the input",  # which is a list that decides a shape: how long it is says how many axes there are
    "of a static size",  # Det: a pivot for each row; ConvInteger: a window
    "defines CausalConvWithState",  # by others, for known shapes alone
    "Scan of opset 8",
)
"""What the message of a refusal has: docs/compiler-service.md, "Limits of today"."""


def without_extents(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` whose inputs and outputs have as many axes as before, of no declared size."""
    found = onnx.ModelProto.FromString(model.SerializeToString())
    for value in (*found.graph.input, *found.graph.output):
        for dim in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
            dim.Clear()
    return found


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "name"), every(map(tuple, QUICK), quick=[tuple(case) for case in QUICK[::8]]))
def test_a_case_of_every_family(module: str, name: str) -> None:
    with warnings.catch_warnings(action="ignore"):
        importlib.import_module(f"onnx.backend.test.case.node.{module}")
    (case,) = (c for c in onnx.backend.test.case.node._NodeTestCases if c.name == f"test_{name}")
    unnamed = SimpleNamespace(
        model=without_extents(case.model), data_sets=case.data_sets, rtol=case.rtol, atol=case.atol
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", OptimisationFaultWarning)
        warnings.simplefilter("error", ScheduleFaultWarning)
        outcome, message = run_case(unnamed)
    refused = outcome == "skipped" and any(limit in message for limit in LIMITS)
    assert outcome == "passed" or refused, f"{outcome}: {message}"
