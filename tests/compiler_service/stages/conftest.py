"""Machines that lack a part of the boundary."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from compiler_service.stages import runner

ROOT = Path(__file__).parents[3]


@pytest.fixture
def no_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose profile refuses them."""
    launcher = tmp_path / "launcher.py"
    launcher.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from compiler_service.boundary import enter\n"
        "enter.why_not_permitted = lambda: 'forbidden'\n"
        "from compiler_service.boundary.launch import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    monkeypatch.setattr(runner, "LAUNCH", (sys.executable, "-I", "-S", str(launcher)))
