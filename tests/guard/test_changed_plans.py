"""Nothing that a plan says makes an executor reach what is not the model's."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.link import guarded_memory
from runtime_service.loading.loader import ExecutorKind, load_model
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.json_form import read_plan, write_plan
from shared_ir.plan.program import Launch
from tests.guard.plans import findings
from tests.guard.runs import compiled
from tests.native_growing import GROWING_KERNELS, GROWING_SYMBOLS, growing_plan
from tests.native_models import NativeModel, build_model, toy_feeds
from tests.oracle.families import FAMILIES
from tests.oracle.generate import drawn_case

CHANGES = int(os.environ.get("PLAN_CHANGES", "150"))
"""Plans that each test asks about; a fifth of them of a family of operators."""
ASKED = sorted(FAMILIES) if "PLAN_CHANGES" in os.environ else sorted(FAMILIES)[::4]
"""What plans of other families say is said by those, too: every fourth is asked, unless it is asked for longer."""


@pytest.fixture(name="toy", scope="module")
def fixture_toy() -> CompiledArtifact:
    with guarded_memory():
        return build_model().artifact()


def test_a_library_runs_with_the_plan_that_it_is_of_and_no_other(toy: CompiledArtifact) -> None:
    first = toy.plan.steps[0]
    assert isinstance(first, Launch)
    other = replace(toy.plan, steps=(replace(first, tasks=1 << 20), *toy.plan.steps[1:]))
    kinds: tuple[ExecutorKind, ...] = ("aot", "graph")
    for kind in kinds:
        with load_model(toy, executor=kind) as model:
            model.run(toy_feeds(3))
        with pytest.raises(IngotError, match="the plan's digest differ") as caught:
            load_model(replace(toy, plan=other), executor=kind)
        assert caught.value.code is ErrorCode.ARTIFACT_CORRUPT


@pytest.mark.parametrize("older", [False, True])
def test_changed_plans_of_a_small_model(toy: CompiledArtifact, older: bool) -> None:
    assert findings(toy, toy_feeds(13), 0, CHANGES, older=older) == []


@pytest.mark.parametrize("older", [False, True])
def test_changed_plans_of_a_model_that_grows(older: bool) -> None:
    with guarded_memory():
        built = build_model(plan=growing_plan(), kernels=GROWING_KERNELS, symbols=GROWING_SYMBOLS)
        artifact = NativeModel(built.plan, built.target, built.objects, b"").artifact()
    given = {"x": np.arange(5, dtype=np.float32), "m": np.array(4), "p": np.array(True)}
    assert findings(artifact, given, 0, CHANGES, older=older) == []


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("family", ASKED)
def test_changed_plans_of_operators(family: str) -> None:
    """And those that nobody changed are read as they were written."""
    case, _ = drawn_case(family, 0)
    artifact = compiled(case.model)
    text = write_plan(artifact.plan)
    assert write_plan(read_plan(text)) == text
    assert findings(artifact, case.runs[0], 0, CHANGES // 5, older=True) == []
