"""The process that forks children which read models, from outside."""

from __future__ import annotations

import socket
import subprocess
import sys


def test_it_ends_in_silence_where_who_orders_has_not_even_read_that_it_is_ready() -> None:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "compiler_service.stages.nursery", str(its.fileno())]
    process = subprocess.Popen(command, pass_fds=[its.fileno()], stderr=subprocess.PIPE, text=True)
    its.close()
    with ours:
        ours.settimeout(60)
        ours.recv(4096, socket.MSG_PEEK)  # it is ready
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
