"""The files that a compilation runs with."""

from __future__ import annotations

import glob
import os
import site
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from compiler_service.boundary.policy import Grant

ROOT = Path(__file__).parents[2]
"""The folder that our packages lie in."""
_OURS = ("compiler_service", "shared_ir", "runtime_service", "ingot")
_LIBRARIES = ("/usr", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/ld.so.cache", "/etc/localtime")
_LOADERS = ("/lib*/ld-*", "/usr/lib*/ld-*", "/lib/*/ld-*", "/usr/lib/*/ld-*")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")
_MACHINE = (
    *("/dev/random", "/dev/urandom", "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems", "/proc/self"),
    *("/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/ngroups_max"),
)


def toolchain(programs: Sequence[Path] = ()) -> tuple[Grant, ...]:
    """What Python, its packages and the C library need to run: nothing that is anybody's secret.

    Args:
        programs: what may be executed beside this Python.
    """
    return tuple(dict.fromkeys((*_readable(), *_executable(programs), *((path, "device") for path in _DEVICES))))


def _readable() -> Iterator[Grant]:
    yield str(ROOT), "list"
    yield from ((str(ROOT / package), "read") for package in _OURS)
    folders = [sys.prefix, sys.base_prefix, *site.getsitepackages(), *sysconfig.get_paths().values()]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    for variable in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        folders += [folder for folder in os.environ.get(variable, "").split(os.pathsep) if os.path.isabs(folder)]
    yield "/sys/bus", "list"
    yield from ((folder, "read") for folder in (*folders, *_LIBRARIES, *_MACHINE))


def _executable(programs: Sequence[Path]) -> Iterator[Grant]:
    loaders = [path for pattern in _LOADERS for path in glob.glob(pattern)]
    base = getattr(sys, "_base_executable", sys.executable)
    for program in (sys.executable, base, *programs, *loaders):
        yield os.path.realpath(program), "execute"
