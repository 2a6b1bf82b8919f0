"""onnx's own cases through Ingot: all of them against the list of those that are known not to pass, and a few of every family."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx.backend.test.case.node
import pytest

from ingot.conformance import run_case, unexpected
from ingot.conformance_known import KNOWN
from tests.cases import every
from tests.conformance.shares import PARTS, SHARES, Shares, shares

QUICK = [line.split() for line in (Path(__file__).parent / "quick_cases.txt").read_text().splitlines()]
"""Cases of all families but pools (:mod:`test_pooling`), every other one quick: the module of onnx that makes it, and its name
after ``test_``."""


@pytest.mark.parametrize(("module", "name"), every(map(tuple, QUICK), quick=[tuple(case) for case in QUICK[::2]]))
def test_a_case_of_every_family(module: str, name: str) -> None:
    """NOTE: a module makes its cases when it is imported; those of all modules take seconds, most of them for large pools."""
    with warnings.catch_warnings(action="ignore"):
        importlib.import_module(f"onnx.backend.test.case.node.{module}")
    (case,) = (c for c in onnx.backend.test.case.node._NodeTestCases if c.name == f"test_{name}")
    assert run_case(case) == ("passed", "")


@pytest.fixture(scope="session")
def cases() -> Iterator[Shares]:
    with shares() as running:
        yield running


@pytest.mark.slow
def test_known_cases_exist(cases: Shares) -> None:
    assert set(KNOWN) <= cases.names()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, PARTS))])
@pytest.mark.parametrize("share", range(SHARES))
def test_the_whole_suite(cases: Shares, share: int, part: int) -> None:
    """Every case runs in a child of a process of its own."""
    assert unexpected(cases.run(share, part)) == []


def test_the_command_ends_with_the_totals(tmp_path: Path) -> None:
    out = tmp_path / "conformance.json"
    run = subprocess.run(
        [sys.executable, "-m", "ingot.conformance", "--filter", "^test_abs", "--out", str(out)],
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    results = json.loads(out.read_text())["results"]
    ended = Counter(r["outcome"] == "passed" for r in results)
    assert (run.returncode, ended[False]) == (0, 0), run.stdout[-2000:]
    assert run.stdout.splitlines()[-1].startswith(f"{ended[True]} passed, ")
