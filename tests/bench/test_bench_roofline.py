"""Table and plot of a model's kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.bounds import bounds
from tests.bench.test_bench_bounds import PEAKS, launch

pytest.importorskip("matplotlib", reason="plots need the extra `bench`")

from bench.plot import draw_roofline
from bench.roofline import HEADER, Roofline, png_path, rows


def test_table_and_plot(tmp_path: Path) -> None:
    profile = [launch("matmul", 2e-5, 1_000_000, 30_000), launch("move", 1e-6, 0, 100), launch("empty", 1e-7, 0, 0)]
    roofline = Roofline("net", bounds(profile, PEAKS))
    assert all(len(r) == len(HEADER) for r in rows(roofline))
    assert "compute" in roofline.summary()
    draw_roofline(tmp_path / "net.png", "net", roofline.kernels, PEAKS)
    assert (tmp_path / "net.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_per_model() -> None:
    assert png_path(Path("a.png"), "net", 1) == Path("a.png")
    assert png_path(Path("x/a.png"), "net", 2) == Path("x/a-net.png")
