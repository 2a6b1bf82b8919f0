"""Whatever becomes of the other rows of a batch, a row of a random model whose rows are proven to be independent stays what it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.pipeline import compile_model
from runtime_service.loading.loader import load_model
from tests.compiler_service.compiler.graph_passes.analysis.batch_models import APART
from tests.random_models.independent_rows import Feeds, Trial, feeds_of, interpreter, tried, with_proof
from tests.random_models.model_maker import Array


def compiled(model: bytes, feeds: Feeds) -> Trial:
    artifact = compile_model(ModelSource.of(model), host_target())
    assert artifact.plan.batch == "batch"
    loaded = load_model(artifact, 2)

    def run(batch: Feeds) -> Sequence[Array]:
        return list(loaded.run({n: np.ascontiguousarray(a) for n, a in batch.items()}).values())

    try:
        return tried(run, feeds)
    finally:
        loaded.close()


@pytest.mark.parametrize("seed", range(8))
def test_random_graphs(seed: int) -> None:
    _, module, feeds = with_proof(seed)
    assert tried(interpreter(module), feeds).failure == ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 12))
def test_random_graphs_compiled(seed: int) -> None:
    model, _, feeds = with_proof(seed)
    assert compiled(model.SerializeToString(), feeds).failure == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["network", "masked attention", "lstm from zeros", "windows", "many best"])
def test_networks_compiled(name: str) -> None:
    found = compiled(APART[name].SerializeToString(), feeds_of(APART[name]))
    assert found.failure == ""
    assert found.answered > 9


@pytest.mark.parametrize(
    ("function", "failure"),
    [
        (lambda x: x - x.mean(0), "is not what it is alone"),
        (lambda x: x + 1e-5 * np.nanmax(x, initial=0, where=np.abs(x) < 1e3), "changes with"),
        (lambda x: np.where(np.abs(x).max() > 1e6, x + 1, x), "is not what it is alone"),
        (lambda x: x + np.arange(len(x), dtype=np.float32)[:, None], "is not what it is alone"),
        (lambda x: 2 * x, ""),
    ],
)
def test_the_trial_finds_what_sees_other_rows(function: Callable[[Array], Array], failure: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    with np.errstate(all="ignore"):
        found = tried(lambda feeds: [function(feeds["x"])], {"x": x})
    assert failure in found.failure
    assert bool(found.failure) is bool(failure)
