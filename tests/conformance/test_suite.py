"""onnx's own cases through Ingot: all of them against the list of those that are known not to pass, and a few of every family."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import onnx.backend.test.case.node
import pytest

from ingot.conformance import KINDS, load_cases, operators_of, run_case, run_cases, unexpected
from ingot.conformance_known import KNOWN
from tests.cases import every

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


SHARES = 24
"""Parts of the whole suite, each an item of its own; cases of one operator are in the same one."""


FEWEST_CASES = 2000
"""The package has more: whoever loaded a selection of them before us would leave us with that."""


@cache
def every_case() -> tuple[tuple[str, Any], ...]:
    found = tuple(load_cases(KINDS, ""))
    assert len(found) >= FEWEST_CASES
    return found


def share_of(case: Any) -> int:
    return (
        crc32(", ".join(operators_of(case)).encode()) % SHARES
        if case.model is not None
        else crc32(case.name.encode()) % SHARES
    )


@pytest.mark.slow
def test_known_cases_exist() -> None:
    assert set(KNOWN) <= {case.name for _, case in every_case()}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", range(SHARES))
def test_the_whole_suite(share: int) -> None:
    """Every case runs in a child of a process of its own."""
    cases = [(kind, case) for kind, case in every_case() if share_of(case) == share]
    assert cases
    results = run_cases(cases, 1)
    assert len(results) == len(cases)
    assert unexpected(results) == []


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
