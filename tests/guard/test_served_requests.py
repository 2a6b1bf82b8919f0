"""Odd requests to two servers of the same models; ``python -m tests.guard.serving`` goes on for ten minutes, with 60 models."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler_service.compiler.codegen.toolchain.link import guarded_memory
from tests.guard.requests import Request
from tests.guard.serving import Asked, fuzz, publish, store
from tests.native_models import KERNELS, build_model, toy_feeds

pytestmark = [pytest.mark.slow, pytest.mark.services]


def test_servers_stand_odd_requests(tmp_path: Path) -> None:
    found = fuzz(tmp_path, publish(tmp_path, 4, 11), seconds=6, clients=2, seed=1)
    assert not [line for line in found.lines if not line.startswith("memory grew")]  # in seconds, all memory is new
    assert found.codes["OK"] > 20
    assert found.requests > found.codes["OK"]


@pytest.mark.parametrize(
    ("right", "wrong", "finding"),
    [
        ("x[i] + r[i];", "x[i] + r[i + 4096 * (s[0] > 8)];", "a server ended with status -11"),
        ("i < s[0]; i++) y[i]", "i < s[0] - 1; i++) y[i]", "the answer holds what the run has not written"),
    ],
)
def test_a_fault_of_a_kernel_is_found(tmp_path: Path, right: str, wrong: str, finding: str) -> None:
    assert right in KERNELS
    with guarded_memory():
        store(tmp_path, "toy", build_model(kernels=KERNELS.replace(right, wrong)).artifact())
    asked = Asked("toy", "the toy", (Request("nothing", toy_feeds(13)),))
    found = fuzz(tmp_path, [asked], seconds=1, clients=1, seed=1)
    assert any(finding in line for line in found.lines), found.lines
