"""A short form of ``make chaos``: a compiler that takes no time, one server, one worker, a few faults."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ingot.client import Client
from shared_ir.errors import ErrorCode
from tests.chaos.__main__ import run
from tests.chaos.jobs import Order
from tests.chaos.rig import ROOT, rig

pytestmark = [pytest.mark.services, pytest.mark.slow]

SERVICES = ROOT / "tests" / "services"
JOBS = 10


def wanted() -> Sequence[Order]:
    """Some twice, some at fault."""
    good = [Order(f"good{n}", json.dumps({"name": f"good{n}"}).encode()) for n in range(JOBS // 2)]
    bad = Order("bad", json.dumps({"name": "bad", "do": "error"}).encode(), ErrorCode.LIMIT_EXCEEDED)
    return [*good, bad, *good[: JOBS - len(good) - 1]]


@pytest.mark.parametrize("seed", [1])
def test_no_job_is_lost_stuck_or_done_twice(tmp_path: Path, seed: int) -> None:
    server = (sys.executable, str(SERVICES / "toy_server.py"), str(tmp_path / "ready.json"))
    worker = (sys.executable, str(SERVICES / "toy_worker.py"))
    with rig(tmp_path / "rig", servers=1, workers=1, server=server, worker=worker) as made:
        ordered, seen = run(made, wanted(), seed, clients=2, pause=(0.5, 2.0))
        with Client(f"127.0.0.1:{made.ports[0]}", timeout=30) as client:
            models = ordered.check_models(client, tmp_path / "models", tmp_path / "rig" / "keys")
    assert ordered.faults == [], seen
    assert (len(ordered.jobs), models) == (JOBS, JOBS // 2)
    assert sum(seen.values()) >= JOBS // 2
