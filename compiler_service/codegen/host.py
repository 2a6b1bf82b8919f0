"""The machine that this process runs on, as a target."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import llvmlite.binding as llvm

from shared_ir.cpu_features import full_features
from shared_ir.errors import IngotError
from shared_ir.target import Target, architecture_of, derive

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_UNITS = {"K": 1024, "M": 1024 * 1024}


def host_target() -> Target:
    """Triple, cpu, features, caches and usable cores of this machine."""
    triple = llvm.get_process_triple().replace("-unknown-", "-")
    cpu = llvm.get_host_cpu_name()
    flags = dict(llvm.get_host_cpu_features())
    target = derive("llvm", triple, cpu, _features(triple, cpu, flags))
    caches = _cache_sizes(_CACHES)
    return replace(
        target,
        l1=caches.get(1, target.l1),
        l2=caches.get(2, target.l2),
        l3=caches.get(3, 0),
        cores=usable_cores(),
    )


def _features(triple: str, cpu: str, flags: dict[str, bool]) -> tuple[str, ...]:
    """What this machine has beyond its cpu name, and what it lacks of it (a hypervisor may hide features)."""
    try:
        listed = full_features(architecture_of(triple), cpu, ())
    except IngotError:
        listed = frozenset()
    interesting = listed | {
        name for name in flags if name.startswith(("avx", "sse4", "fma", "f16c", "bmi", "sve", "zv"))
    }
    present = [f"+{name}" for name in sorted(interesting) if flags.get(name, False)]
    missing = [f"-{name}" for name in sorted(interesting) if name in flags and not flags[name]]
    return (*present, *missing)


def _cache_sizes(folder: Path) -> dict[int, int]:
    """Data cache bytes by level."""
    sizes: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            size = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind in ("Data", "Unified") and size[:-1].isdigit():
            sizes[level] = int(size[:-1]) * _UNITS.get(size[-1], 1)
    return sizes


def usable_cores() -> int:
    """Cores that this process may use: its affinity, or the CPU quota of its control group when that is less."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = _QUOTA.read_text().split()
    except (OSError, ValueError):
        return cores
    if quota == "max":
        return cores
    return max(1, min(cores, round(int(quota) / int(period))))
