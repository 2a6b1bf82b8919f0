"""deploy/Dockerfile as data: its stages, their instructions, and what an image starts with."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy/Dockerfile"
DEBIAN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Instruction:
    """One instruction, its continued lines joined: ``keyword --flag=value ... text``."""

    keyword: str
    flags: tuple[tuple[str, str], ...]
    text: str

    def flag(self, name: str) -> str:
        """The value of ``--name``; empty where it is not given."""
        return dict(self.flags).get(name, "")


@dataclass(frozen=True)
class Stage:
    """``FROM base AS name`` and what follows it."""

    base: str
    name: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class Image:
    """What a container of a stage starts with.

    Attributes:
        variables: of its environment.
        user: ``uid:gid``.
        command: its entry point.
        health: the command of its health check.
    """

    variables: dict[str, str]
    user: str
    command: tuple[str, ...]
    health: tuple[str, ...]


@cache
def stages() -> dict[str, Stage]:
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: dict[str, Stage] = {}
    parts = re.split(r"^FROM (\S+) AS (\S+)$", text, flags=re.MULTILINE)
    for base, name, lines in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        found[name] = Stage(base, name, tuple(_instruction(line) for line in lines.splitlines() if line.strip()))
    return found


def _instruction(line: str) -> Instruction:
    keyword, _, rest = line.strip().partition(" ")
    flags = []
    while match := re.match(r"\s*--([a-z-]+)=(\S+)\s+", rest):
        flags.append((match[1], match[2]))
        rest = rest[match.end() :]
    return Instruction(keyword, tuple(flags), " ".join(rest.split()))


def lineage(name: str) -> tuple[Stage, ...]:
    """The stages that ``name`` is built on, the first one first, and itself."""
    stage = stages()[name]
    return (*(lineage(stage.base) if stage.base in stages() else ()), stage)


def instructions(name: str, keyword: str) -> list[Instruction]:
    return [each for stage in lineage(name) for each in stage.instructions if each.keyword == keyword]


def variables(name: str) -> dict[str, str]:
    """The environment that the ENV lines up to the end of ``name`` make."""
    found = {"PATH": DEBIAN_PATH}
    for line in instructions(name, "ENV"):
        for variable, value in re.findall(r"(\w+)=(\S+)", line.text):
            found[variable] = re.sub(r"\$(\w+)", lambda match: found[match[1]], value)
    return found


def image(name: str) -> Image:
    """Of a stage that is started: one with an entry point and a health check."""
    (command,) = instructions(name, "ENTRYPOINT")
    (health,) = instructions(name, "HEALTHCHECK")
    check = health.text.partition("CMD ")[2]
    user = instructions(name, "USER")[-1].text
    return Image(variables(name), user, tuple(json.loads(command.text)), tuple(json.loads(check)))


def copied(name: str = "source") -> list[str]:
    """What a stage is built from, relative to the root of the project."""
    lines = [each for each in stages()[name].instructions if each.keyword == "COPY" and not each.flag("from")]
    return [source for line in lines for source in line.text.split()[:-1]]
