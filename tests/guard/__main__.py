"""``python -m tests.guard --seconds 600 --jobs 2``: odd requests to models of every operator, under guard pages, until time is up.

A request that kills its process, is answered with what the run has not computed, or with anything but a typed error, is a finding.
Each is printed with what draws it again; the exit status is 1 when there is one.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from tests.guard.asking import Asked, ask
from tests.oracle.families import FAMILIES


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.guard", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--seed", type=int, default=None, help="number of the first model; by default another each time"
    )
    parser.add_argument("--family", default="", help="families to draw, with commas between; by default all")
    given = parser.parse_args()
    first = int(time.time()) * 1000 if given.seed is None else given.seed
    families = given.family.split(",") if given.family else sorted(FAMILIES)
    end = time.monotonic() + given.seconds
    tasks = ((name, first + number) for number in itertools.count() for name in families)
    models, asked, found = 0, 0, Counter[str]()
    pending: set[Future[Asked]] = set()
    with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=200) as pool:
        while time.monotonic() < end or pending:
            while time.monotonic() < end and len(pending) < given.jobs:
                pending.add(pool.submit(ask, *next(tasks)))
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for one in (future.result() for future in done):
                models += 1
                asked += one.requests
                found[one.family] += len(one.findings)
                for line in one.findings:
                    print(f"--- {one.family} seed {one.seed}: {line}", flush=True)
    print(f"{models} models, {asked} requests, {found.total()} findings from case {first} on")
    return int(found.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
