"""Whatever of a foreign kind a caller hands to a public function is said by the name of its argument, and nothing is begun."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ingot
from ingot import ir, te
from shared_ir.errors import ErrorCode, IngotError
from tests.ingot.small_models import scale

A = te.placeholder((8, 8), name="A")
B = te.compute((8, 8), lambda i, j: A[i, j] * 2.0, name="B")


def compiled() -> ingot.Artifact:
    return ingot.compile(scale(), in_process=True)


FOREIGN: dict[str, Callable[[Any], object]] = {
    "passes": lambda x: ir.Sequential(x),
    "text": lambda x: ir.Module.parse(x),
    "disabled": lambda x: ir.PassContext(disabled=x),
    "instruments": lambda x: ir.PassContext(instruments=x),
    "opt_level": lambda x: ir.PassContext(opt_level=x),
    "body": lambda x: te.compute((3,), x),
    "schedule": lambda x: te.lower(x, [A]),
    "name": lambda x: te.build(te.schedule(B), [A], name=x),
    "threads": lambda x: te.build(te.schedule(B), [A], threads=x),
    "order": lambda x: te.schedule(B).cache_read(A, B, x),
    "what": lambda x: te.tune(x, [A]),
    "args": lambda x: te.tune(B, x),
    "symbols": lambda x: te.tune(B, [A], symbols=x),
    "arrays": lambda x: te.tune(B, [A], arrays=x),
    "seed": lambda x: te.tune(B, [A], seed=x),
    "seconds": lambda x: te.tune(B, [A], seconds=x),
    "target": lambda x: ingot.compile(scale(), x, in_process=True),
    "model": lambda x: ingot.compile(x, in_process=True),
    "shapes": lambda x: ingot.compile(scale(), shapes=x, in_process=True),
    "artifact": lambda x: ingot.load(x),
    "executor": lambda x: ingot.load(compiled(), executor=x),
    "directory": lambda x: compiled().save(x),
    "records": lambda x: ingot.tune(scale(), records=x),
}


@pytest.mark.parametrize("argument", FOREIGN)
def test_a_value_of_a_foreign_kind_is_said_by_its_name(argument: str) -> None:
    with pytest.raises(IngotError) as caught:
        FOREIGN[argument](object())
    assert caught.value.code is (ErrorCode.INVALID_TARGET if argument == "target" else ErrorCode.INVALID_ARGUMENT)
    assert caught.value.field == argument
    assert caught.value.expected


@pytest.mark.parametrize("threads", [0, -1, True, "2", 1.0])
def test_threads_are_counted(threads: Any, tmp_path: Path) -> None:
    artifact = compiled()
    artifact.save(tmp_path / "model", home=tmp_path)
    for call in (
        lambda: ingot.load(artifact, threads),
        lambda: ingot.load(tmp_path / "model", threads, home=tmp_path),
        lambda: te.build(te.schedule(B), [A], threads=threads),
    ):
        with pytest.raises(IngotError) as caught:
            call()
        assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, "threads")
