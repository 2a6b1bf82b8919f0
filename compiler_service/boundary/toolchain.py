"""The files that a compilation runs with."""

from __future__ import annotations

import glob
import os
import site
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from compiler_service.boundary.imports import Imports, imports, libraries
from compiler_service.boundary.policy import Grant
from compiler_service.boundary.private import held, private_places, without

_VARIABLES = ("PYTHONPATH", "LD_LIBRARY_PATH")
_LIBRARIES = ("/usr", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/ld.so.cache", "/etc/localtime")
_LOADERS = ("/lib*/ld-*", "/usr/lib*/ld-*", "/lib/*/ld-*", "/usr/lib/*/ld-*")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")
_MACHINE = (
    *("/dev/random", "/dev/urandom", "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems", "/proc/self"),
    *("/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/ngroups_max"),
)


def toolchain(programs: Sequence[Path] = ()) -> tuple[Grant, ...]:
    """What Python, its packages and the C library need to run: nothing that is anybody's secret, and nothing that holds one.

    Args:
        programs: what may be executed beside this Python.
    """
    private = private_places()
    given = ((part, "read") for path in _readable(private) for part in without(path, private))
    devices = ((path, "device") for path in _DEVICES)
    return tuple(dict.fromkeys((("/sys/bus", "list"), *given, *_executable(programs), *devices)))


def importable(private: Sequence[str] = ()) -> Imports:
    """What a process inside the boundary may import beside what was installed with this Python."""
    return imports(os.environ.get("PYTHONPATH", ""), private or private_places())


def narrowed() -> Iterator[str]:
    """Sentences: which folders that compilations read hold a place that they must not, so that less of them is given."""
    private = private_places()
    named = (
        (name, folder)
        for name in _VARIABLES
        for folder in os.environ.get(name, "").split(os.pathsep)
        if os.path.isabs(folder)
    )
    for name, folder in (*named, *(("the toolchain", folder) for folder in dict.fromkeys(_installed()))):
        found = held(folder, private)
        if found:
            yield f"{folder} ({name}) holds {', '.join(found[:3])}, which is kept out: not all else that lies there is given"


def withheld() -> tuple[str, ...]:
    """What compilations cannot do without and do not get, as settings name the same place as one that must not be reached."""
    private = private_places()
    needed = (*importable(private).readable, *_installed())
    return tuple(path for path in dict.fromkeys(needed) if os.path.realpath(path) in private)


def _readable(private: Sequence[str]) -> Iterator[str]:
    yield from importable(private).readable
    yield from libraries(os.environ.get("LD_LIBRARY_PATH", ""))
    yield from _installed()
    yield from _MACHINE


def _installed() -> Iterator[str]:
    yield from (sys.prefix, sys.base_prefix, *site.getsitepackages(), *sysconfig.get_paths().values())
    if site.ENABLE_USER_SITE:
        yield site.getusersitepackages()
    yield from _LIBRARIES


def _executable(programs: Sequence[Path]) -> Iterator[Grant]:
    loaders = [path for pattern in _LOADERS for path in glob.glob(pattern)]
    base = getattr(sys, "_base_executable", sys.executable)
    for program in (sys.executable, base, *programs, *loaders):
        yield os.path.realpath(program), "execute"
