"""onnx's own cases through Ingot: all of them against the list of those that are known not to pass, and a few of every family."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import onnx.backend.test.case.node
import pytest

from ingot.conformance import load_cases, run_case
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


@pytest.mark.slow
def test_known_cases_exist() -> None:
    simple = {case.name for _, case in load_cases(("simple",), "")}
    assert set(KNOWN) <= simple | {case.name for _, case in load_cases(("node",), "")}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_whole_suite(tmp_path: Path) -> None:
    """In a process of its own, since every case runs in a child of it."""
    out = tmp_path / "conformance.json"
    run = subprocess.run(
        [sys.executable, "-m", "ingot.conformance", "--out", str(out)], capture_output=True, text=True, timeout=1080
    )
    results = json.loads(out.read_text())["results"]
    unexpected = [line for line in run.stdout.splitlines() if line.startswith("unexpected: ")]
    assert (run.returncode, unexpected) == (0, []), run.stdout[-2000:]
    ended = Counter(r["outcome"] == "passed" for r in results)
    assert ended[False] == len(KNOWN)
    assert run.stdout.splitlines()[-1].startswith(f"{ended[True]} passed, ")
