"""``docs/operating.md`` tells every setting as the code has it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

from compiler_service.settings import CompilerSettings
from runtime_service.settings import RuntimeSettings

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operating.md"


def test_the_tables_are_those_of_the_settings_classes(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, 'scripts'); import document_settings as d; "
        "sys.stdout.write(d.documented(d.PAGE.read_text()))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == PAGE.read_text(), "run: python scripts/document_settings.py"


def test_every_setting_is_there() -> None:
    page = PAGE.read_text()
    for own in dataclasses.fields(CompilerSettings):
        assert f"| `INGOT_{own.name.upper()}` |" in page
    for own in dataclasses.fields(RuntimeSettings):
        assert f"_{own.name.upper()}` |" in page
