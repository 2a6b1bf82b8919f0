"""scripts/environment.sh: an environment made when the distribution was called `ingot` becomes one of today."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shared_ir.extras import DISTRIBUTION
from tests.house.test_imports import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SCRIPT = ROOT / "scripts" / "environment.sh"
PROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "{name}"
version = "0"
[project.optional-dependencies]
test = []
[project.scripts]
ingot = "shared_ir:main"
[tool.setuptools]
packages = ["shared_ir"]
"""
METADATA = "import importlib.metadata as m; print(sorted(d.name for d in m.distributions() if 'ingot' in d.name))"


def test_the_older_name_leaves_and_the_command_stays(tmp_path: Path) -> None:
    (tmp_path / "shared_ir").mkdir()
    (tmp_path / "shared_ir" / "__init__.py").write_text("def main():\n    print('ours')\n")
    shutil.copy(SCRIPT, tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment["PYTHON"] = sys.executable
    for name in ("ingot", DISTRIBUTION, DISTRIBUTION):
        (tmp_path / "pyproject.toml").write_text(PROJECT.format(name=name))
        done = subprocess.run(
            ["sh", "environment.sh", "venv", "test"], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        python = tmp_path / "venv" / "bin" / "python"
        assert subprocess.check_output([python, "-I", "-c", METADATA], text=True) == f"['{name}']\n"
        assert subprocess.check_output([python.parent / "ingot"], text=True, cwd="/", env=environment) == "ours\n"
    assert not (tmp_path / "ingot.egg-info").exists()
