"""What deploy/Dockerfile says, as data: what is copied, installed, set and started."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy/Dockerfile"


@dataclass(frozen=True)
class Image:
    """One target of the Dockerfile.

    Attributes:
        extra: that pip installs.
        variables: of its environment.
        command: its entry point.
        health: the command of its health check.
    """

    extra: str
    variables: dict[str, str]
    command: tuple[str, ...]
    health: tuple[str, ...]


def stages() -> dict[str, str]:
    """Text of each stage by name, comments and continued lines removed."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    parts = re.split(r"^FROM (\S+) AS (\S+)$", text, flags=re.MULTILINE)
    return {parts[i + 1]: parts[i + 2] for i in range(1, len(parts), 3)}


def copied() -> list[str]:
    """What the images are built from, relative to the root of the project."""
    lines = re.findall(r"^COPY (?!--)(.+)$", stages()["source"], flags=re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def image(name: str) -> Image:
    found = stages()
    stage = found[name]
    (environment,) = re.findall(r"^COPY --from=(\S+) /opt/ingot /opt/ingot$", stage, flags=re.MULTILINE)
    (extra,) = re.findall(r'^RUN pip install --no-cache-dir "\.\[(\w+)\]"$', found[environment], flags=re.MULTILINE)
    set_lines = re.findall(r"^ENV (.+)$", found["base"] + stage, flags=re.MULTILINE)
    variables = dict(re.findall(r"([A-Z_]+)=(\S+)", " ".join(set_lines)))
    del variables["PATH"]
    (command,) = re.findall(r"^ENTRYPOINT (.+)$", stage, flags=re.MULTILINE)
    (health,) = re.findall(r"^HEALTHCHECK .*CMD (.+)$", stage, flags=re.MULTILINE)
    return Image(extra, variables, tuple(json.loads(command)), tuple(json.loads(health)))
