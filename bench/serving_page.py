"""What :mod:`bench.serving` measured, as a value, as JSON, and as a section of the page of results."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from bench.report import markdown_table

STORED = "serving.json"
TITLE = "## Serving"
_SECTION = re.compile(rf"\n*^{TITLE}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_HEADER = ("protocol", "clients", "server", "req/s", "CPU us", "p50 ms", "p99 ms")
_HOW = """\
Written by `python -m bench.serving`: the identity of FP32[1, 16], whose arithmetic is nothing, so that what is left is the service. The
same clients ask each server on this machine, and each client asks again when it has its answer. The servers take turns, each standing
still while it is not its turn; numbers are medians over the rounds, with half the distance between the quartiles. `CPU us` is what all
processes of the server spent for one request; `ingot-2-processes` is Ingot with `INGOT_RUNTIME_PROCESSES=2`. Clients and server
share the cores, so requests per second are those of both. MLServer answers no
binary data over HTTP; Triton runs the model in its Python backend, the only one that nvidia-pytriton brings."""


@dataclass(frozen=True)
class Spread:
    """A median over rounds, and the quartiles."""

    median: float
    low: float
    high: float

    def text(self, digits: int) -> str:
        part = (self.high - self.low) / 2 / self.median if self.median else 0.0
        return f"{self.median:.{digits}f} ±{part:.0%}"


@dataclass(frozen=True)
class Measured:
    """A server in one case: requests a second, microseconds of CPU for one, latencies in milliseconds."""

    kind: str
    clients: int
    server: str
    rate: Spread
    cpu: Spread
    p50: Spread
    p99: Spread

    def cells(self) -> tuple[str, ...]:
        numbers = (self.rate.text(0), self.cpu.text(0), self.p50.text(2), self.p99.text(2))
        return (self.kind, str(self.clients), self.server, *numbers)


@dataclass(frozen=True)
class ServingReport:
    machine: tuple[str, ...]
    versions: Mapping[str, str]
    rounds: int
    seconds: float
    measured: tuple[Measured, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        measured = [
            Measured(**row | {name: Spread(**row[name]) for name in ("rate", "cpu", "p50", "p99")})
            for row in data["measured"]
        ]
        return cls(tuple(data["machine"]), data["versions"], data["rounds"], data["seconds"], tuple(measured))


def section(report: ServingReport) -> list[str]:
    """Lines of the section, from its title on."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    lines = [TITLE, "", _HOW, "", *(f"- {line}" for line in report.machine)]
    lines += [f"- {versions}; {report.rounds} rounds of {report.seconds:g} s", ""]
    return [*lines, markdown_table(_HEADER, [row.cells() for row in report.measured]).rstrip()]


def replaced(text: str, report: ServingReport) -> str:
    """A page with this section in place of the one before, at its end."""
    return _SECTION.sub("\n", text).rstrip() + "\n\n" + "\n".join(section(report)) + "\n"


def kept(text: str, folder: Path) -> str:
    """A page with the section of what is stored in ``folder``, where something is."""
    stored = folder / STORED
    return replaced(text, ServingReport.from_dict(json.loads(stored.read_text()))) if stored.exists() else text
