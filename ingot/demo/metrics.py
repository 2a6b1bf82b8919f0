"""What the services count, before and after."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping


def scrape(address: str) -> dict[str, float]:
    """Value by series, as ``/metrics`` of ``address`` shows them."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    pairs = (line.rpartition(" ")[::2] for line in lines if line and not line.startswith("#"))
    return {series: float(value) for series, value in pairs}


def moved(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """How far each counter of ours went up; histograms by their count alone."""
    return {
        series: value - before.get(series, 0.0)
        for series, value in sorted(after.items())
        if value > before.get(series, 0.0) and _is_counter(series)
    }


def _is_counter(series: str) -> bool:
    name = series.partition("{")[0]
    return name.startswith("ingot_") and name.endswith(("_total", "_count"))
