"""A stage that has been taken over: it tries what hostile code in a parser would try, and says what it got.

Started by a stage runner in place of the compiler: ``probe.py DIRECTORY PROGRESS_FD``. ``request.json`` names what it goes for.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PTRACE_SEIZE = 0x4206
PR_GET_NO_NEW_PRIVS = 39
SIOCGIFCONF, FIOSETOWN = 0x8912, 0x8901
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR = 0x80086601, 0x40086602, 0x401C5820
EXTENTS, NOT_DUMPED = 0x80000, 0x40
F_SET_RW_HINT = 1036
MFD_NOEXEC_SEAL = 8
_LIBC = ctypes.CDLL(None, use_errno=True)


def attempts(aims: dict[str, Any], work: Path) -> dict[str, Callable[[], object]]:
    """Name -> what raises, or returns something false, where the boundary holds."""
    worker = int(aims["worker"])
    return {
        "read the signing key": lambda: Path(aims["key"]).read_bytes(),
        "list the folder of the key": lambda: os.listdir(Path(aims["key"]).parent),
        "copy the key by a link": lambda: os.link(aims["key"], work / "key.pem"),
        "point the worker at the key": lambda: os.symlink(aims["key"], work / "artifact-key"),
        "make a fifo that the worker waits at": lambda: os.mkfifo(work / "fifo"),
        "make the key readable for all": lambda: _done(os.chmod, aims["key"], 0o644),
        "empty the key": lambda: os.truncate(aims["key"], 0),
        "age the key": lambda: os.utime(aims["key"]),
        "mark the key": lambda: os.setxattr(aims["key"], "user.mark", b"1"),
        "read another model in the store": lambda: Path(aims["foreign"]).read_bytes(),
        "list the store": lambda: os.listdir(Path(aims["foreign"]).parent),
        "write into the store": lambda: Path(aims["foreign"]).with_name("planted").write_text("x"),
        "overwrite the weights that it verifies": lambda: Path(aims["artifact"], "weights.bin").write_text("x"),
        "overwrite its own model": lambda: Path(aims["model"]).write_text("x"),
        "trust another key": lambda: Path(aims["trust"], "planted.pub").write_text("x"),
        "write into the cache": lambda: Path(aims["cache"], "native", "planted").write_text("x"),
        "write into the temporary folder": lambda: Path("/tmp/ingot-planted").write_text("x"),
        "read the users": lambda: Path("/etc/passwd").read_bytes(),
        "read the worker's environment": lambda: Path(f"/proc/{worker}/environ").read_bytes(),
        "read the worker's memory": lambda: open(f"/proc/{worker}/mem", "rb").fileno(),
        "read the launcher's memory": lambda: open(f"/proc/{os.getppid()}/mem", "rb").fileno(),
        "list processes": lambda: os.listdir("/proc"),
        "trace the worker": lambda: _libc(_LIBC.ptrace, PTRACE_SEIZE, worker, 0, 0),
        "trace its parent": lambda: _libc(_LIBC.ptrace, PTRACE_SEIZE, os.getppid(), 0, 0),
        "change the worker's limits": lambda: _prlimit(worker),
        "move the worker to another core": lambda: _done(os.sched_setaffinity, worker, os.sched_getaffinity(worker)),
        "set the worker's turn aside": lambda: _done(os.sched_setscheduler, worker, os.SCHED_OTHER, os.sched_param(0)),
        "signal the worker": lambda: _done(os.kill, worker, 0),
        "signal everyone": lambda: _done(os.kill, -1, 0),
        "leave the group that is killed": lambda: os.setsid(),
        "connect to a Unix socket": lambda: _connect(socket.AF_UNIX, aims["socket"]),
        "connect to an abstract socket": lambda: _connect(socket.AF_UNIX, "\0" + aims["abstract"]),
        "connect to a port of this machine": lambda: _connect(socket.AF_INET, ("127.0.0.1", aims["port"])),
        "connect to the internet": lambda: _connect(socket.AF_INET, ("1.1.1.1", 53)),
        "send a datagram to a Unix socket": lambda: _send(socket.SOCK_DGRAM, aims["datagrams"]),
        "send to a Unix socket from a raw pair": lambda: _send(socket.SOCK_RAW, aims["datagrams"]),
        "send to an abstract socket from a pair": lambda: _send(socket.SOCK_DGRAM, f"\0{aims['abstract']}-datagrams"),
        "hand a descriptor to a Unix socket": lambda: _hand_over(socket.SOCK_DGRAM, aims["datagrams"]),
        "hand a descriptor over a pair": lambda: _hand_over(socket.SOCK_STREAM, None),
        "ask a pair for the machine's interfaces": lambda: _on_pair(fcntl.ioctl, SIOCGIFCONF, bytes(16)),
        "have the worker signalled": lambda: _on_pair(fcntl.fcntl, fcntl.F_SETOWN, worker),
        "have the worker signalled by a socket": lambda: _on_pair(fcntl.ioctl, FIOSETOWN, struct.pack("i", worker)),
        "lock its model": lambda: _on_file(fcntl.flock, aims["model"], fcntl.LOCK_EX | fcntl.LOCK_NB),
        "lock a part of its model": lambda: _on_file(fcntl.lockf, aims["model"], fcntl.LOCK_SH | fcntl.LOCK_NB),
        "lease its model": lambda: _on_file(fcntl.fcntl, aims["model"], fcntl.F_SETLEASE, fcntl.F_RDLCK),
        "watch a folder": lambda: _on_file(fcntl.fcntl, os.path.dirname(os.__file__), fcntl.F_NOTIFY, fcntl.DN_CREATE),
        "mark its model": lambda: _mark(aims["model"], FS_IOC_SETFLAGS),
        "mark its model with a longer number": lambda: _mark(aims["model"], 1 << 32 | FS_IOC_SETFLAGS),
        "give its model to a project": lambda: _on_file(fcntl.ioctl, aims["model"], FS_IOC_FSSETXATTR, bytes(28)),
        "leave a hint with its model": lambda: _on_file(fcntl.fcntl, aims["model"], F_SET_RW_HINT, struct.pack("Q", 2)),
        "list the attributes of the key": lambda: _done(os.listxattr, aims["key"]),
        "see a network": lambda: [name for _, name in socket.if_nameindex() if name != "lo"],
        "use what was left open": lambda: _others_open(int(sys.argv[2])),
        "become someone": lambda: _done(os.setuid, 0),
        "run a set-user-id program": lambda: subprocess.run(["/usr/bin/su", "--version"], check=True).returncode == 0,
        "run a shell": lambda: subprocess.run(["/bin/sh", "-c", "true"], check=True).returncode == 0,
        "run what it wrote": lambda: _run_own(work),
        "run what it wrote without a name": lambda: _run_open(os.open(work, os.O_TMPFILE | os.O_RDWR, 0o755)),
        "run what it wrote into memory": lambda: _run_open(os.memfd_create("program", 0)),
        "run what it wrote into sealed memory": lambda: _run_open(os.memfd_create("program", MFD_NOEXEC_SEAL)),
        "a pair for packets": lambda: _done(socket.socketpair, socket.AF_UNIX, socket.SOCK_SEQPACKET),
        "mount": lambda: _mount(work),
        "a new user namespace": lambda: _libc(_LIBC.unshare, 0x10000000),
        "a kernel keyring": lambda: _libc(_LIBC.syscall, 250 if os.uname().machine == "x86_64" else 219, 0, -3, 1),
        "an asynchronous ring": lambda: _libc(_LIBC.syscall, 425, 8, ctypes.create_string_buffer(120)),
        "the machine's requests for reading and writing": _requests,
        "the user's room for watched descriptors": lambda: select.epoll().fileno(),
        "have capabilities": lambda: int(_status("CapEff"), 16) or int(_status("CapPrm"), 16),
        "have secrets in the environment": lambda: [name for name in os.environ if "SECRET" in name or "REDIS" in name],
        "gain privileges": lambda: _LIBC.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1,
        "very many processes": lambda: _forks(int(aims["processes"])),
    }


def _done(act: Callable[..., object], *arguments: object) -> bool:
    act(*arguments)
    return True


def _libc(function: Any, *arguments: object) -> bool:
    if function(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return True


def _requests() -> bool:
    """One of the requests that ``fs.aio-max-nr`` counts for all processes of the machine."""
    return _libc(_LIBC.syscall, 206 if os.uname().machine == "x86_64" else 0, 1, ctypes.byref(ctypes.c_ulong()))


def _mount(place: Path) -> bool:
    """Whether it would be done: there is no such file system, but who may not mount hears that first."""
    return _LIBC.mount(b"none", str(place).encode(), b"no-such", 0, None) < 0 and ctypes.get_errno() == errno.ENODEV


def _prlimit(process: int) -> bool:
    """To what it is: where nothing refuses, the process lives on."""
    import resource

    resource.prlimit(process, resource.RLIMIT_NOFILE, resource.prlimit(process, resource.RLIMIT_NOFILE))
    return True


def _connect(family: int, address: Any) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(2)
        connection.connect(address)
    return True


def _on_pair(act: Callable[..., object], *arguments: object) -> bool:
    here, there = socket.socketpair()
    with here, there:
        return _done(act, here, *arguments)


def _send(kind: socket.SocketKind, address: str) -> bool:
    here, there = socket.socketpair(socket.AF_UNIX, kind)
    with here, there:
        return here.sendto(b"x", address) == 1


def _hand_over(kind: socket.SocketKind, address: str | None) -> bool:
    here, there = socket.socketpair(socket.AF_UNIX, kind)
    descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))]
    with here, there:
        return here.sendmsg([b"x"], descriptors, 0, address) == 1


def _on_file(act: Callable[..., object], path: str, *arguments: object) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return _done(act, descriptor, *arguments)
    finally:
        os.close(descriptor)


def _others_open(progress: int) -> list[str]:
    own = []
    for name in os.listdir("/proc/self/fd"):
        try:
            where = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if int(name) > 2 and int(name) != progress and not where.startswith("/proc/"):
            own.append(where)
    return own


def _run_own(work: Path) -> bool:
    program = os.open(work / "program", os.O_CREAT | os.O_WRONLY, 0o755)
    os.write(program, Path("/bin/true").read_bytes())
    os.close(program)
    return subprocess.run([work / "program"], check=True).returncode == 0


def _run_open(program: int) -> bool:
    """As a file open for writing is not executed, by another descriptor of it."""
    again = -1
    try:
        os.write(program, Path("/bin/true").read_bytes())
        again = os.open(f"/proc/self/fd/{program}", os.O_RDONLY)
        os.close(program)
        return subprocess.run([f"/proc/self/fd/{again}"], check=True, pass_fds=(again,)).returncode == 0
    finally:
        if again >= 0:
            os.close(again)


def _mark(path: str, request: int) -> bool:
    """As a file that backups leave out."""
    descriptor = os.open(path, os.O_RDONLY)
    flags = array.array("l", [EXTENTS])
    try:
        with contextlib.suppress(OSError):
            fcntl.ioctl(descriptor, FS_IOC_GETFLAGS, flags)
        marked = ctypes.c_long(flags[0] | NOT_DUMPED)
        number = 16 if os.uname().machine == "x86_64" else 29
        return _libc(_LIBC.syscall, number, descriptor, ctypes.c_ulong(request), ctypes.byref(marked))
    finally:
        os.close(descriptor)


def _status(name: str) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line.split(":")[1].strip() for line in lines if line.startswith(name + ":"))


def _forks(most: int) -> bool:
    children = []
    try:
        for _ in range(most):
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            children.append(child)
    except OSError:
        return False
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return True


def attempt(act: Callable[[], object]) -> str:
    """Empty where nothing was got; else what."""
    try:
        got = act()
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
    return repr(got)[:200] if got or got is None else ""


def main() -> None:
    work = Path(sys.argv[1])
    aims = json.loads((work / "request.json").read_bytes())["options"]
    got = {name: attempt(act) for name, act in attempts(aims, work).items()}
    (work / "result.json").write_text(json.dumps({"got": got}))


if __name__ == "__main__":
    main()
