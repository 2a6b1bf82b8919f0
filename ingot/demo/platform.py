"""``ingot up`` in a process of its own, in a temporary home, with proof that nothing of it stays."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ingot.embedded.installation import START_SECONDS, STOP_SECONDS
from ingot.embedded.process import ChildProcess
from ingot.home import ADDRESS_FILE, Addresses
from shared_ir.errors import ErrorCode, IngotError


@contextmanager
def platform() -> Iterator[tuple[Path, Addresses]]:
    """Home and addresses of a running platform; it is taken down at the end, and its files are removed.

    Raises:
        IngotError: UNAVAILABLE, it did not start; INTERNAL, something of it was left over.
    """
    with tempfile.TemporaryDirectory(prefix="ingot-demo-") as name:
        home = Path(name)
        command = [sys.executable, "-m", "ingot", "up", "--home", name, "--free-ports"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("INGOT_")}
        child = ChildProcess.start("ingot up", command, environment, home / "up.log")
        try:
            _wait_for(home / ADDRESS_FILE, child)
            yield home, Addresses.find(home)
        finally:
            child.terminate()
            ended = child.wait(STOP_SECONDS + 10.0)
        left = processes_of(home)
        if left or not ended or child.process.returncode != 0:
            raise IngotError(
                ErrorCode.INTERNAL,
                "`ingot up` did not end cleanly",
                expected="exit status 0 and no processes",
                received=f"exit status {child.process.returncode}, processes {left}",
            )


def processes_of(home: Path) -> list[int]:
    """Running processes whose command line or environment names ``home``, but for this one."""
    needle, found = str(home).encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        try:
            names_home = any(needle in (folder / part).read_bytes() for part in ("cmdline", "environ"))
        except OSError:  # it ended meanwhile, or is not ours
            continue
        if names_home:
            found.append(int(folder.name))
    return found


def _wait_for(path: Path, child: ChildProcess) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not path.exists():
        if not child.is_alive or time.monotonic() > deadline:
            raise IngotError(ErrorCode.UNAVAILABLE, f"`ingot up` did not start: {child.last_words()}")
        time.sleep(0.05)
