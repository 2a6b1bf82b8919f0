"""What a device can run: orders and files for anything else are refused before they are loaded."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ingot.device.process import RunnerSettings
from ingot.device.settings import DeviceSettings
from shared_ir.artifact.host import host_architecture, host_flags, what_lacks
from shared_ir.device.order import MeasuringOrder
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.emulator import find_emulator
from shared_ir.machine.target import architecture_of

_HEAD = struct.Struct("<4sBB10xHH")
"""Of an ELF file: magic, class, byte order, kind, machine (System V gABI, chapter 4)."""
_LITTLE_ENDIAN = 1
_MACHINES = {"x86_64": (2, 62), "aarch64": (2, 183), "armv7": (1, 40), "riscv64": (2, 243)}
"""Class and machine of files by architecture."""
_PROGRAM, _LIBRARY = 2, 3
_NAMES = ("model name", "Model", "Hardware", "uarch", "cpu model")


@dataclass(frozen=True)
class DeviceMachine:
    """``architecture`` and ``flags`` of the processor; ``emulators`` are commands by architecture."""

    architecture: str
    flags: frozenset[str]
    emulators: Mapping[str, tuple[str, ...]]
    core: int | None = None
    locks: bool = True

    @classmethod
    def here(cls, settings: DeviceSettings) -> DeviceMachine:
        found = {name: find_emulator(name) for name in settings.emulates}
        emulators = {name: emulator.command(name) for name, emulator in found.items() if emulator is not None}
        return cls(host_architecture(), host_flags(), emulators, settings.core, settings.locks)

    def runner_for(self, order: MeasuringOrder) -> RunnerSettings:
        """How trials of ``order`` run here. Raises IngotError ARTIFACT_INCOMPATIBLE, INVALID_TARGET."""
        reason = what_lacks(order.triple, order.cpu, order.features, self.architecture, self.flags)
        emulator = self.emulators.get(architecture_of(order.triple), ()) if reason else ()
        if reason and not emulator:
            raise IngotError(
                ErrorCode.ARTIFACT_INCOMPATIBLE,
                f"the order is for another machine than this device: {reason}",
                field="target",
                expected=", ".join((self.architecture, *(f"{name} (emulated)" for name in self.emulators))),
                received=f"{order.triple} {order.cpu}",
                remedy="Tune for the target of the device, which `ingot device status` shows.",
            )
        return RunnerSettings(emulator, self.core, self.locks)


def require_made_for(triple: str, descriptor: int, *, is_program: bool) -> None:
    """Raises IngotError ARTIFACT_INCOMPATIBLE: the file is no program, or no library, of that architecture."""
    architecture = architecture_of(triple)
    width, machine = _MACHINES[architecture]
    expected = (b"\x7fELF", width, _LITTLE_ENDIAN, _PROGRAM if is_program else _LIBRARY, machine)
    head = os.pread(descriptor, _HEAD.size, 0)
    if len(head) < _HEAD.size or _HEAD.unpack(head) != expected:
        raise IngotError(
            ErrorCode.ARTIFACT_INCOMPATIBLE,
            "the order names a file that is none for its target",
            expected=f"{'a program' if is_program else 'a shared library'} for {architecture}",
            received=head.hex() or "nothing",
            remedy="Tune with the release of ingot that the device has.",
        )


def processor() -> str:
    """What the system calls it; empty where it does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    told = {name.strip(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
    return next((told[name] for name in _NAMES if told.get(name)), "")
