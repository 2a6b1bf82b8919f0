"""Kernels against the roofs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bench.bounds import bounds, shares
from bench.peaks import Bandwidth, Peaks, measure_peaks
from runtime_service.executors.executor import LaunchProfile

PEAKS = Peaks(
    1,
    flops=100e9,
    bandwidth={"L1": Bandwidth(400e9, 300e9), "L2": Bandwidth(150e9, 200e9), "memory": Bandwidth(10e9, 9e9)},
    capacity={"L1": 32768, "L2": 1 << 20, "memory": math.inf},
)


def launch(kernel: str, seconds: float, flops: int, size: int) -> LaunchProfile:
    return LaunchProfile(f"label of {kernel}", kernel, seconds, flops, size, (f"node of {kernel}",))


def test_the_later_of_arithmetic_and_traffic_is_the_bound() -> None:
    profile = [
        launch("matmul", 20e-6, 1_000_000, 30_000),
        launch("add", 100e-6, 1000, 1_000_000),
        launch("matmul", 20e-6, 1_000_000, 30_000),
    ]
    add, matmul = bounds(profile, PEAKS)
    assert (add.kernel, add.bound, add.launches) == ("add", "L2", 1)
    assert add.least_seconds == pytest.approx(1_000_000 / 200e9)
    assert add.reached == pytest.approx(0.05)
    assert (matmul.bound, matmul.level, matmul.launches) == ("compute", "L1", 2)
    assert matmul.reached == pytest.approx(0.5)
    assert matmul.lost_seconds == pytest.approx(20e-6)
    assert matmul.flops_per_second == pytest.approx(50e9)
    assert matmul.intensity == pytest.approx(100 / 3)
    assert [s.bound for s in shares([matmul, add])] == ["L2", "compute"]


def test_what_fits_nowhere_else_is_in_memory() -> None:
    assert [PEAKS.level(size) for size in (32768, 32769, 1 << 21)] == ["L1", "L2", "memory"]


def test_a_gather_does_not_read_its_whole_table() -> None:
    (kernel,) = bounds([launch("gather", 5e-6, 10, 1 << 30)], PEAKS)
    assert kernel.bound == "memory"
    assert kernel.reached == pytest.approx(1.0)


def test_faster_than_the_bound_loses_nothing() -> None:
    (kernel,) = bounds([launch("winograd", 5e-6, 1_000_000, 1000)], PEAKS)
    assert kernel.reached == pytest.approx(2.0)
    assert kernel.lost_seconds == 0.0


@pytest.mark.slow
def test_peaks_of_this_machine_are_plausible() -> None:
    peaks = measure_peaks()
    assert 1e9 < peaks.flops < 2e12
    assert peaks.bandwidth["L1"].roof > peaks.bandwidth["memory"].roof > 1e8
    assert peaks.level(1024) == "L1"


def test_a_busy_moment_does_not_lower_a_roof() -> None:
    busy = replace(PEAKS, flops=80e9, bandwidth={**PEAKS.bandwidth, "L1": Bandwidth(200e9, 310e9)})
    expected = replace(PEAKS, bandwidth={**PEAKS.bandwidth, "L1": Bandwidth(400e9, 310e9)})
    assert PEAKS.or_higher(busy) == busy.or_higher(PEAKS) == expected
