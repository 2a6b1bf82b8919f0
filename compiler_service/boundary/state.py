"""What of the boundary this machine can give, found out by entering it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from compiler_service.boundary import launch
from compiler_service.boundary.parts import PROMISES, BoundaryPart, Standing
from compiler_service.boundary.policy import Policy
from compiler_service.boundary.private import private_places
from compiler_service.boundary.toolchain import narrowed, toolchain, withheld
from shared_ir.errors import ErrorCode, IngotError

LAUNCH = (sys.executable, "-I", "-S", launch.__file__)
"""Starts a program inside the boundary: a policy and the program's own command follow."""
BEST_EFFORT, REQUIRE = "best-effort", "require"
_SECONDS = 30.0


@cache
def standing() -> Standing:
    """Which parts hold on this machine; asked once."""
    policy = Policy(toolchain(), {"processes": 64, "open_files": 64}, kept_out=private_places())
    try:
        with through_pipe(policy) as descriptor:
            command = [*LAUNCH, descriptor_path(descriptor)]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_SECONDS, env={}, pass_fds=(descriptor,)
            )
        missing = dict(Standing.from_dict(json.loads(done.stdout)).missing)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return Standing(dict.fromkeys(BoundaryPart, f"the boundary cannot be entered: {error}"))
    if lost := withheld():
        missing[BoundaryPart.FILES] = (
            f"{', '.join(lost)}: compilations need it, and settings name it as a place that they must not reach"
        )
    return Standing(missing)


@contextmanager
def through_pipe(policy: Policy) -> Iterator[int]:
    """A descriptor that ``policy`` can be read from, once, by a process that gets it: no file is needed for it."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb"):
        threading.Thread(target=_write, args=(writer, policy.to_json()), daemon=True).start()
        yield reader


def _write(writer: int, data: bytes) -> None:
    """It may be more than a pipe holds, and read by nobody."""
    with contextlib.suppress(BrokenPipeError), os.fdopen(writer, "wb") as file:
        file.write(data)


def descriptor_path(descriptor: int) -> str:
    """The policy of :func:`through_pipe` as an argument of the launcher."""
    return f"/proc/self/fd/{descriptor}"


def say_standing(logger: logging.Logger) -> None:
    """One line in the log: all is well, or what is missing and why; one more for each folder that is given in part."""
    found = standing()
    for sentence in narrowed():
        logger.warning("boundary around compilations: %s", sentence)
    logger.log(logging.INFO if found.is_whole else logging.WARNING, "boundary around compilations: %s", found)


def required_parts(text: str) -> Sequence[BoundaryPart]:
    """The parts that ``INGOT_SANDBOX`` names: none for ``best-effort``, all for ``require``, or some by their names.

    Raises:
        IngotError: INVALID_ARGUMENT.
    """
    if text in (BEST_EFFORT, REQUIRE):
        return tuple(BoundaryPart) if text == REQUIRE else ()
    try:
        return tuple(BoundaryPart(name.strip()) for name in text.split(","))
    except ValueError as error:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "INGOT_SANDBOX names no part of the boundary",
            field="INGOT_SANDBOX",
            expected=f"{BEST_EFFORT}, {REQUIRE}, or some of {','.join(BoundaryPart)}",
            received=repr(text)[:100],
        ) from error


def require(parts: Sequence[BoundaryPart]) -> None:
    """Raises IngotError UNAVAILABLE naming the parts that this machine lacks."""
    missing = standing().missing
    lacking = [part for part in parts if part in missing]
    if lacking:
        raise IngotError(
            ErrorCode.UNAVAILABLE,
            "a part of the boundary around compilations is missing: "
            + "; ".join(f"{part} ({missing[part]})" for part in lacking),
            field="INGOT_SANDBOX",
            expected="; ".join(PROMISES[part] for part in lacking),
            remedy="Run it where the kernel has them (docs/design/boundary.md), or set INGOT_SANDBOX to what must hold.",
        )
