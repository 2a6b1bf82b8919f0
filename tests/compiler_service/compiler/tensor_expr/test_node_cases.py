"""Every definition against the node tests that onnx ships for its operator."""

from collections.abc import Mapping

import numpy as np
import pytest

from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.meaning.rounding import Array
from compiler_service.compiler.tensor_expr.registry import OPERATORS, infer
from tests.compiler_service.compiler.tensor_expr.node_cases import NodeCase, node_cases

KNOWN_FAILURES: Mapping[str, str] = {
    "test_training_dropout": "no random numbers at inference",
    "test_training_dropout_default": "no random numbers at inference",
    "test_training_dropout_mask": "no random numbers at inference",
    "test_training_dropout_default_mask": "no random numbers at inference",
}

pytestmark = pytest.mark.slow  # making the cases takes seconds

LOOPS = {"GRU", "LSTM", "RNN"}
"""Their definitions give types alone: the graph makes loops of them, tested in tests/compiler_service/compiler/dynamic."""
WITHOUT_CASES = {"GlobalLpPool", "MaxRoiPool"}
"""They have tests of their own."""
OF_ONNX = sorted(op for op in OPERATORS if "." not in op and op not in {*WITHOUT_CASES, *LOOPS})


def cases_of(op: str) -> list[NodeCase]:
    return [case for case in node_cases() if case.op == op]


def assert_same(case: NodeCase, actual: Array, expected: Array) -> None:
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if actual.dtype.kind == "V":  # a type of ml_dtypes
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(actual, expected, rtol=case.rtol, atol=case.atol)


def check(case: NodeCase) -> None:
    inputs = case.placeholders
    outputs = OPERATORS[case.op].define(inputs, case.attributes)
    wanted = [(y, array) for y, array in zip(outputs, case.outputs, strict=False) if array is not None]
    assert len(outputs) >= len(case.outputs)
    feeds = {x: array for x, array in zip(inputs, case.inputs, strict=True) if x is not None and array is not None}
    found = evaluate([y for y, _ in wanted if y is not None], feeds, {})
    for actual, (_, expected) in zip(found, wanted, strict=True):
        assert_same(case, actual, expected)


def check_value(case: NodeCase) -> int:
    """Compare the elements known at compile time, if there are any; the number of outputs that have them."""
    count = 0
    for y, expected in zip(infer(case.op, case.placeholders, case.attributes), case.outputs, strict=False):
        if y is not None and y.value is not None and expected is not None:
            assert_same(case, y.value.astype(expected.dtype), expected)
            count += 1
    return count


@pytest.mark.parametrize("op", OF_ONNX)
def test_node_cases(op: str) -> None:
    cases = cases_of(op)
    assert cases, f"onnx has no case for {op}"
    failed = set()
    for case in cases:
        try:
            check(case)
        except Exception as error:
            if case.name not in KNOWN_FAILURES:
                raise AssertionError(case.name) from error
            failed.add(case.name)
    assert failed == {c.name for c in cases if c.name in KNOWN_FAILURES}, (
        "a known failure is mended: take it off the list"
    )


def test_values_known_at_compile_time() -> None:
    counted = sum(
        check_value(case) for case in node_cases() if case.op in OPERATORS and case.name not in KNOWN_FAILURES
    )
    assert counted > 800
