"""``python -m tests.chaos --jobs 200``: compile jobs while servers, workers, stages, Redis, the store and the disk fail at random.

No job may be lost, none stand still once the faults are over, none be done twice, none compute something else; and every failure must
have the right blame.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ingot.client import Client
from shared_ir.errors import IngotError
from tests.chaos.faults import one_fault
from tests.chaos.jobs import Order, Ordered, orders
from tests.chaos.rig import Rig, rig

_STILL_SECONDS = 60.0
"""Once the faults are over, some job ends within this time until all have."""
_MOST_UNFINISHED = 12
_TRACEBACK = "Traceback (most recent call last)"


def run(
    made: Rig, wanted: Sequence[Order], seed: int, clients: int, pause: tuple[float, float]
) -> tuple[Ordered, Counter[str]]:
    """Submit all that is ``wanted``, with a fault at random every ``pause`` seconds (from, to); then let it come to its end."""
    ordered, seen, over = Ordered(), Counter[str](), threading.Event()
    rest, lock = list(reversed(wanted)), threading.Lock()

    def submit(number: int) -> None:
        with Client(f"127.0.0.1:{made.ports[number % len(made.ports)]}", timeout=10) as client:
            while True:
                while len(ordered.jobs) - len(ordered.ended) >= _MOST_UNFINISHED and not over.is_set():
                    time.sleep(0.2)
                with lock:
                    if not rest or over.is_set():
                        return
                    order = rest.pop()
                ordered.submit(client, order)

    def look() -> None:
        with Client(f"127.0.0.1:{made.ports[0]}", timeout=10) as client:
            while not over.is_set():
                ordered.look(client)
                time.sleep(0.5)

    threads = [threading.Thread(target=submit, args=(n,), daemon=True) for n in range(clients)]
    looker = threading.Thread(target=look, daemon=True)
    for thread in (*threads, looker):
        thread.start()
    draw = random.Random(seed)
    least = len(wanted) // 2
    while any(thread.is_alive() for thread in threads) or sum(seen.values()) < least:
        time.sleep(draw.uniform(*pause))
        if sum(seen.values()) < len(wanted):
            one_fault(made, draw, seen)
    over.set()
    looker.join()
    made.start_all()
    _let_end(made, ordered)
    return ordered, seen


def _warm_up(made: Rig) -> None:
    """The first job of an installation builds what the linker needs, which takes a while."""
    with Client(f"127.0.0.1:{made.ports[0]}", timeout=300) as client:
        job = client.wait(
            client.compile(next(o for o in orders(-1) if o.answer).model, "warm", targets=["x86-64-v3"]).id
        )
        assert job.state == "SUCCEEDED", job.error


def _let_end(made: Rig, ordered: Ordered) -> None:
    with Client(f"127.0.0.1:{made.ports[0]}", timeout=10) as client:
        last, since = -1, time.monotonic()
        while (unfinished := ordered.look(client)) > 0:
            if unfinished != last:
                last, since = unfinished, time.monotonic()
            if time.monotonic() - since > _STILL_SECONDS:
                for job in ordered.jobs.keys() - ordered.ended:
                    ordered.faults.append(f"job {job} of {ordered.jobs[job].name} is stuck: {_state(client, job)}")
                return
            time.sleep(0.5)


def _state(client: Client, job: str) -> str:
    try:
        found = client.job(job)
        return f"{found.state} " + ", ".join(f"{t.state}/{t.stage}" for t in found.targets)
    except IngotError as error:
        return str(error)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="by default another each time")
    parser.add_argument("--keep", type=Path, help="a folder for what the processes write")
    given = parser.parse_args()
    seed = int(time.time()) if given.seed is None else given.seed
    drawn = orders(seed)
    wanted = [next(drawn) for _ in range(given.jobs)]
    with tempfile.TemporaryDirectory(prefix="ingot-chaos-") as folder:
        home = given.keep or Path(folder)
        start = time.monotonic()
        with rig(home) as made:
            _warm_up(made)
            ordered, seen = run(made, wanted, seed, clients=3, pause=(2.0, 6.0))
            with Client(f"127.0.0.1:{made.ports[0]}", timeout=30) as client:
                models = ordered.check_models(client, Path(folder) / "models", home / "keys")
            ordered.faults += [f"{name} wrote a traceback:\n{_around(t)}" for name, t in made.logs() if _TRACEBACK in t]
    print(
        f"seed {seed}: {len(ordered.jobs)} jobs, {models} models, {sum(seen.values())} faults, {time.monotonic() - start:.0f} s"
    )
    print(f"faults: {dict(seen)}\nends: {dict(ordered.codes)}\ncalls refused meanwhile: {dict(ordered.refused)}")
    for line in ordered.faults:
        print(f"--- {line}")
    return int(bool(ordered.faults) or len(ordered.jobs) + ordered.refused_rightly < len(wanted))


def _around(text: str) -> str:
    """The first traceback of a log."""
    start = text.index(_TRACEBACK)
    return text[max(0, start - 500) : start + 4000]


if __name__ == "__main__":
    sys.exit(main())
