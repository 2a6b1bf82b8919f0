"""Roots of the images, without Docker: the lines of deploy/Dockerfile, executed one by one on this machine's Debian.

What Debian's image would bring is this machine's ``/usr``, read-only; its packages are asked for by the names that the lines
give. Everything else (users, folders, copies, environments) is made by the lines themselves, under the paths that they say."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.deployed.dockerfile import ROOT, Instruction, Stage, stages, variables

LOCAL = "/usr/local"
FOLDERS = (
    "dev",
    "etc",
    "home",
    "opt",
    "proc",
    "root",
    "run",
    "tmp",
    "usr",
    "var/lib",
    "var/cache",
    "var/log",
    "var/tmp",
)
LINKS = ("bin", "lib", "lib64", "sbin")
OF_ETC = (
    *("alternatives", "ca-certificates", "debian_version", "default", "group", "gshadow", "ld.so.cache", "ld.so.conf"),
    *("ld.so.conf.d", "localtime", "login.defs", "mime.types", "nsswitch.conf", "os-release", "passwd", "pip.conf"),
    *("python3", "python3.11", "python3.12", "python3.13", "resolv.conf", "shadow", "ssl", "xdg/pip"),
)
"""What a fresh Debian has there, and where this machine finds PyPI."""


def place(root: Path, path: str) -> Path:
    """Where the file ``path`` of a root is kept: ``/usr`` itself is this machine's."""
    if path == LOCAL or path.startswith(f"{LOCAL}/"):
        return root / ".local" / path[len(LOCAL) :].lstrip("/")
    return root / path.lstrip("/")


def mounts(root: Path) -> list[str]:
    """Lines of a shell that make ``root`` one to start programs in; in a mount namespace of its own."""
    at = shlex.quote(str(root))
    return [
        "mount --make-rprivate /",
        f"mount --bind {at} {at}",
        f"mount --bind /usr {at}/usr",
        f"mount -o remount,bind,ro {at}/usr",
        f"mount --bind {at}/.local {at}{LOCAL}",
        f"mount --rbind /dev {at}/dev",
        f"mount -t tmpfs -o nosuid,nodev,noexec,size=64m shm {at}/dev/shm",
        f"mount -t proc proc {at}/proc",
    ]


class Roots:
    """The root of each stage, made when it is asked for and once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, name: str) -> Path:
        root = self._folder / name
        if not root.exists():
            stage = stages()[name]
            self._start(stage, root)
            for instruction in stage.instructions:
                self._execute(stage, instruction, root)
        return root

    def _start(self, stage: Stage, root: Path) -> None:
        if stage.base in stages():
            subprocess.run(["cp", "-a", self.of(stage.base), root], check=True)
        elif stage.base == "scratch":
            root.mkdir(parents=True)
        else:
            assert stage.base.startswith("debian:"), f"{stage.base} is not what this machine can stand for"
            debian(root)

    def _execute(self, stage: Stage, instruction: Instruction, root: Path) -> None:
        match instruction.keyword:
            case "RUN" if instruction.text.startswith("apt-get "):
                need_packages(packages(instruction.text))
            case "RUN":
                self._run(stage, instruction, root)
            case "COPY":
                self._copy(stage, instruction, root)
            case "ENV" | "USER" | "WORKDIR" | "EXPOSE" | "HEALTHCHECK" | "ENTRYPOINT":
                pass  # where containers start
            case other:
                raise AssertionError(f"{other} is not understood here")

    def _copy(self, stage: Stage, instruction: Instruction, root: Path) -> None:
        *sources, target = instruction.text.split()
        origin = instruction.flag("from")
        to = place(root, os.path.join(working_folder(stage), target))
        for source in sources:
            path = place(self.of(origin), source) if origin else ROOT / source
            into = to / path.name if target.endswith("/") else to
            into.parent.mkdir(parents=True, exist_ok=True)
            if origin:
                subprocess.run(["cp", "-alT", path, into], check=True)
            elif path.is_dir():
                shutil.copytree(path, into, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(path, into)
        if mode := instruction.flag("chmod"):
            to.chmod(int(mode, 8))

    def _run(self, stage: Stage, instruction: Instruction, root: Path) -> None:
        lines = mounts(root)
        if cache := dict(each.split("=") for each in instruction.flag("mount").split(",") if "=" in each):
            assert cache["type"] == "cache", instruction
            place(root, cache["target"]).mkdir(parents=True, exist_ok=True)
            lines.append(f"mount --bind {pip_cache()} {shlex.quote(str(root) + cache['target'])}")
        folder = working_folder(stage)
        environment = [f"{name}={value}" for name, value in (pip_settings() | variables(stage.name)).items()]
        command = ["chroot", str(root), "env", "-i", *environment, "sh", "-c", f"cd {folder} && {instruction.text}"]
        done = in_namespace(lines, command, "--mount")
        assert done.returncode == 0, f"{instruction}\n{done.stdout}\n{done.stderr}"


def in_namespace(lines: Iterable[str], command: Sequence[str], *kinds: str) -> subprocess.CompletedProcess[str]:
    script = "\n".join(["set -e", *lines, "exec " + shlex.join(command)])
    return subprocess.run(["unshare", *kinds, "sh", "-c", script], capture_output=True, text=True, cwd="/")


def working_folder(stage: Stage) -> str:
    found = [each.text for each in stage.instructions if each.keyword == "WORKDIR"]
    if found:
        return found[-1]
    return working_folder(stages()[stage.base]) if stage.base in stages() else "/"


def debian(root: Path) -> None:
    """A root as Debian's image has it, but for ``/usr``."""
    for folder in (*FOLDERS, ".local/bin"):
        (root / folder).mkdir(parents=True)
    for name in LINKS:
        (root / name).symlink_to(f"usr/{name}")
    (root / "tmp").chmod(0o1777)
    for name in OF_ETC:
        source, target = Path("/etc") / name, root / "etc" / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        elif source.exists():
            shutil.copy2(source, target)


def packages(line: str) -> list[str]:
    """Those that a line of ``apt-get install`` names."""
    words = line.partition(" install ")[2].partition(" && ")[0].split()
    return [word for word in words if not word.startswith("-")]


def need_packages(names: Sequence[str]) -> None:
    """They are part of this machine's Debian."""
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Status}\n", *names], capture_output=True, text=True)
    installed = {line.split()[0] for line in done.stdout.splitlines() if line.endswith(" ok installed")}
    missing = sorted(set(names) - installed)
    assert not missing, f"the images need Debian's packages {missing}: apt-get install {' '.join(missing)}"


def pip_settings() -> dict[str, str]:
    """The way to PyPI from here. Bytecode is written when something is imported: most of what is installed never is."""
    return {name: value for name, value in os.environ.items() if name.startswith("PIP_")} | {"PIP_NO_COMPILE": "1"}


def pip_cache() -> Path:
    found = Path.home() / ".cache" / "pip"
    found.mkdir(parents=True, exist_ok=True)
    return found
