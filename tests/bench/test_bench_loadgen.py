"""LoadGen in front of a server: every sample is answered for once, and what its summary says is read."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from bench.load.requests import GRPC, KINDS
from bench.load.under_test import SAMPLES, ServerUnderTest
from tests.bench.test_bench_serving import serving
from tests.runtime_service.toy_models import scale_model, wait_until


def issued(kind: str, factor: float) -> tuple[Counter[int], list[str]]:
    """How often each of all samples was completed, and what was wrong."""
    done: Counter[int] = Counter()
    lock = threading.Lock()

    def complete(identity: int) -> None:
        with lock:
            done[identity] += 1

    with serving(lambda: scale_model(factor, width=16)) as server:
        made = ServerUnderTest(kind, server.addresses["grpc" if kind == GRPC else "http"], 4, complete)
        made.issue([(1000 + number, number) for number in range(SAMPLES)])
        wait_until(lambda: done.total() >= SAMPLES, 30)
        made.close()
    return done, made.wrong


@pytest.mark.services
@pytest.mark.parametrize("kind", KINDS)
def test_each_sample_is_answered_for_once(kind: str) -> None:
    done, wrong = issued(kind, 1.0)
    assert done == Counter(range(1000, 1000 + SAMPLES))
    assert not wrong


@pytest.mark.services
def test_wrong_answers_are_told_and_yet_completed() -> None:
    done, wrong = issued(GRPC, 3.0)
    assert done.total() == SAMPLES
    assert len(wrong) == SAMPLES


SINGLE = """\
SUT name : PySUT
Scenario : SingleStream
90.0th percentile latency (ns) : 1020000
Result is : VALID
QPS w/ loadgen overhead         : 950.00
QPS w/o loadgen overhead        : 974.50
50.00 percentile latency (ns)   : 670000
90.00 percentile latency (ns)   : 1020000
99.00 percentile latency (ns)   : 8680000
"""


def test_summaries_are_read() -> None:
    pytest.importorskip("mlperf_loadgen", reason="LoadGen comes with the extra `bench`")
    from bench.loadgen import outcome

    assert outcome("SingleStream", SINGLE).cells() == ("SingleStream", "974", "0.67", "1.02", "8.68")
    offline = outcome("Offline", "Samples per second: 1665.4\n50.00 percentile latency (ns)   : 5\n")
    assert offline.cells() == ("Offline", "1665", "-", "-", "-")
    assert outcome("MultiStream", "Mean latency (ns)  : 4000000\n").rate == 2000.0
    with pytest.raises(ValueError, match="no rate"):
        outcome("Server", "Result is : INVALID")


@pytest.mark.slow
@pytest.mark.services
def test_all_scenarios_in_short() -> None:
    pytest.importorskip("mlperf_loadgen", reason="LoadGen comes with the extra `bench`")
    from bench.loadgen import SCENARIOS, run_all

    with serving(lambda: scale_model(1.0, width=16)) as server:
        found, wrong = run_all(GRPC, server.addresses["grpc"], 4, seconds=0.3, rate=100.0)
    assert [each.scenario for each in found] == list(SCENARIOS)
    assert not wrong
    assert all(each.rate > 0 for each in found)
