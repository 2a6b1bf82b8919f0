"""Runs of an artifact for another machine, under its emulator. What it computes is what that machine would; how long it takes is not."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compiler_service.compiler.codegen.toolchain.emulation import Emulator, loading_program
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target
from shared_ir.plan.program import Call, Plan, walk_steps
from shared_ir.types import ValueKind

_SIGNAL = re.compile(r"uncaught target signal (\d+)")
_ILLEGAL_INSTRUCTION = 4
_REFUSED = ("model refused: ", "model failed: ")
"""How the program begins what the model says to inputs that it does not take."""
_CANNOT = re.compile(r"model cannot start: model '.*' was compiled for a CPU with ")
"""How it begins where the emulated processor lacks a feature."""
_FAULTS = (2, 4)
"""Exit status of ``native/loaded.c`` where the model fails, and where no machine could load the library."""
_UNWRITTEN = re.compile(r"^output file .*: cannot be written", re.MULTILINE)
"""What it says where there is no room for a result: the folder is this process's own."""
_MOST_SAID = 300


class NotRunError(Exception):
    """Nothing was computed, and that is not the model's fault; the text says why."""


@dataclass(frozen=True)
class EmulatedArtifact:
    """An artifact that can be run.

    Attributes:
        directory: with its files; nothing is written there.
        exchange: a folder for inputs and outputs.
        seconds: after which a run is given up; None for never.
    """

    plan: Plan
    target: Target
    emulator: Emulator
    directory: Path
    exchange: Path
    seconds: float | None

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray] | None:
        """What the model computes of ``inputs``, those that have no default; None where it does not take their sizes.

        Raises:
            NotRunError: the emulator is too slow for it, lacks what it needs, or is not allowed here.
            IngotError: COMPILER_FAULT, it crashed; DISK_FULL, no room for its outputs.
        """
        given = list(self._write(inputs))
        results = [self.exchange / f"output{i}.bin" for i in range(len(self.plan.outputs))]
        done = self._start([*given, *map(str, results)])
        if done.returncode == 0:
            return list(self._read(done.stdout, results))
        if done.stderr.startswith(_REFUSED):
            return None
        raise self._failure(done.returncode, done.stderr)

    def _write(self, inputs: Sequence[np.ndarray]) -> Iterator[str]:
        """The files and the shapes of the inputs, as arguments."""
        arrays = iter(inputs)
        for position, spec in enumerate(self.plan.inputs):
            if spec.is_optional:
                yield "-"
                continue
            array, file = next(arrays), self.exchange / f"input{position}.bin"
            file.write_bytes(np.ascontiguousarray(array).tobytes())
            if array.ndim:
                yield from ("--shape", f"{spec.name}={','.join(map(str, array.shape))}")
            yield str(file)

    def _start(self, files: Sequence[str]) -> subprocess.CompletedProcess[str]:
        program = str(loading_program(self.target))
        command = [*self.emulator.command(self.target.architecture), program, "--threads", "1", "--extents", *files]
        try:
            return subprocess.run(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise NotRunError(f"one run takes more than {self.seconds:g} s under {self.emulator.version}") from error
        except OSError as error:
            raise NotRunError(f"{self.emulator.version} cannot be started: {error.strerror}") from error

    def _read(self, said: str, results: Sequence[Path]) -> Iterator[np.ndarray]:
        lines = said.split("\n")
        for spec, line, file in zip(self.plan.outputs, lines, results, strict=False):
            shape = tuple(map(int, line.split(","))) if line else ()
            yield np.fromfile(file, storage_dtype(spec.dtype)).reshape(shape)

    def _failure(self, status: int, said: str) -> Exception:
        """Of the model where it fails or crashes; of the emulator, or of what runs under it, otherwise."""
        if _UNWRITTEN.search(said):
            message = "the emulated model cannot write its outputs"
            return IngotError(ErrorCode.DISK_FULL, message, field=str(self.exchange), remedy="Make room on the disk.")
        crash = _SIGNAL.search(said)
        crashed = crash is not None and int(crash[1]) != _ILLEGAL_INSTRUCTION
        last = (said.strip().splitlines() or [f"exit status {status}"])[-1][:_MOST_SAID]
        if not crashed and (status not in _FAULTS or _CANNOT.match(said)):
            return NotRunError(f"{self.emulator.version} cannot run it: {last}")
        return IngotError(
            ErrorCode.COMPILER_FAULT,
            "the compiled model brought down the process that ran it",
            field=self.emulator.version,
            received=last,
            remedy="This is a bug in the compiler: please report it with the model.",
        )


def cannot_be_emulated(plan: Plan) -> bool:
    """Whether the model needs the runtime service beside its code: for strings, sequences and optionals."""
    values = (*plan.inputs, *plan.outputs)
    odd = any(s.kind is not ValueKind.TENSOR or s.dtype is DType.STRING for s in values)
    return odd or any(isinstance(step, Call) for step in walk_steps(plan.steps))
