"""The README's commands, as they are written, one after another."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ingot.demo.models import CLASSIFIER, cached_classifier
from tests.e2e.platform_process import PlatformProcess, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """Those before the section on production, which tests/deployed/test_production.py types."""
    text = (ROOT / "README.md").read_text().partition("\n## In production\n")[0]
    return [(match[1], match[2]) for match in BLOCK.finditer(text)]


def test_every_command_works(tmp_path: Path) -> None:
    if cached_classifier() is None:
        pytest.skip(f"{CLASSIFIER} is not in the cache: `python -m ingot.demo.models` downloads it")
    found = blocks()
    assert len(found) >= 9
    assert ("sh", "ingot up\n") in found
    platform = PlatformProcess(tmp_path / "home")
    try:
        folder = tmp_path / "work"
        folder.mkdir()
        environment = platform.environment | {"INGOT_HOME": str(platform.home), "PATH": path_with_ingot(tmp_path)}
        for language, text in found:
            if text != "ingot up\n":
                run(language, with_addresses(text, platform), folder, environment)
                settle(text, platform)
        assert platform.stop() == 0
    finally:
        platform.kill()


def run(language: str, text: str, folder: Path, environment: dict[str, str]) -> None:
    command = ["bash", "-euo", "pipefail", "-c", text] if language == "sh" else [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"


def with_addresses(text: str, platform: PlatformProcess) -> str:
    """The README names the usual ports; this platform has others."""
    addresses = platform.addresses
    return text.replace("127.0.0.1:8000", addresses.http).replace("127.0.0.1:8001", addresses.grpc)


def settle(text: str, platform: PlatformProcess) -> None:
    """A reader takes longer than the runtime does to load what was just published."""
    if "--label stable" in text:
        infer = ("infer", "cls", "--input", "x=random:1x3x48x192")
        wait_until(lambda: platform.command(*infer).returncode == 0)
        time.sleep(0.1)


def path_with_ingot(folder: Path) -> str:
    """A PATH on which `ingot` and `python` are those of this interpreter and this tree."""
    programs = folder / "bin"
    programs.mkdir()
    for name, arguments in (("ingot", "-m ingot"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    assert shutil.which("curl"), "curl is not installed"
    return f"{programs}{os.pathsep}{os.environ['PATH']}"


def test_the_example(tmp_path: Path) -> None:
    path = cached_classifier()
    if path is None:
        pytest.skip(f"{CLASSIFIER} is not in the cache: `python -m ingot.demo.models` downloads it")
    platform = PlatformProcess(tmp_path)
    try:
        command = [sys.executable, str(ROOT / "examples" / "serve_with_triton.py"), str(path), "x", "2x3x48x192"]
        environment = platform.environment | {"INGOT_HOME": str(platform.home)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "save_infer_model" in done.stdout
    finally:
        platform.kill()
