"""Makes a line of JSON of each line that it reads, until who writes them has ended: ``python -I -S wrapper.py PROCESS PID < lines``.

Run by path, with nothing but the standard library. It is a process of its own because the lines that matter most are the last ones of a
process that dies: a thread of that would die with it before it had read them.
"""

import json
import re
import signal
import sys
from datetime import UTC, datetime

FIELDS = ("job", "stage", "user", "trace_id")
_LONGEST = 65536
"""Bytes of a line, after which another one begins."""
_OF_CORE = re.compile(r"([IWEF])\d{4} ")
"""Begins the lines of gRPC's core."""
_LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}


def document(text: str, process: str, pid: int) -> dict[str, object]:
    """The fields that a line of the log of ``process`` has; nobody knows what it is about."""
    match = _OF_CORE.match(text)
    return {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "level": _LEVELS[match[1]] if match else "WARNING",
        "process": process,
        "pid": pid,
        "logger": "stderr",
        "message": text,
        **dict.fromkeys(FIELDS, ""),
    }


def main(process: str, pid: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while line := sys.stdin.buffer.readline(_LONGEST):
        text = line.decode(errors="backslashreplace").rstrip()
        if text:
            sys.stdout.write(json.dumps(document(text, process, pid)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
