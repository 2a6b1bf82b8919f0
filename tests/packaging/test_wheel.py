"""What is in the wheel: every file of our packages and no other, and metadata that says who we are."""

from __future__ import annotations

import email
import zipfile
from pathlib import Path

import pytest

from shared_ir.extras import DISTRIBUTION
from shared_ir.versions import VERSION
from tests.house.test_imports import OURS, ROOT
from tests.packaging.extras import project

pytestmark = pytest.mark.slow


def test_every_file_of_ours_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    wanted = {
        str(path.relative_to(ROOT))
        for package in OURS
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == wanted
    assert {f"{package}/py.typed" for package in OURS} <= inside
    assert "compiler_service/compiler/codegen/native/runtime.c" in inside
    assert any(name.endswith("_pb2.pyi") for name in inside)


def test_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (folder,) = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        metadata = email.message_from_bytes(archive.read(f"{folder}/METADATA"))
        entries = archive.read(f"{folder}/entry_points.txt").decode()
    assert metadata["Name"] == DISTRIBUTION
    assert metadata["Version"] == VERSION
    assert set(metadata.get_all("Provides-Extra", [])) == set(project()["optional-dependencies"])
    assert "ingot = ingot.cli.main:main" in entries
