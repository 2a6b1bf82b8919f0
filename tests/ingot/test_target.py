"""Targets as people write them, as values, and under names of their own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import ingot
from ingot import target
from shared_ir.errors import ErrorCode, IngotError
from tests.ingot.small_models import scale


@pytest.fixture(autouse=True)
def _no_presets() -> Iterator[None]:
    yield
    target._own.clear()


HOST = ingot.Target.parse("host")


@pytest.mark.parametrize(
    "text", ["host", "host -cores=3", "llvm", "llvm -cores=2", "aws/graviton3", "llvm -mcpu=generic -l2=4096"]
)
def test_text_of_a_target_is_the_target(text: str) -> None:
    found = ingot.Target.parse(text)
    assert ingot.Target.parse(str(found)) == found
    assert type(found) is ingot.Target


def test_the_triple_of_this_machine_is_filled_in() -> None:
    own = {"x86_64": "broadwell", "aarch64": "cortex-a72"}
    architecture = HOST.architecture
    found = ingot.Target.parse(f"llvm -mcpu={own[architecture]}")
    assert str(found) == f"llvm -mtriple={HOST.triple} -mcpu={own[architecture]}"
    assert (found.kind, found.triple, found.cpu, found.cores) == ("llvm", HOST.triple, own[architecture], 1)
    (other,) = set(own.values()) - {own[architecture]}
    with pytest.raises(IngotError, match=f"{other} is a cpu of") as caught:
        ingot.Target.parse(f"llvm -mcpu={other}")
    assert caught.value.code is ErrorCode.INVALID_TARGET
    assert ingot.Target.parse("llvm -mtriple=riscv64-linux-gnu").architecture == "riscv64"


def test_every_attribute_can_be_given() -> None:
    own = ingot.Target("llvm", "x86_64-linux-gnu", "x86-64-v3", vector_bits=256, l2=1 << 18, cores=2)
    artifact = ingot.compile(scale(), own)
    assert (artifact.manifest.cpu, artifact.manifest.triple) == ("x86-64-v3", "x86_64-linux-gnu")
    assert artifact.manifest.key == ingot.compile(scale(), str(own)).manifest.key


def test_presets_of_ones_own() -> None:
    made = ingot.Target.register_preset("lab/board", "host -cores=1")
    assert ingot.Target.parse("lab/board") == made
    assert ingot.Target.parse("lab/board -cores=5").cores == 5
    assert ingot.Target.register_preset("lab/board", "host -cores=1") == made
    found = ingot.load(ingot.compile(scale(), "lab/board")).run({"x": np.ones((1, 4), np.float32)})
    np.testing.assert_array_equal(found["y"], np.full((1, 4), 2))
    assert target.text_of("lab/board") == target.text_of(made) == str(made)
    with pytest.raises(IngotError, match="another one already"):
        ingot.Target.register_preset("lab/board", "host -cores=2")
    for taken in ("host", "llvm", "aws/graviton3"):
        with pytest.raises(IngotError) as caught:
            ingot.Target.register_preset(taken, "host -cores=1")
        assert caught.value.code is ErrorCode.ALREADY_EXISTS
    for name in ("", "two words", "-x"):
        with pytest.raises(IngotError) as caught:
            ingot.Target.register_preset(name, "host")
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize("wrong", ["", "lvm", "llvm -mcpu", "llvm -cores=0", 3, None])
def test_what_is_no_target(wrong: object) -> None:
    with pytest.raises(IngotError) as caught:
        ingot.compile(scale(), wrong)  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.INVALID_TARGET
