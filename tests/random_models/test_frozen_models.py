"""300 random models, the same everywhere: reference, ONNX Runtime and compiled code vote."""

from __future__ import annotations

import pytest

from tests.random_models.generate import FROZEN, frozen_model
from tests.random_models.vote import check

_CHUNK = 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", [pytest.param(n, marks=pytest.mark.long if n % (15 * _CHUNK) else ()) for n in FROZEN[::_CHUNK]]
)
def test_two_of_three_agree(first: int) -> None:
    failures = []
    for seed in range(first, first + _CHUNK):
        try:
            check(*frozen_model(seed))
        except Exception as error:
            failures.append(f"seed {seed}: {type(error).__name__}: {error}")
    assert not failures, "\n".join(failures)


def test_a_seed_is_one_model() -> None:
    (one, _), (other, _) = frozen_model(7), frozen_model(7)
    assert one.SerializeToString() == other.SerializeToString()
    assert 5 <= len(one.graph.node) <= 20


@pytest.mark.slow
def test_the_set_has_operators_of_every_family() -> None:
    found = {n.op_type for seed in FROZEN for n in frozen_model(seed)[0].graph.node}
    assert {
        "Conv",
        "MatMul",
        "ReduceSum",
        "Slice",
        "Gather",
        "NonZero",
        "If",
        "Loop",
        "Resize",
        "TopK",
        "Where",
    } <= found
