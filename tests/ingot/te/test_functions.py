"""What is built is called with arrays, of any size where extents are symbols, and keeps what it was asked."""

from __future__ import annotations

import keyword
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import te
from shared_ir.errors import ErrorCode, IngotError

N = te.var("n")
A, B = te.placeholder((N,), name="A"), te.placeholder((N,), name="B")
C = te.compute((N,), lambda i: A[i] + B[i], name="C")


def vector_add() -> te.CompiledFunction:
    s = te.schedule(C)
    outer, inner = s[C].split("i", 64)
    s[C].vectorize(inner, 16).parallel(outer)
    return te.build(s, [A, B], threads=2)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 1003])
def test_any_size(size: int) -> None:
    a, b = np.random.default_rng(0).random((2, size), dtype=np.float32)
    np.testing.assert_array_equal(vector_add()(a, b), a + b)


def test_what_does_not_fit_is_an_error() -> None:
    add, good = vector_add(), np.ones(4, np.float32)
    for wrong in (np.ones(5, np.float32), np.ones(4, np.float64), np.ones((2, 2), np.float32)):
        with pytest.raises(IngotError) as caught:
            add(good, wrong)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    with pytest.raises(IngotError, match="2 arguments"):
        add(good)


def test_an_argument_that_is_read_must_be_named() -> None:
    with pytest.raises(IngotError, match="lack a tensor that is read") as caught:
        te.build(te.schedule(C), [A])
    assert caught.value.expected == "B"


def test_saved_and_loaded(tmp_path: Path) -> None:
    vector_add().artifact.save(tmp_path / "add", home=tmp_path / "home")
    model = ingot.load(tmp_path / "add", home=tmp_path / "home")
    found = model.run({"A": np.ones(3, np.float32), "B": np.ones(3, np.float32)})
    np.testing.assert_array_equal(found["C"], np.full(3, 2, np.float32))


def test_several_nests_and_several_results() -> None:
    doubled = te.compute((N,), lambda i: A[i] * 2.0, name="doubled")
    total = te.sum((1,), N, lambda i, k: doubled[k], name="total")
    function = te.build(te.schedule(doubled, total), [A])
    a = np.arange(10, dtype=np.float32)
    twice, sums = function(a)
    np.testing.assert_array_equal(twice, 2 * a)
    np.testing.assert_array_equal(sums, [90])


def test_reading_outside_is_refused_when_it_is_called() -> None:
    shifted = te.compute((N,), lambda i: A[i + 1], name="shifted")
    function = te.build(te.schedule(shifted), [A])
    with pytest.raises(IngotError) as caught:
        function(np.ones(4, np.float32))
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_operators() -> None:
    x, w = te.placeholder((N, 8, 6, 6), name="x"), te.placeholder((4, 8, 3, 3), name="w")
    y = te.nn.relu(te.nn.conv(x, w, pads=(1, 1, 1, 1)))
    assert "sum(kh < 3, kw < 3, ic < 8)" in te.text(y)
    found = te.build(te.schedule(y), [x, w])(np.ones((2, 8, 6, 6), np.float32), np.ones((4, 8, 3, 3), np.float32))
    assert (found.shape, found[0, 0, 0, 0], found[1, 3, 2, 2]) == ((2, 4, 6, 6), 32, 72)
    assert te.nn.reshape(x, (0, -1)).shape[1] == 288
    assert "softmax" in dir(te.nn)
    with pytest.raises(AttributeError, match="softmix"):
        te.nn.softmix  # noqa: B018


def test_operators_have_names_that_can_be_written() -> None:
    assert [name for name in dir(te.nn) if not name.isidentifier() or keyword.iskeyword(name)] == []
    a, b = (te.placeholder((4,), "bool", name) for name in "ab")
    assert te.nn.and_(a, te.nn.not_(b)).dtype == "bool"
    assert te.nn.is_nan(te.placeholder((4,))).dtype == "bool"


def test_a_symbol_follows_from_the_extents_that_show_it() -> None:
    a = te.placeholder((2 * N + 1,), name="a")
    pairs = te.compute((N,), lambda i: a[2 * i] + a[2 * i + 2], name="pairs")
    function = te.build(te.schedule(pairs), [a])
    given = np.arange(11, dtype=np.float32)
    np.testing.assert_array_equal(function(given), given[0:10:2] + given[2::2])
    with pytest.raises(IngotError, match="must be") as caught:
        function(np.ones(10, np.float32))
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    square = te.placeholder((N * N,), name="square")
    with pytest.raises(IngotError, match="no argument shows what n is"):
        te.build(te.schedule(te.compute((N,), lambda i: square[i], name="row")), [square])


def test_whatever_gives_its_memory() -> None:
    class Exported:
        """Memory that only DLPack gives."""

        def __init__(self, array: np.ndarray) -> None:
            self._array = array

        def __dlpack__(self, **options: Any) -> object:
            return self._array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self._array.__dlpack_device__()

    add, ones = vector_add(), np.ones(4, np.float32)
    np.testing.assert_array_equal(add(Exported(ones), array("f", [1, 2, 3, 4])), [2, 3, 4, 5])
    result = array("f", [0, 0, 0, 0])
    assert add(ones, ones, out=result) is result
    assert list(result) == [2, 2, 2, 2]


def test_results_are_written_where_the_caller_says() -> None:
    add, ones = vector_add(), np.ones(4, np.float32)
    result = np.zeros(4, np.float32)
    assert add(ones, ones, out=result) is result
    np.testing.assert_array_equal(result, [2, 2, 2, 2])
    both = np.arange(8, dtype=np.float32)
    assert add(both[:4], ones, out=both[4:]).base is both
    np.testing.assert_array_equal(both, [0, 1, 2, 3, 1, 2, 3, 4])


ONES = np.ones(8, np.float32)
LOCKED = np.ones(4, np.float32)
LOCKED.setflags(write=False)
REFUSED: dict[str, tuple[tuple[Any, ...], Any]] = {
    "takes contiguous arrays": ((ONES[::2], ONES[:4]), None),
    "cannot read A": (([1.0, 2.0], ONES[:2]), None),
    "writes to C what A lies in": ((ONES[:4], np.ones(4, np.float32)), ONES[2:6]),
    "writes to C; expected memory that may": ((ONES[:4], ONES[:4]), LOCKED),
    "output 'C' does not fit": ((ONES[:4], ONES[:4]), np.ones(5, np.float32)),
    "another element type in C": ((ONES[:4], ONES[:4]), np.ones(4)),
    "has 1 results": ((ONES[:4], ONES[:4]), (LOCKED, LOCKED)),
    "another element type in B": ((ONES, ONES.astype(">f4")), None),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_cannot_be_called_is_said(sentence: str) -> None:
    arguments, out = REFUSED[sentence]
    with pytest.raises(IngotError, match=sentence) as caught:
        vector_add()(*arguments, out=out)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    np.testing.assert_array_equal(ONES, np.ones(8))


def test_several_functions_of_one_module(tmp_path: Path) -> None:
    product = te.compute((N,), lambda i: A[i] * B[i], name="D")
    module = te.build({"add": (te.schedule(C), [A, B]), "mul": (te.schedule(product), [B, A])})
    assert list(module) == ["add", "mul"]
    assert repr(module["mul"]) == "<function mul(B: float32[n], A: float32[n]) -> (D: float32[n])>"
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3)
    module.save(tmp_path / "both", home=tmp_path / "home")
    loaded = ingot.load_module(tmp_path / "both", home=tmp_path / "home")
    for functions in (module, loaded):
        np.testing.assert_array_equal(functions["add"](a, b), a + b)
        np.testing.assert_array_equal(functions["mul"](b, a), a * b)
        with pytest.raises(IngotError, match="no such function") as caught:
            functions["sub"]
        assert caught.value.code is ErrorCode.NOT_FOUND
    with pytest.raises(IngotError, match="code alone is saved"):
        loaded["add"].inspect("loops")
    with pytest.raises(IngotError, match="is no identifier"):
        te.build({"3": (te.schedule(C), [A, B])})


def test_every_stage_can_be_looked_at() -> None:
    module = te.build({"add": (te.schedule(C), [A, B])})
    assert module.inspect("loops") == str(te.lower(te.schedule(C), [A, B], name="add"))
    assert "define" in module["add"].inspect("llvm")
    assert "ret" in module["add"].inspect("asm")
    with pytest.raises(IngotError, match="no such form"):
        module["add"].inspect("wasm")  # type: ignore[arg-type]


def test_a_function_for_another_machine_is_saved_and_not_called(tmp_path: Path) -> None:
    function = te.build(te.schedule(C), [A, B], target="aws/graviton3")
    assert function.save(tmp_path / "add", home=tmp_path / "home")
    with pytest.raises(IngotError) as caught:
        function(ONES, ONES)
    assert caught.value.code is ErrorCode.ARTIFACT_INCOMPATIBLE


def test_from_any_number_of_threads() -> None:
    add = vector_add()
    with ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(lambda size: add(np.full(size, 1, np.float32), np.full(size, size, np.float32)), range(64))
        )
    assert [x.size and x[0] for x in found] == [0, *range(2, 65)]


def test_a_target_is_taken_as_its_text_is() -> None:
    target = ingot.Target.parse("host -cores=1")
    s = te.default_schedule(C, target=target)
    assert str(te.lower(s, [A, B], target)) == str(te.lower(s, [A, B], str(target)))
    ones = np.ones(5, np.float32)
    for given in (target, str(target)):
        np.testing.assert_array_equal(te.build(s, [A, B], given)(ones, ones), ones + ones)


def test_one_version_for_several_machines_gives_each_its_own(tmp_path: Path) -> None:
    s = te.schedule(C)
    artifacts = [te.build(s, [A, B], target, "add").artifact for target in ("riscv64/rvv", "aarch64/generic", "host")]
    ingot.save_artifacts(artifacts, tmp_path / "add", "1.0", home=tmp_path)
    ones = np.ones(5, np.float32)
    found = ingot.load(tmp_path / "add", home=tmp_path).run({"A": ones, "B": ones})
    np.testing.assert_array_equal(found["C"], ones + ones)
    with pytest.raises(IngotError, match="at least one artifact"):
        ingot.save_artifacts([], tmp_path / "none", home=tmp_path)
