"""What goes wrong: each fault does its harm, waits and mends it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping

from tests.chaos.proxy import Mode
from tests.chaos.rig import Rig, fill

Fault = Callable[[Rig, random.Random], None]


def kill_a_worker(rig: Rig, draw: random.Random) -> None:
    name = f"worker{draw.randrange(rig.workers)}"
    rig.kill(name)
    time.sleep(draw.uniform(0, 3))
    rig.start(name)


def kill_a_server(rig: Rig, draw: random.Random) -> None:
    name = f"server{draw.randrange(len(rig.ports))}"
    rig.kill(name)
    time.sleep(draw.uniform(0, 2))
    rig.start(name)


def kill_a_stage(rig: Rig, draw: random.Random) -> None:
    for _ in range(draw.randint(1, 2)):
        rig.kill_a_stage()
        time.sleep(draw.uniform(0, 0.5))


def kill_redis(rig: Rig, draw: random.Random) -> None:
    rig.kill("redis")
    time.sleep(draw.uniform(0, 10))
    rig.start("redis")


def empty_redis(rig: Rig, draw: random.Random) -> None:
    rig.forget()
    time.sleep(draw.uniform(0, 3))
    rig.start("redis")


def kill_all(rig: Rig, draw: random.Random) -> None:
    for name in draw.sample(rig.names, len(rig.names)):
        rig.kill(name)
    for name in rig.names:
        rig.start(name)


def spoil_the_store(rig: Rig, draw: random.Random) -> None:
    rig.proxy.set(draw.choice([mode for mode in Mode if mode is not Mode.PASS]))
    time.sleep(draw.uniform(0.5, 8))
    rig.proxy.set(Mode.PASS)


def hang_redis(rig: Rig, draw: random.Random) -> None:
    with rig.hanging("redis"):
        time.sleep(draw.uniform(1, 15))


def hang_a_worker(rig: Rig, draw: random.Random) -> None:
    with rig.hanging(f"worker{draw.randrange(rig.workers)}"):
        time.sleep(draw.uniform(1, 15))


def hang_the_store(rig: Rig, draw: random.Random) -> None:
    rig.proxy.set(Mode.HANG)
    time.sleep(draw.uniform(5, 25))
    rig.proxy.set(Mode.PASS)


def fill_the_disk(rig: Rig, draw: random.Random) -> None:
    if rig.disk is None:
        return
    filler = fill(rig.disk)
    time.sleep(draw.uniform(1, 6))
    filler.unlink()


FAULTS: Mapping[Fault, int] = {
    kill_a_worker: 5,
    kill_a_stage: 6,
    kill_a_server: 3,
    kill_redis: 2,
    empty_redis: 2,
    kill_all: 1,
    spoil_the_store: 4,
    fill_the_disk: 2,
    hang_redis: 1,
    hang_a_worker: 1,
    hang_the_store: 1,
}
"""By how often they come, relative to each other."""


def one_fault(rig: Rig, draw: random.Random, seen: Counter[str]) -> None:
    fault = draw.choices(list(FAULTS), list(FAULTS.values()))[0]
    seen[fault.__name__] += 1
    fault(rig, draw)
