"""onnx's own cases through Ingot: all of them against the list of those that are known not to pass, and a few of every family."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ingot.conformance import load_cases, run_case
from ingot.conformance_known import KNOWN

QUICK = (Path(__file__).parent / "quick_cases.txt").read_text().split()
"""Cases of all families, by their name after ``test_``."""


@cache
def cases() -> dict[str, Any]:
    return {case.name: case for _, case in load_cases(("node",), "")}


@pytest.mark.parametrize("name", QUICK)
def test_a_case_of_every_family(name: str) -> None:
    assert run_case(cases()[f"test_{name}"]) == ("passed", "")


def test_known_cases_exist() -> None:
    simple = {case.name for _, case in load_cases(("simple",), "")}
    assert set(KNOWN) <= simple | set(cases())


@pytest.mark.slow
def test_the_whole_suite(tmp_path: Path) -> None:
    """In a process of its own, since every case runs in a child of it."""
    out = tmp_path / "conformance.json"
    run = subprocess.run(
        [sys.executable, "-m", "ingot.conformance", "--out", str(out)], capture_output=True, text=True, timeout=900
    )
    results = json.loads(out.read_text())["results"]
    unexpected = [line for line in run.stdout.splitlines() if line.startswith("unexpected: ")]
    assert (run.returncode, unexpected) == (0, []), run.stdout[-2000:]
    ended = Counter(r["outcome"] == "passed" for r in results)
    assert ended[False] == len(KNOWN)
    assert run.stdout.splitlines()[-1].startswith(f"{ended[True]} passed, ")
