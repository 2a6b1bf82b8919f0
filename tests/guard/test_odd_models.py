"""Odd models to a compiler service as its users start it; ``python -m tests.guard.compiling`` goes on for ten minutes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest

from shared_ir.errors import ErrorCode, IngotError
from tests.guard.compiling import ask, changed, fuzz, models
from tests.guard.serving import Findings
from tests.oracle.generate import drawn_case


@pytest.mark.slow
@pytest.mark.services
def test_a_service_stands_odd_models(tmp_path: Path) -> None:
    found = fuzz(tmp_path, seconds=8, clients=2, seed=3, drawn=models)
    assert not found.lines
    assert found.requests > 2


@dataclass
class Answering:
    """A client to whose models a service says ``error``."""

    error: IngotError | None
    is_raised: bool = False

    def compile(self, *_: Any, **__: Any) -> Any:
        if self.is_raised and self.error is not None:
            raise self.error
        return self

    id: str = "1"

    def wait(self, _: str) -> Any:
        return self


@pytest.mark.parametrize("is_raised", [False, True])
@pytest.mark.parametrize(
    ("error", "is_finding"),
    [
        (None, False),
        (IngotError(ErrorCode.INVALID_MODEL, "a sentence"), False),
        (IngotError(ErrorCode.INTERNAL, "the service failed"), True),
        (IngotError(ErrorCode.COMPILER_FAULT, "the compiler failed"), True),
        (IngotError(ErrorCode.INVALID_MODEL, "Traceback (most recent call last)"), True),
    ],
)
def test_what_blames_the_service_is_a_finding(error: IngotError | None, is_finding: bool, is_raised: bool) -> None:
    found = Findings(Counter())
    ask(Answering(error, is_raised), "drawn", b"", found)  # type: ignore[arg-type]  # asked for two methods of a client
    assert bool(found.lines) == is_finding


def test_changes_are_the_same_for_a_seed_and_leave_some_models_whole() -> None:
    model = drawn_case("Gather", 1)[0].model
    first, again = ([changed(model, random.Random(seed)) for seed in range(60)] for _ in range(2))
    assert first == again
    assert len(set(first)) > 40
    read = 0
    for data in first:
        try:
            onnx.load_model_from_string(data)
        except Exception:
            continue
        read += 1
    assert 10 < read < 60
