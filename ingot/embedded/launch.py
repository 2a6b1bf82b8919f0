"""Becomes another program that is killed when the process that started it dies.

Run by path, with nothing but the standard library: ``python -I -S launch.py PARENT_PID PROGRAM ARGUMENT...``
The death signal must be set between fork and exec, and running Python there is not safe in a process with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # it died before the line above
        sys.exit(1)
    os.execv(sys.argv[2], sys.argv[2:])
