"""Threads do not grow with models: those that have not run for longest end theirs, and have them again when they run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest

from runtime_service.batching.messages import InferRequest
from runtime_service.executors.resources import Resources
from runtime_service.loading.loader import load_models
from runtime_service.metrics import Metrics
from runtime_service.model_settings import ModelSettings
from runtime_service.models.served import ServedModel
from runtime_service.models.thread_budget import ThreadBudget
from runtime_service.models.versions import ModelLoader
from runtime_service.policies import VersionPolicy
from runtime_service.settings import RuntimeSettings
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.service_kit.waiting import WouldWait
from tests.native_models import build_model, toy_feeds, toy_reference
from tests.runtime_service.toy_models import ToySource, wait_until

THREADS = 4
"""Of each model, one of them the caller's."""


@dataclass(eq=False)
class Sleeper:
    threads: int = 3
    busy: bool = False
    rests: list[str] = field(default_factory=list)

    def rest(self) -> bool:
        self.rests.append("asked")
        return not self.busy


def test_the_least_recently_used_rest_first() -> None:
    budget, (a, b, c, d) = ThreadBudget(9), (Sleeper() for _ in range(4))
    for each in (a, b, c, a, d):
        budget.use(each)
    assert [len(each.rests) for each in (a, b, c, d)] == [0, 1, 0, 0]
    assert budget.threads == 9
    budget.use(b)
    assert [len(each.rests) for each in (a, b, c, d)] == [0, 1, 1, 0]
    budget.leave(a)
    budget.leave(a)
    budget.leave(c)
    assert budget.threads == 6


def test_one_that_runs_keeps_its_threads() -> None:
    budget, members = ThreadBudget(5), [Sleeper(busy=True) for _ in range(4)]
    for each in members:
        budget.use(each)
    assert budget.threads == 12  # they are all in use
    for each in members:
        each.busy = False
    budget.use(Sleeper())
    assert budget.threads == 3


@pytest.mark.parametrize(("most", "kept"), [(0, 30), (2, 3), (512, 30)])
def test_limits(most: int, kept: int) -> None:
    budget, single = ThreadBudget(most), Sleeper(threads=0)
    for _ in range(10):
        budget.use(Sleeper())
        budget.use(single)
    assert budget.threads == kept


@pytest.fixture(scope="module")
def artifact() -> CompiledArtifact:
    return build_model().artifact()


@pytest.fixture
def loader(artifact: CompiledArtifact) -> ModelLoader:
    class Native(ToySource):
        def load(self, name: str, version: int, instances: int, resources: Resources):  # type: ignore[no-untyped-def]
            return load_models(artifact, instances, resources)

    return ModelLoader(Native(), RuntimeSettings(cores=THREADS, kept_threads=12), Metrics())


@pytest.fixture
def models(loader: ModelLoader) -> Iterator[list[ServedModel]]:
    found = [loader.load(ModelSettings(f"m{i}", VersionPolicy.parse("stable")), 1) for i in range(30)]
    yield found
    for served in found:
        served.close()


def tasks() -> int:
    """Threads of this process, those of the code of models among them."""
    return len(os.listdir("/proc/self/task"))


def test_threads_of_the_process_do_not_grow_with_models(loader: ModelLoader) -> None:
    before, found = tasks(), []
    for number in range(40):
        found.append(loader.load(ModelSettings(f"m{number}", VersionPolicy.parse("stable")), 1))
        wanted = before + min(12, 3 * len(found))
        wait_until(lambda wanted=wanted: tasks() == wanted)  # type: ignore[misc]  # one that is joined is seen for a moment
    for served in found:
        served.close()
    wait_until(lambda: tasks() == before)


def test_who_does_not_wait_begins_no_threads(models: list[ServedModel]) -> None:
    request = InferRequest("m", (), waits=False)
    models[-1].run(toy_feeds(1), request)
    with pytest.raises(WouldWait):
        models[0].run(toy_feeds(1), request)
    models[0].run(toy_feeds(1), InferRequest("m", ()))
    models[0].run(toy_feeds(1), request)


def test_models_that_rested_answer_as_before_from_many_threads(models: list[ServedModel]) -> None:
    def ask(seed: int) -> None:
        feeds = toy_feeds(1 + seed % 5, seed)
        outputs = models[seed % len(models)].run(feeds, InferRequest("m", ())).outputs
        for name, wanted in toy_reference(feeds).items():
            np.testing.assert_allclose(outputs[name], wanted, rtol=1e-5, atol=1e-5)

    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(ask, range(600)):
            pass
