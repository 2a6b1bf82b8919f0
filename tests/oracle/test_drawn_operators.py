"""Cases that once failed, then a few of every operator: reference and ONNX Runtime vote. `make oracle` asks on for an hour."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.case import Case
from tests.oracle.families import FAMILIES
from tests.oracle.generate import drawn_case
from tests.oracle.judge import judge
from tests.oracle.seeds import kept_cases, known_findings, open_reason

CASES = 2
"""Of each family; by default a fifth of all of them."""


def _kept(path: Path) -> object:
    reason = open_reason(path)
    return pytest.param(path, id=path.stem, marks=[pytest.mark.xfail(reason=reason)] if reason else [])


@pytest.mark.slow
@pytest.mark.parametrize("path", [_kept(p) for p in kept_cases()])
def test_what_once_failed(path: Path) -> None:
    verdict = judge(Case.load(path).at_every_level())
    assert not verdict.findings, "\n".join(map(str, verdict.findings))


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("drawn", [f"{family}-{seed}" for family in sorted(FAMILIES) for seed in range(CASES)])
def test_agrees_with_an_oracle(drawn: str) -> None:
    family, _, seed = drawn.rpartition("-")
    case, _ = drawn_case(family, int(seed))
    new = [f for f in judge(case).findings if (family, f.signature) not in known_findings()]
    assert not new, "\n".join([*map(str, new), case.text()])
