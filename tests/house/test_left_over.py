"""Nothing that a run leaves behind is a part of the house."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KEY = b"-----BEGIN PRIVATE " + b"KEY-----"
KNOWN = {"tests/shared_ir/artifact/test_signature.py", "tests/shared_ir/artifact/yesterday.json"}
"""Keys that only tests know."""


def test_no_key_lies_in_the_tree() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("this is no clone: what belongs to the tree is not known")
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    found = {str(p.relative_to(ROOT)) for p in paths if p.is_file() and KEY in p.read_bytes()}
    assert found == KNOWN
