"""Cores of the machine and of the process, as control groups and affinity masks limit them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared_ir.machine.cores import machine_cores, usable_cores

MANY = 64


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty control group on a machine of 64 cores, of which this process may use 48."""
    monkeypatch.setattr(os, "cpu_count", lambda: MANY)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(48)))
    return tmp_path


def write(group: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (group / name).parent.mkdir(exist_ok=True)
        (group / name).write_text(text)
    return group


@pytest.mark.parametrize(
    ("files", "machine", "process"),
    [
        ({}, 64, 48),
        ({"cpu.max": "max 100000\n"}, 64, 48),
        ({"cpu.max": "5600000 100000\n"}, 56, 48),
        ({"cpu.max": "400000 100000\n"}, 4, 4),
        ({"cpu.max": "250000 100000\n"}, 2, 2),
        ({"cpu.max": "50000 100000\n"}, 1, 1),
        ({"cpu.max": "garbage"}, 64, 48),
        ({"cpu.max": "100000 0"}, 64, 48),
        ({"cpuset.cpus.effective": "0-7,16-23\n"}, 16, 48),
        ({"cpuset.cpus.effective": "5\n", "cpu.max": "400000 100000\n"}, 1, 4),
        ({"cpuset.cpus.effective": "\n"}, 64, 48),
        ({"cpu/cpu.cfs_quota_us": "70000", "cpu/cpu.cfs_period_us": "100000"}, 1, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64, 48),
        ({"cpuset/cpuset.effective_cpus": "0-1,4-5"}, 4, 48),
    ],
)
def test_limits_of_the_container_count(group: Path, files: dict[str, str], machine: int, process: int) -> None:
    write(group, files)
    assert (machine_cores(group), usable_cores(group)) == (machine, process)


def test_the_affinity_of_a_process_is_no_property_of_the_machine(group: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    assert (machine_cores(group), usable_cores(group)) == (MANY, 1)
