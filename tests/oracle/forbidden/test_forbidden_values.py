"""What both oracles refuse of an operand of the run is refused; ``python -m tests.oracle.forbidden`` asks every operator."""

from __future__ import annotations

import pytest

from tests.oracle.forbidden.judge import accepted
from tests.oracle.forbidden.runs import published

ASKED = (
    "AffineGrid",
    "DFT",
    "Gather",
    "NonMaxSuppression",
    "OneHot",
    "Range",
    "Reshape",
    "STFT",
    "Slice",
    "Split",
    "TensorScatter",
    "TopK",
    "Unsqueeze",
)
"""Operators that state what their operands must be, and of which onnx has tests with operands of few elements."""


@pytest.mark.slow
@pytest.mark.parametrize("op", ASKED)
def test_what_both_oracles_refuse_is_refused(op: str) -> None:
    cases = [case for case in published() if case.op == op]
    assert cases
    assert [found for case in cases for found in accepted(case)] == []
