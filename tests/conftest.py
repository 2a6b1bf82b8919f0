"""Fixtures shared by every test."""

from __future__ import annotations

import difflib
import gc
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

from tests.sampling import mark_the_rest

hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
"""How long an example takes says more of the machine than of what is tested."""

os.environ.setdefault("VERIFY", "1")
"""Every plan that a test makes is proved, those of child processes included."""

gc.set_threshold(50_000, 20, 20)
"""Compiling makes many small objects and few circles: looking for those as often as by default takes a tenth of its time."""

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell starts what runs in the background with SIGINT ignored, and children inherit that."""

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the files under tests/golden")


@pytest.hookimpl(tryfirst=True)  # before ``-m`` looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_the_rest(items)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """``golden(text, suffix="")`` compares ``text`` with tests/golden/<file stem>/<test>[.suffix].txt.

    A missing file fails the test too: a golden is written on purpose, with ``--update-golden``.
    """
    name = re.sub(r"\W+", "-", request.node.name).strip("-")

    def check(text: str, suffix: str = "") -> None:
        path = GOLDEN / request.path.stem / (f"{name}.{suffix}.txt" if suffix else f"{name}.txt")
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        if not path.exists():
            pytest.fail(f"{path} does not exist; write it with --update-golden")
        wanted = path.read_text()
        if text != wanted:
            lines = difflib.unified_diff(wanted.splitlines(), text.splitlines(), str(path), "printed", lineterm="")
            reason = "differs from the golden file (--update-golden accepts it):"
            pytest.fail("\n".join([reason, *lines]), pytrace=False)

    return check
