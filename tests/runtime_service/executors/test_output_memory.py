"""Arrays for the outputs of a run: large ones side by side in one block, small ones alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from runtime_service.executors.library import CTensor
from runtime_service.executors.signature import CallShapes
from shared_ir.errors import ErrorCode, IngotError

LARGE = (300, 333)  # of float32: no multiple of a cache line


def call(*shapes: tuple[int, ...] | None) -> CallShapes:
    rows = (CTensor * len(shapes))()
    owned = tuple(i for i, shape in enumerate(shapes) if shape is None)
    return CallShapes((CTensor * 0)(), rows, shapes, tuple(np.dtype(np.float32) for _ in shapes), owned)


def test_large_outputs_share_a_block_and_do_not_overlap() -> None:
    arrays = call(LARGE, (7,), LARGE, LARGE).allocate()
    found = [a for a in arrays if a is not None]
    for number, array in enumerate(found):
        array[...] = number
    assert [a.shape for a in found] == [LARGE, (7,), LARGE, LARGE]
    assert all((a == n).all() and a.flags.c_contiguous and a.flags.writeable for n, a in enumerate(found))
    assert found[0].base is found[2].base is found[3].base is not None
    assert found[1].base is None
    assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(found, 2))
    assert {(a.ctypes.data - found[0].ctypes.data) % 64 for a in (found[2], found[3])} == {0}


def test_every_run_has_memory_of_its_own() -> None:
    prepared = call(LARGE, LARGE)
    first, second = prepared.allocate(), prepared.allocate()
    assert not any(
        np.shares_memory(a, b) for a, b in itertools.product(first, second) if a is not None and b is not None
    )


@pytest.mark.parametrize("shapes", [(LARGE,), (LARGE, (3,)), ((5,), (6,))])
def test_a_large_output_alone_keeps_no_other_alive(shapes: tuple[tuple[int, ...], ...]) -> None:
    assert all(a is not None and a.base is None for a in call(*shapes).allocate())


def test_outputs_that_only_the_run_knows_are_missing() -> None:
    arrays = call(LARGE, None, LARGE, (2,)).allocate()
    assert [a is None for a in arrays] == [False, True, False, False]


def test_too_large_a_block_is_a_typed_error() -> None:
    with pytest.raises(IngotError) as caught:
        call((1 << 45,), (1 << 45,)).allocate()
    assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
