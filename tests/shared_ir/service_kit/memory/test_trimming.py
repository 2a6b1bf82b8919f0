"""Memory that large messages leave behind goes back to the system, when it has been quiet for a moment."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

from shared_ir.service_kit.calls.lanes import Lane
from shared_ir.service_kit.memory.room import RequestRoom
from shared_ir.service_kit.memory.trimming import LARGE_BYTES, Trimming
from shared_ir.service_kit.rpc.server import RpcServer
from shared_ir.service_kit.tls import TlsFiles
from tests.services.certificates import pair
from tests.services.installation import wait_until

HOLES = """
import os
from shared_ir.service_kit.memory.trimming import trim_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

blocks = [bytes(100_000) for _ in range(2000)]  # below what malloc maps by itself
kept = blocks[::20]
blocks.clear()
before = resident()
trim_memory()
print(before - resident(), len(kept))
"""

ENDS = """
import os, threading
from shared_ir.service_kit.starting import prepare_process
from shared_ir.service_kit.memory.trimming import trim_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

def take():
    for size in (30_000_000, 20_000_000):  # malloc maps the first by itself, and then nothing any more that is smaller
        block = b"1" * size
        together.wait()
        del block
    gone.wait()
    done.wait()  # a thread that ends leaves its arena to the next one

prepare_process()
before = resident()
together, gone, done = threading.Barrier(12), threading.Barrier(13), threading.Event()
for _ in range(12):
    threading.Thread(target=take).start()
gone.wait()
trim_memory()
print(resident() - before)
done.set()
"""


def test_what_many_threads_took_is_given_back() -> None:
    found = subprocess.run([sys.executable, "-c", ENDS], check=True, capture_output=True, text=True, timeout=60).stdout
    assert int(found) < 130, "megabytes"


def test_free_blocks_between_others_are_given_back() -> None:
    found = subprocess.run([sys.executable, "-c", HOLES], check=True, capture_output=True, text=True, timeout=60).stdout
    assert int(found.split()[0]) > 120, "megabytes"


def test_it_is_done_once_for_a_wave() -> None:
    done: list[bool] = []
    trimming = Trimming(lambda: done.append(True), 0.3)
    trimming.soon(LARGE_BYTES - 1)
    for _ in range(50):
        trimming.soon(LARGE_BYTES)
    wait_until(lambda: done, 20)
    assert len(done) == 1
    trimming.soon(LARGE_BYTES)
    wait_until(lambda: len(done) == 2, 20)


def test_a_room_asks_for_it() -> None:
    """Also where what came was refused."""
    room = RequestRoom(8 * LARGE_BYTES)
    asked = threading.Event()
    room._trimming = Trimming(asked.set, 0.01)
    guest = room.enter("a", lambda: None)
    guest.take(LARGE_BYTES)
    assert asked.wait(20)
    asked.clear()
    guest.leave()
    assert asked.wait(20)


def test_many_small_things_count_together(tmp_path: Path) -> None:
    """Connections with TLS among them: none is large, and a crowd of them leaves tens of megabytes."""
    asked = threading.Event()
    lane, room = Lane("calls", 1), RequestRoom(1 << 20)
    room._trimming = Trimming(asked.set, 0.01)
    server = RpcServer(lambda method: lane, room, 1 << 20)
    port = server.bind("127.0.0.1:0", TlsFiles(*pair(tmp_path, "localhost")))
    server.start()
    for _ in range(4):
        with ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            assert not asked.is_set()
        wait_until(lambda: not server._endpoints, 20)
    assert asked.wait(20)
    server.stop(0).wait(10)
