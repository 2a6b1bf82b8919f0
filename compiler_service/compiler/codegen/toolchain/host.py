"""The machine that this process runs on, as a target."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import llvmlite.binding as llvm

from shared_ir.errors import IngotError
from shared_ir.machine.cores import machine_cores
from shared_ir.machine.cpu_features import CPU_FEATURES, full_features
from shared_ir.machine.machine import Machine
from shared_ir.machine.target import Target, architecture_of, derive

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_TOLD_BY_FEATURE = {"amx-tile": "sapphirerapids"}
"""Features that no cpu before the named one has."""
_UNITS = {"K": 1024, "M": 1024 * 1024}
_PROCESSORS = Path("/proc/cpuinfo")
_NAME = re.compile(r"^(?:model name|Model|uarch)\s*:\s*(.+)$", re.MULTILINE)
"""As x86, boards with ARM, and RISC-V say what they are."""


def host_target() -> Target:
    """Triple, cpu, features, caches and cores of this machine; ``host -cores=4`` plans for others."""
    triple = llvm.get_process_triple().replace("-unknown-", "-")
    flags = dict(llvm.get_host_cpu_features())
    cpu = cpu_of(llvm.get_host_cpu_name(), flags)
    target = derive("llvm", triple, cpu, _features(triple, cpu, flags))
    caches = _cache_sizes(_CACHES)
    return replace(
        target,
        l1=caches.get(1, target.l1),
        l2=caches.get(2, target.l2),
        l3=caches.get(3, 0),
        cores=machine_cores(),
    )


def machine_name() -> str:
    """For people: what processor this is, and the version of LLVM that makes code for it."""
    try:
        named = _NAME.search(_PROCESSORS.read_text(errors="replace"))
    except OSError:
        named = None
    cpu = llvm.get_host_cpu_name() if named is None else named[1].strip()
    return f"{cpu[:100]}; LLVM {'.'.join(map(str, llvm.llvm_version_info))}"


def runs_here(triple: str, features: Sequence[str]) -> bool:
    """Whether this machine has the architecture and every feature that the code may use."""
    return host_machine().runs(triple, features)


def host_machine() -> Machine:
    """What this machine runs by itself."""
    host = host_target()
    return Machine(host.triple, frozenset(name for name in host.features if name.startswith("+")))


def cpu_of(named: str, flags: Mapping[str, bool]) -> str:
    """The LLVM name of this cpu; a hypervisor may give a server's processor the model number of a desktop's."""
    known = CPU_FEATURES.get(named, ())
    told = (cpu for feature, cpu in _TOLD_BY_FEATURE.items() if flags.get(feature, False) and feature not in known)
    return next(told, named)


def _features(triple: str, cpu: str, flags: Mapping[str, bool]) -> tuple[str, ...]:
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
