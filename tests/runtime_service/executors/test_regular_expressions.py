"""Regular expressions of models: of RE2, in linear time, while other threads run."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
import pytest
import re2

from runtime_service.executors.objects import ObjectAllowance
from runtime_service.executors.string_calls import number_of, regex_full_match, tokenizer
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.regular_expressions import Pattern

ROOM = ObjectAllowance(lambda _: None)


def strings(*texts: str) -> np.ndarray:
    found = np.empty(len(texts), object)
    found[:] = texts
    return found


def test_whole_strings_match_or_do_not() -> None:
    x = strings("www.google.com", "www.google.com ", "grün", "", "5")
    assert regex_full_match(x, pattern=r"www\.[\w.-]+\.\bcom\b", room=ROOM).tolist() == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert regex_full_match(x, pattern=r"\w*", room=ROOM).tolist() == [
        False,
        False,
        False,
        True,
        True,
    ]  # ASCII, as RE2 has it
    assert regex_full_match(x, pattern="gr.n", room=ROOM).tolist() == [False, False, True, False, False]


def test_places_are_those_of_characters() -> None:
    assert list(Pattern("b+", "pattern").found_in("aébbüb")) == [(2, 4), (5, 6)]
    (row,) = tokenizer(strings("aé bb,üb"), mark=0, mincharnum=1, pad_value="#", separators=(" ", ","), room=ROOM)
    assert row.tolist() == ["aé", "bb", "üb"]


@pytest.mark.parametrize("pattern", ["(?=a)c", r"(a)\1", "(", "a{2000}"])
def test_what_re2_lacks_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(IngotError, match="not understood") as caught:
        Pattern(pattern, "pattern")
    assert caught.value.code is ErrorCode.UNSUPPORTED_ATTRIBUTE
    assert "b'" not in str(caught.value)


def test_half_of_a_pair_is_no_text() -> None:
    with pytest.raises(IngotError) as caught:
        regex_full_match(strings("a\ud800"), pattern=".*", room=ROOM)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_an_expression_that_backtracks_for_ever_ends() -> None:
    """Python's own would take 2**40 steps for this."""
    assert regex_full_match(strings("a" * 40 + "b"), pattern="(a|aa)+", room=ROOM).tolist() == [False]


def test_other_threads_run_meanwhile() -> None:
    rounds, done = [0], threading.Event()

    def count() -> None:
        while not done.is_set():
            rounds[0] += 1
            time.sleep(0.001)

    before = sys.getswitchinterval()
    sys.setswitchinterval(10.0)  # the interpreter takes the lock from nobody: who matches must give it away
    thread = threading.Thread(target=count)
    try:
        thread.start()
        pattern, text = Pattern("(a|b)*c", "pattern"), "a" * 20_000_000
        assert not pattern.matches_all_of(text)
    finally:
        seen = rounds[0]
        done.set()
        sys.setswitchinterval(before)
        thread.join()
    assert seen > 3


def test_the_error_of_a_string_that_is_no_number_is_short() -> None:
    with pytest.raises(IngotError, match="no number") as caught:
        number_of(strings("x" * 100_000), dtype=np.dtype(np.float32), room=ROOM)
    assert len(str(caught.value)) < 500


def test_expressions_ask_for_what_they_take_before_the_next_one() -> None:
    """A few kilobytes of a model are megabytes of states each."""
    asked: list[int] = []
    x, separators = strings("a b"), [rf"\pL{{100}}{n}" for n in range(3)]
    room = ObjectAllowance(asked.append)
    tokenizer(x, mark=0, mincharnum=1, pad_value="#", separators=separators, room=room)
    sizes = [Pattern(text, "separators").size for text in separators]
    assert asked[:6] == [0, sizes[0], sizes[0], sum(sizes[:2]), sum(sizes[:2]), sum(sizes)]
    assert min(sizes) > Pattern("a", "separators").size


def test_large_expressions_are_forgotten() -> None:
    """Of a hundred there would be a gigabyte."""
    Pattern(r"\pL{100}", "pattern")
    assert re2._Regexp._make.cache_info().currsize == 0
