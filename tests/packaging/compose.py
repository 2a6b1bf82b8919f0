"""deploy/compose.yaml on this machine without containers: its commands and settings, with other paths and ports."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.packaging.images import ROOT

COMPOSE = ROOT / "deploy/compose.yaml"
SHARED, OWN = ("/keys", "/order-key", "/trust"), ("/var/lib/ingot", "/var/cache/ingot")
"""Folders that several containers see, and those that each has for itself."""
PORTS = ("8000", "8001", "8002", "8500", "8501", "6379")
HEALTH = "/usr/local/bin/ingot-health"


@dataclass(frozen=True)
class Place:
    """Where the containers' folders and ports are on this machine.

    Attributes:
        root: of all their files.
        ports: of this machine by those of the containers.
        storage: URL of what stands for MinIO.
        user: id in place of 10001.
    """

    root: Path
    ports: Mapping[str, str]
    storage: str
    user: int

    @classmethod
    def make(cls, root: Path, storage: str, user: int | None) -> Place:
        """Anyone may enter ``root``; what the images make for their user belongs to it."""
        root.chmod(0o755)
        health = root / HEALTH[1:]
        health.parent.mkdir(parents=True)
        shutil.copy(ROOT / "deploy/health.py", health)
        ports = dict(zip(PORTS, map(str, _free_ports(len(PORTS))), strict=True))
        made = cls(root, ports, storage, os.getuid() if user is None else user)
        for name in SHARED:
            made.make_folder(root / name[1:])
        return made

    def make_folder(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        os.chown(folder, self.user, -1)

    def container(self, name: str) -> None:
        """Makes the folders that the container ``name`` has for itself."""
        for own in OWN:
            self.make_folder(self.root / name / own[1:])

    def here(self, text: str, name: str = "") -> str:
        """``text`` of an image or of the compose file, for the container ``name`` on this machine."""
        text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
        text = text.replace("http://minio:9000", self.storage).replace("redis:6379", "127.0.0.1:6379")
        text = text.replace("0.0.0.0", "127.0.0.1").replace("10001", str(self.user))
        text = re.sub(rf"(?<![\w/])({'|'.join(OWN)})\b", rf"{self.root}/{name}\1", text)
        text = re.sub(rf"(?<![\w/])({'|'.join((*SHARED, HEALTH))})\b", rf"{self.root}\1", text)
        return re.sub(rf"(?<![\w.])({'|'.join(PORTS)})\b", lambda found: self.ports[found[1]], text)

    def settings(self, variables: Mapping[str, str], name: str) -> dict[str, str]:
        return {variable: self.here(value, name) for variable, value in variables.items()}


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
