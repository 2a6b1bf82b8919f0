"""deploy/locks as data: what each lock pins, for one Python."""

from __future__ import annotations

import subprocess
from functools import cache

from packaging.requirements import Requirement
from packaging.version import Version

from tests.deployed.dockerfile import ROOT
from tests.packaging.extras import normal

LOCKS = ROOT / "deploy/locks"


@cache
def locked(name: str) -> tuple[Requirement, ...]:
    """The pins of one lock, each a version and a marker."""
    text = (LOCKS / f"{name}.txt").read_text().replace("\\\n", " ")
    return tuple(Requirement(line.partition(" --hash")[0]) for line in text.splitlines() if line[:1] not in ("", "#"))


def version(name: str, wanted: str, python: str) -> Version | None:
    """That of ``wanted`` where ``python`` runs on Linux; None where it is not locked."""
    here = {"python_full_version": python, "python_version": python.rpartition(".")[0]}
    found = [each for each in locked(name) if normal(each.name) == normal(wanted)]
    pins = [str(each.specifier) for each in found if each.marker is None or each.marker.evaluate(here)]
    assert len(pins) <= 1, f"{wanted} is locked twice for Python {python}: {pins}"
    return Version(pins[0].removeprefix("==")) if pins else None


def pinned(name: str, python: str) -> set[tuple[str, str]]:
    """What a lock brings where ``python`` runs: names and versions."""
    found = {normal(each.name): version(name, each.name, python) for each in locked(name)}
    return {(each, str(pin)) for each, pin in found.items() if pin is not None}


def debian_python() -> str:
    """The version of the Python that images and README take."""
    code = "import platform; print(platform.python_version())"
    return subprocess.check_output(["/usr/bin/python3", "-c", code], text=True).strip()
