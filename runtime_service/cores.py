"""How many cores this process may use, and how they are divided among the instances of a model."""

from __future__ import annotations

import math
import os
from pathlib import Path


def available_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores this process may keep busy: the smaller of its affinity mask and its cgroup quota, rounded up.

    Threads beyond the quota do not run sooner, they get the container throttled.
    """
    affinity = len(os.sched_getaffinity(0))
    quota = _quota_v2(cgroup / "cpu.max") or _quota_v1(cgroup / "cpu")
    return affinity if quota is None else max(1, min(affinity, math.ceil(quota)))


def threads_per_instance(cores: int, instances: int) -> int:
    """Threads of each instance, so that instances x threads <= cores (but at least one each)."""
    return max(1, cores // instances)


def _quota_v2(path: Path) -> float | None:
    """``cpu.max`` of cgroup v2: quota and period in microseconds, or ``max``."""
    try:
        quota, period = path.read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _quota_v1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        period = int((folder / "cpu.cfs_period_us").read_text())
        return quota / period if quota > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
