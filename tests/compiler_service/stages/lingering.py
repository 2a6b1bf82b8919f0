"""A stage that has been taken over, and leaves processes behind which are in the middle of a system call when they are killed.

``lingering.py DIRECTORY PROGRESS_FD`` is the process of a stage, ``lingering.py DESCRIPTOR`` a nursery whose children do the same.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler_service.stages import nursery

_PROCESSES = 100
_BYTES = 16 << 20


def leave_processes(work: Path) -> Mapping[str, Any]:
    """They wait for each other at the lock of one file, and each writes to it once more after it was killed; their group."""
    file = work / "weights.bin"
    file.write_bytes(bytes(_BYTES))
    reader, writer = os.pipe()
    for number in range(_PROCESSES):
        if os.fork() == 0:
            _write(file, number, writer)
    begun = 0
    while begun < _PROCESSES:
        begun += len(os.read(reader, _PROCESSES))
    return {"group": os.getpgrp()}


def _write(file: Path, number: int, writer: int) -> None:
    descriptor = os.open(file, os.O_RDWR)
    os.write(writer, b"x")
    while True:
        os.ftruncate(descriptor, _BYTES - 4096 * number)
        os.pwrite(descriptor, b"x", _BYTES)


def main() -> None:
    if len(sys.argv) == 2:
        nursery._act = lambda request, work, progress: leave_processes(work)
        nursery.Nursery(socket.socket(fileno=int(sys.argv[1]))).serve()
    else:
        work = Path(sys.argv[1])
        answer = leave_processes(work)
        (work / "result.json").write_text(json.dumps(answer))
        os._exit(0)


if __name__ == "__main__":
    main()
