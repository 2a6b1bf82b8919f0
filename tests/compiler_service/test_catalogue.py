"""What the API tells and checks is what the compiler in this process does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler_service.catalogue import PipelineCompiler
from compiler_service.compiler.codegen.toolchain.host import host_target
from ingot.artifact import chosen_target
from shared_ir.errors import ErrorCode, IngotError


@pytest.mark.parametrize(
    "text", ["host", "host -cores=1", "host -l3=0 -cores=2", "amd/zen4", "raspberry-pi/4b -cores=2"]
)
def test_targets_are_the_same_through_the_service(text: str) -> None:
    assert PipelineCompiler().resolve_target(text) == chosen_target(text)


def test_the_host_takes_changes() -> None:
    assert PipelineCompiler().resolve_target("host -cores=1") == replace(host_target(), cores=1)


@pytest.mark.parametrize("text", ["", "hots", "host -core=1", "host 1", "amd/zen"])
def test_mistakes_are_told_alike(text: str) -> None:
    said = []
    for resolve in (PipelineCompiler().resolve_target, chosen_target):
        with pytest.raises(IngotError) as caught:
            resolve(text)
        said.append(caught.value.to_dict())
    assert said[0] == said[1]


@pytest.mark.parametrize(
    "text", ["llvm -mtriple=aarch64-linux-gnu -mcpu=nope", "llvm -mtriple=x86_64-linux-gnu -mattr=-sse2"]
)
def test_a_target_that_no_code_can_be_generated_for_is_refused_before_a_job_is_queued(text: str) -> None:
    with pytest.raises(IngotError) as caught:
        PipelineCompiler().resolve_target(text)
    assert caught.value.code is ErrorCode.INVALID_TARGET
    assert caught.value.field == "target"


def test_the_list_names_what_can_be_asked_for() -> None:
    catalogue = PipelineCompiler()
    for own in catalogue.targets():
        assert catalogue.resolve_target(own.name) == own.target
