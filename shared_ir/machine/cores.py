"""How many cores there are: those of the machine, for planning code, and those of this process, for running it."""

from __future__ import annotations

import os
from pathlib import Path

_CONTROL_GROUP = Path("/sys/fs/cgroup")


def machine_cores(group: Path = _CONTROL_GROUP) -> int:
    """Cores of this machine or, inside a container, those that it was given: its set of cores and its CPU quota.

    The affinity mask of the process does not count: who compiles under ``taskset`` or beside other work does not ask for code
    that is planned for one core, and the same machine gives the same artifact.
    """
    limits = (_cpu_set(group), _quota(group))
    return min([os.cpu_count() or 1, *(limit for limit in limits if limit)])


def usable_cores(group: Path = _CONTROL_GROUP) -> int:
    """Cores that this process may keep busy: its affinity mask, or the CPU quota of its container where that is less.

    Threads beyond the quota do not run sooner, they get the container throttled.
    """
    allowed = len(os.sched_getaffinity(0))
    return min(allowed, _quota(group) or allowed)


def _cpu_set(group: Path) -> int:
    """The number of cores in ``0-3,8``, as control groups of version 2 and of version 1 have it; 0 where nothing is said."""
    for path in (group / "cpuset.cpus.effective", group / "cpuset" / "cpuset.effective_cpus"):
        try:
            ranges = [part.partition("-") for part in path.read_text().strip().split(",")]
            return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)
        except (OSError, ValueError):
            continue
    return 0


def _quota(group: Path) -> int:
    """Whole cores of the CPU quota, at least 1; 0 where there is none. A thread without its core would stall the others."""
    quota, period = _quota_v2(group / "cpu.max") or _quota_v1(group / "cpu") or (0, 0)
    return max(1, quota // period) if quota > 0 and period > 0 else 0


def _quota_v2(path: Path) -> tuple[int, int] | None:
    """Quota and period in microseconds; the quota may be ``max``."""
    try:
        quota, period = path.read_text().split()
        return int(quota), int(period)
    except (OSError, ValueError):
        return None


def _quota_v1(folder: Path) -> tuple[int, int] | None:
    try:
        return int((folder / "cpu.cfs_quota_us").read_text()), int((folder / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
