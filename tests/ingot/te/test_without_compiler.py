"""Without the extra that brings LLVM, a sentence says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["te", "ir"])
def test_what_is_missing_is_said(name: str) -> None:
    script = f"import sys; sys.modules['llvmlite'] = None; sys.modules['mpmath'] = None\nfrom ingot import {name}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert f"ingot.{name} is not installed here" in done.stderr
    assert "pip install 'ingot-ml[compiler]'" in done.stderr
