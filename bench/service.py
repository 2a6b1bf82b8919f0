"""What the compiler service bears: ``python -m bench.service --seconds 60``.

Starts `ingot up` in a new folder, compiles one small model and measures, in one client process beside it:

- requests for what was compiled already, at a steady rate: the time from when each was due, so that a service that falls behind shows;
- GetJob while many watchers are open, where ``--watchers`` says how many;
- an upload of ``--megabytes`` (10^6 bytes each) of external data, and how much memory it took the server;
- bytes that Redis keeps for each request that the cache answered.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from redis import Redis

from bench.calls import sum_model
from bench.machine import describe_machine
from ingot.client import Client
from ingot.records import Source
from tests.e2e.platform_process import PlatformProcess

_TARGET = "x86-64-v3"
_CLIENTS = 16
_MEGABYTE = 10**6


def submit_steadily(client: Client, source: Source, rate: float, seconds: float) -> list[float]:
    """Seconds from when each request was due until its job was answered, finished."""
    start, count = time.monotonic() + 0.2, int(rate * seconds)

    def one(number: int) -> float:
        due = start + number / rate
        time.sleep(max(0.0, due - time.monotonic()))
        job = client.compile(source, "known", targets=[_TARGET])
        assert job.state == "SUCCEEDED", job
        return time.monotonic() - due

    with ThreadPoolExecutor(_CLIENTS) as pool:
        return list(pool.map(one, range(count)))


def ask_beside_watchers(client: Client, address: str, job: str, watchers: int, seconds: float) -> list[float]:
    """Seconds that each GetJob took while ``watchers`` streams of an unfinished job were open."""
    clients = [Client(address, timeout=600) for _ in range(8)]
    stop, opened = threading.Event(), threading.Semaphore(0)

    def watch(number: int) -> None:
        events = clients[number % len(clients)].watch(job)
        next(events)  # as the job is now
        opened.release()
        for _ in events:
            if stop.is_set():
                return

    threads = [threading.Thread(target=watch, args=(n,), daemon=True) for n in range(watchers)]
    for thread in threads:
        thread.start()
    for number in range(watchers):
        assert opened.acquire(timeout=60), f"{number} of {watchers} watchers were let in"
    took, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.monotonic()
        client.job(job)
        took.append(time.monotonic() - start)
        time.sleep(0.01)
    stop.set()
    return took


def upload(client: Client, folder: Path, megabytes: int, server: int) -> tuple[float, float]:
    """Megabytes (10^6 bytes) a second, and by how many the server's memory grew at most."""
    path = folder / "weights.bin"
    path.write_bytes(np.random.default_rng(0).bytes(megabytes * _MEGABYTE))
    before, most, done = _resident(server), [0.0], threading.Event()

    def look() -> None:
        while not done.wait(0.02):
            most[0] = max(most[0], _resident(server) - before)

    looker = threading.Thread(target=look)
    looker.start()
    start = time.monotonic()
    client.upload(sum_model().SerializeToString(), {path.name: path})
    took = time.monotonic() - start
    done.set()
    looker.join()
    return megabytes / took, most[0]


def _resident(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) * 1024 / _MEGABYTE


def _process(platform: PlatformProcess, module: bytes) -> int:
    """The first process that runs ``module``."""
    commands = {p: Path(f"/proc/{p}/cmdline").read_bytes() for p in platform.members()}
    return next(process for process, command in sorted(commands.items()) if module in command)


@contextmanager
def _halted(process: int) -> Iterator[None]:
    """A worker that takes nothing, so that a job stays unfinished."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def _told(name: str, took: Sequence[float]) -> str:
    middle, late = np.percentile(np.array(took) * 1e3, (50, 99))
    return f"{name}: {len(took)} calls, median {middle:.1f} ms, p99 {late:.1f} ms, longest {max(took) * 1e3:.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.service", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=50, help="requests for a known model, a second")
    parser.add_argument("--watchers", type=int, default=0)
    parser.add_argument("--megabytes", type=int, default=2048)
    given = parser.parse_args()
    for line in describe_machine().lines():
        print(line)
    with tempfile.TemporaryDirectory(prefix="ingot-bench-") as folder:
        home = Path(folder) / "home"
        # all of them are of one address, which does not get the last quarter
        platform = PlatformProcess(home, INGOT_MAX_WATCHERS=str(max(48, 2 * given.watchers)))
        try:
            _measure(platform, Path(folder), given)
        finally:
            platform.stop()


def _measure(platform: PlatformProcess, folder: Path, given: argparse.Namespace) -> None:
    address = platform.addresses.compiler
    with Client(address, timeout=60) as client:
        source = client.upload(sum_model().SerializeToString())
        job = client.wait(client.compile(source, "known", targets=[_TARGET]).id)
        assert job.state == "SUCCEEDED", job.error
        redis = Redis.from_url(f"unix://{next(platform.home.rglob('*.sock'))}")
        before = redis.info("memory")["used_memory"]
        took = submit_steadily(client, source, given.rate, given.seconds)
        print(_told(f"requests for a known model, {given.rate:g} a second", took))
        print(f"Redis keeps {(redis.info('memory')['used_memory'] - before) / len(took):.0f} bytes for each")
        if given.watchers:
            with _halted(_process(platform, b"compiler_service.worker")):
                slow = client.compile(source, "watched", targets=[_TARGET])
                asked = ask_beside_watchers(client, address, slow.id, given.watchers, min(given.seconds, 20))
                print(_told(f"GetJob beside {given.watchers} watchers", asked))
                client.cancel(slow.id)
        speed, grown = upload(client, folder, given.megabytes, _process(platform, b"compiler_service.server"))
        print(f"upload of {given.megabytes} MB: {speed:.0f} MB/s; the server grew by at most {grown:.0f} MB")


if __name__ == "__main__":
    main()
