"""The model of a family and a seed, and what odd requests bring to light."""

from __future__ import annotations

from dataclasses import dataclass

from shared_ir.errors import IngotError
from tests.guard.requests import requests
from tests.guard.runs import compiled, findings
from tests.oracle.generate import drawn_case

REQUESTS = 60
"""Of each model."""


@dataclass(frozen=True)
class Asked:
    """``requests``: how many; 0 where the model is refused, which is the oracle's affair."""

    family: str
    seed: int
    requests: int
    findings: tuple[str, ...] = ()


def ask(family: str, seed: int, count: int = REQUESTS) -> Asked:
    case, _ = drawn_case(family, seed)
    try:
        artifact = compiled(case.model)
    except IngotError:
        return Asked(family, seed, 0)
    drawn = requests(case.model, case.runs[0], seed, count)
    return Asked(family, seed, len(drawn), tuple(findings(artifact, drawn)))
