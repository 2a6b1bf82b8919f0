"""deploy/locks against pyproject.toml: everything that it asks for is locked, in a version that it allows, with hashes."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.deploy.lint_tools import tool
from tests.deployed.dockerfile import ROOT, instructions, stages
from tests.deployed.locks import LOCKS, locked, version
from tests.packaging.extras import included, normal, project, requirements

SERVICES = ("runtime", "compiler")
TRACES = "telemetry"
"""The extra that images may send spans by, beside their own."""
PYTHONS = ("3.11.0", "3.12.0", "3.13.0", "3.14.0")


def wanted_by(name: str) -> list[Requirement]:
    """What pyproject.toml asks for, our own extras followed."""
    if name == "tools":
        groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
        return [Requirement(text) for text in groups[name]]
    asked = [Requirement(text) for extra in {*included(name), TRACES} for text in requirements(extra)]
    return [each for each in asked if normal(each.name) != normal(project()["name"])]


def faults(name: str, asked: list[Requirement]) -> list[str]:
    found = []
    for each in asked:
        for python in PYTHONS:
            pinned = version(name, each.name, python)
            if pinned is None or not each.specifier.contains(pinned):
                found.append(
                    f"{name}.txt has {each.name} {pinned} for Python {python}, not {each.specifier}: make lock"
                )
    return found


@pytest.mark.parametrize("name", [*SERVICES, "tools"])
def test_what_is_asked_for_is_locked(name: str) -> None:
    assert faults(name, wanted_by(name)) == []


def test_what_does_not_fit_is_seen() -> None:
    assert len(faults("runtime", [Requirement("numpy>=99")])) == len(PYTHONS)
    assert len(faults("runtime", [Requirement("celery>=5")])) == len(PYTHONS)


@pytest.mark.parametrize("name", [*SERVICES, "tools"])
def test_every_pin_has_hashes(name: str) -> None:
    text = (LOCKS / f"{name}.txt").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line[:1] not in ("", "#"):
            assert re.search(r"==\S+.* --hash=sha256:[0-9a-f]{64}\b", line), line[:80]


def test_both_services_run_the_same_versions() -> None:
    assert set(map(str, locked("runtime"))) <= set(map(str, locked("compiler")))
    assert {each.name for each in locked("runtime")} < {each.name for each in locked("compiler")}


def test_the_images_install_nothing_else() -> None:
    """Every line that installs Python packages is one of the two scripts, which ask for hashes."""
    installs = [
        each.text
        for name in stages()
        for each in instructions(name, "RUN")
        if "python" in each.text or "pip" in each.text
    ]
    scripts = ("locked_tools.sh", "install_locked.sh")
    for line in installs:
        assert line.startswith("apt-get ") or any(line.startswith(f"sh scripts/{script} ") for script in scripts), line
    for script in scripts:
        for line in re.findall(r"pip install .*", (ROOT / "scripts" / script).read_text()):
            assert "--require-hashes" in line or "--no-deps --no-index" in line, line


@pytest.mark.slow
def test_make_lock_would_write_the_same_pins(tmp_path: Path) -> None:
    shutil.copytree(LOCKS, tmp_path / "locks")
    done = subprocess.run(
        ["sh", ROOT / "scripts/lock.sh", tool("uv"), tmp_path / "locks"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    for name in (*SERVICES, "tools"):
        assert pins(tmp_path / "locks" / f"{name}.txt") == pins(LOCKS / f"{name}.txt"), f"{name}.txt is old: make lock"


def pins(lock: Path) -> list[str]:
    return [line for line in lock.read_text().splitlines() if "==" in line and not line.startswith("#")]
