"""The machine that measured: without it a latency says nothing."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from compiler_service.compiler.codegen.toolchain.host import host_target
from shared_ir.machine.target import Target

_PACKAGES = ("onnxruntime", "openvino", "llvmlite", "numpy", "onnx")
_FLAGS = ("avx512_bf16", "avx512_vnni", "avx512f", "avx2", "fma", "f16c", "amx_tile", "asimd", "sve", "sve2")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_REPOSITORY = Path(__file__).parent.parent


@dataclass(frozen=True)
class Machine:
    """What decides the numbers.

    Attributes:
        flags: instruction sets that matter to these kernels.
        caches: bytes of L1 data, L2 and L3 as one core sees them.
        memory: bytes.
        governor: of CPU frequency; ``unknown`` on most virtual machines.
        load: load average of the last minute when the benchmark began; above 0.1 the machine was not idle.
        versions: package -> version, ``ingot`` with its commit.
    """

    cpu: str
    flags: tuple[str, ...]
    cores: int
    caches: tuple[int, int, int]
    memory: int
    governor: str
    hypervisor: bool
    kernel: str
    load: float
    versions: dict[str, str]

    def lines(self) -> tuple[str, ...]:
        """For people."""
        l1, l2, l3 = (size // 1024 for size in self.caches)
        where = "a virtual machine" if self.hypervisor else "bare metal"
        return (
            f"CPU: {self.cpu}, {self.cores} usable cores, {where}; {' '.join(self.flags)}",
            f"caches: L1 {l1} KiB, L2 {l2} KiB, L3 {l3} KiB; memory {self.memory / 2**30:.1f} GiB",
            f"frequency governor: {self.governor}; load average at the start: {self.load:.2f}",
            f"{self.kernel}, Python {platform.python_version()}; "
            + ", ".join(f"{name} {version}" for name, version in self.versions.items()),
        )


def describe_machine() -> Machine:
    """This machine, now."""
    target = host_target()
    info = _cpu_info()
    flags = info.get("flags", info.get("Features", "")).split()
    return Machine(
        cpu=cpu_name(info, target),
        flags=tuple(f for f in _FLAGS if f in flags),
        cores=target.cores,
        caches=(target.l1, target.l2, target.l3),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        governor=_GOVERNOR.read_text().strip() if _GOVERNOR.exists() else "unknown",
        hypervisor="hypervisor" in flags,
        kernel=f"{platform.system()} {platform.release()}",
        load=os.getloadavg()[0],
        versions={"ingot": _commit()} | _versions(_PACKAGES),
    )


def cpu_name(info: dict[str, str], target: Target) -> str:
    """Vendor's name and LLVM's name of the microarchitecture."""
    name = info.get("model name") or info.get("Model") or platform.machine()
    return f"{name} ({target.cpu})"


def _cpu_info() -> dict[str, str]:
    """The fields of the first processor in ``/proc/cpuinfo``."""
    fields: dict[str, str] = {}
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return fields
    for line in text.split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    return fields


def _versions(packages: Sequence[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    """The commit that was measured; ``+`` when the tree differs from it."""
    try:
        version = subprocess.run(
            ["git", "-C", str(_REPOSITORY), "describe", "--always", "--dirty=+"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        version = "unknown commit"
    return version
