"""Containers without Docker: a root, a user, variables, mounts and a network, in namespaces of Linux; gone afterwards."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.deployed.dockerfile import ROOT
from tests.deployed.roots import LOCAL, mounts, place

LOOPBACK_UP = "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh14x', b'lo', 0x41))"
"""SIOCSIFFLAGS: IFF_UP | IFF_RUNNING."""
CONFINED = ("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")


def may_be_made() -> bool:
    """Whether this process may make namespaces and become another user."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"]).returncode == 0


@dataclass(frozen=True)
class Mount:
    """``source`` of this machine at ``target``, or a tmpfs where there is none."""

    target: str
    source: Path | None = None
    options: str = ""

    @property
    def read_only(self) -> bool:
        return "ro" in self.options.split(",")


@dataclass(frozen=True)
class Container:
    """What is started.

    Attributes:
        root: of its files.
        command, variables, user: of its first process; ``user`` is ``uid:gid``.
        mounts: beside the root.
        read_only: whether the root is.
        confined: whether it lacks every capability and may not get one.
    """

    root: Path
    command: tuple[str, ...]
    variables: Mapping[str, str]
    user: str
    mounts: tuple[Mount, ...] = ()
    read_only: bool = False
    confined: bool = False

    def entering(self, command: Sequence[str]) -> list[str]:
        """``command`` as its user, with its variables; to be started in its root."""
        user, _, group = self.user.partition(":")
        settings = [f"{name}={value}" for name, value in self.variables.items()]
        identity = ["setpriv", f"--reuid={user}", f"--regid={group or user}", "--clear-groups"]
        return ["env", "-i", *settings, *identity, *(CONFINED if self.confined else ()), "--", *command]

    def script(self, hosts: Path) -> str:
        """Lines of a shell that become the container."""
        lines = mounts(self.root)
        for mount in (*self.mounts, Mount("/etc/hosts", hosts, "ro")):
            lines += _mounting(self.root, mount)
        if self.read_only:
            at = shlex.quote(str(self.root))
            lines += [f"mount -o remount,bind,ro {at}{LOCAL}", f"mount -o remount,bind,ro {at}"]
        starting = ["chroot", str(self.root), *self.entering(self.command)]
        return "\n".join(["set -e", *lines, "exec " + shlex.join(starting)])


def _mounting(root: Path, mount: Mount) -> list[str]:
    target = place(root, mount.target)
    if mount.source is not None and mount.source.is_file():
        target.touch()
    else:
        target.mkdir(parents=True, exist_ok=True)
    at = shlex.quote(f"{root}{mount.target}")
    if mount.source is None:
        return [f"mount -t tmpfs -o {mount.options or 'mode=1777'} tmpfs {at}"]
    lines = [f"mount --bind {shlex.quote(str(mount.source))} {at}"]
    return [*lines, f"mount -o remount,bind,ro {at}"] if mount.read_only else lines


@dataclass
class Running:
    """A started container: ``outer`` waits for its first process, which is number 1 inside."""

    container: Container
    outer: subprocess.Popen[bytes]
    log: Path

    @property
    def first(self) -> int:
        """The id, on this machine, of its first process; 0 when there is none."""
        found = _children(self.outer.pid)
        return found[0] if found else 0

    def stop(self, seconds: float) -> int:
        """As ``docker stop``: SIGTERM, then some time. Its exit status."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.first, signal.SIGTERM)
        return self.outer.wait(seconds)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.outer.pid, signal.SIGKILL)
        self.outer.wait()

    def run(self, *command: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        """As ``docker exec``."""
        enter = ["nsenter", "--target", str(self.first), "--mount", "--net", "--pid", "--root", "--wd"]
        own = [*enter, *self.container.entering(command)]
        return subprocess.run(own, capture_output=True, text=True, timeout=seconds)

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        """A failure shows what the container printed."""
        deadline = time.monotonic() + seconds
        while not condition():
            ended = self.outer.poll() is not None
            if ended or time.monotonic() > deadline:
                what = f"ended with {self.outer.returncode}" if ended else f"not after {seconds:.0f} s"
                raise AssertionError(f"{self.log.stem}: {what}\n{self.log.read_text(errors='replace')[-8000:]}")
            time.sleep(0.3)


def _children(process: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


@dataclass
class Network:
    """A network of its own with the loopback interface alone, on which every name that is told means this machine."""

    folder: Path
    holder: subprocess.Popen[bytes]
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    @contextmanager
    def make(cls, folder: Path, names: Sequence[str]) -> Iterator[Network]:
        (folder / "hosts").write_text(f"127.0.0.1 localhost {' '.join(names)}\n")
        ready = f"{shlex.quote(sys.executable)} -c {shlex.quote(LOOPBACK_UP)} && echo up && exec sleep infinity"
        holder = subprocess.Popen(["unshare", "--net", "sh", "-c", ready], stdout=subprocess.PIPE)
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n"
        made = cls(folder, holder)
        try:
            yield made
        finally:
            for process in reversed(made._running):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            holder.kill()
            holder.wait()

    @property
    def _inside(self) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]

    def program(self, name: str, *command: str | Path, **variables: str) -> subprocess.Popen[bytes]:
        """A program of this machine, on this network, its output in ``name.log``."""
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(self.folder)} | variables
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*self._inside, *map(str, command)],
                env=environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running.append(process)
        return process

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """A program of this machine, on this network, to its end."""
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)} | variables
        own = [*self._inside, *map(str, command)]
        return subprocess.run(own, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=400)

    def start(self, name: str, container: Container) -> Running:
        command = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
        process = self.program(name, *command, "sh", "-c", container.script(self.folder / "hosts"))
        return Running(container, process, self.folder / f"{name}.log")
