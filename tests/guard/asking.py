"""The model of a family and a seed, and what odd requests bring to light."""

from __future__ import annotations

from dataclasses import dataclass

from shared_ir.errors import IngotError
from tests.guard.requests import named_apart, requests
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


_LEVELS = (3, 3, 0, 1, 3, 3, 2, 3)
"""Of optimisation, by seed: what a definition reads is not what its kernel reads where a pass has put another in its place."""


def ask(family: str, seed: int, count: int = REQUESTS, *, apart: bool | None = None, level: int | None = None) -> Asked:
    """
    Args:
        apart: whether every axis has a name of its own, so that a request may change it alone; by default of every other seed.
        level: of optimisation; by default by seed.
    """
    case, _ = drawn_case(family, seed)
    model, feeds = case.model, case.runs[0]
    if seed % 2 == 1 if apart is None else apart:
        model, feeds = named_apart(model, feeds)
    try:
        artifact = compiled(model, _LEVELS[seed % len(_LEVELS)] if level is None else level)
    except IngotError:
        return Asked(family, seed, 0)
    drawn = requests(model, feeds, seed, count)
    return Asked(family, seed, len(drawn), tuple(findings(artifact, drawn)))
