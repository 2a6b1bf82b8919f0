"""``docs/operators.md`` is what the operator tables and the type check say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operators.md"


def printed(expression: str) -> str:
    script = (
        f"import sys; sys.path.insert(0, 'scripts'); import document_operators as d; sys.stdout.write({expression})"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_operators_forms_and_ways_are_current() -> None:
    both = printed("repr((d.current_skeleton() == d.skeleton(d.PAGE.read_text()), len(d.current_skeleton())))")
    assert both.startswith("(True, "), "run: make operators"
    assert int(both[len("(True, ") : -1]) > 200


def test_operators_that_nothing_describes_are_named_instead_of_left_out() -> None:
    assert printed("repr(list(d.left_out()))") == "[]"
    added = "setattr(d, 'MICROSOFT', {**d.MICROSOFT, 'NewGelu': None}), setattr(d, 'OPERATORS', {**d.OPERATORS, 'Newest': None})"
    told = printed(f"repr([{added}, *d.left_out(), d.main()])")
    assert "com.microsoft.NewGelu has no form" in told
    assert "Newest has no schema" in told
    assert told.endswith(", 1]")


@pytest.mark.slow
def test_types_are_current() -> None:
    assert printed("d.page()") == PAGE.read_text(), "run: make operators"
