"""Templates that take long, or for ever, at some answers."""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections.abc import Iterator

import pytest

from compiler_service.compiler.schedule.language.knobs import Knob, Knobs, Value, Values
from compiler_service.compiler.tune import bounded
from compiler_service.compiler.tune.bounded import BoundedTemplate, within
from shared_ir.errors import ErrorCode, IngotError

LONG = 60.0


class Stuck:
    """A template that hangs where x is 2, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[Value] = []
        self.over = threading.Event()

    def __call__(self, knobs: Knobs) -> Value:
        x = knobs.choice("x", (1, 2, 3), 1)
        self.asked.append(x)
        if x == 2:
            self.over.wait(LONG)
        return x, knobs.choice("y", (1, 2, 3), 1)


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    found = Stuck()
    yield found
    found.over.set()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "SECONDS_OF_TEMPLATE", 0.2)
    monkeypatch.setattr(bounded, "_LEAST_SECONDS", 0.05)


def is_late(template: BoundedTemplate[Value], knobs: Knobs) -> bool:
    try:
        template(knobs)
    except IngotError as error:
        return error.code is ErrorCode.DEADLINE_EXCEEDED
    return False


def test_what_a_call_gives_or_raises_is_passed_on() -> None:
    about = contextvars.ContextVar("about", default=0)
    about.set(7)
    assert within(LONG, about.get, "it") == 7
    with pytest.raises(ZeroDivisionError):
        within(LONG, lambda: 1 // 0, "it")
    with pytest.raises(TimeoutError, match="its own"):  # and no one takes it for the limit
        within(LONG, lambda: (_ for _ in ()).throw(TimeoutError("its own")), "it")


def test_a_call_that_never_ends_is_left_and_ended() -> None:
    threads: list[threading.Thread] = []

    def forever() -> None:
        threads.append(threading.current_thread())
        while True:
            time.sleep(0.001)

    with pytest.raises(IngotError, match="it takes too long") as caught:
        within(0.05, forever, "it")
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
    assert caught.value.expected
    threads[0].join(LONG)
    assert not threads[0].is_alive()


def test_answers_that_took_too_long_are_not_tried_again(stuck: Stuck) -> None:
    heard: list[tuple[Values, IngotError]] = []
    template = BoundedTemplate(stuck, "it")
    template.hear = lambda values, error: heard.append((values, error))
    draw = lambda knob: 2
    assert template(Knobs()) == (1, 1)
    assert is_late(template, Knobs({"x": 2}))
    assert is_late(template, Knobs({"x": 2, "y": 3}))  # it never came to ask for y
    assert is_late(template, Knobs({}, draw))
    assert template(Knobs({"x": 3, "y": 2})) == (3, 2)
    assert stuck.asked == [1, 2, 3]
    ((values, error),) = heard
    assert values == {"x": 2}
    assert "takes too long" in error.message


def test_what_an_earlier_run_has_met_is_known(stuck: Stuck) -> None:
    template = BoundedTemplate(stuck, "it")
    template.know({"x": 2})
    assert is_late(template, Knobs({"x": 2}))
    assert is_late(template, Knobs({}, lambda knob: 2))
    assert not stuck.asked
    template.know({"x": 3, "y": 1})
    assert template(Knobs({"x": 3, "y": 2})) == (3, 2)
    assert is_late(template, Knobs({"x": 3}))


def test_a_template_that_catches_what_it_is_told_is_refused_all_the_same(stuck: Stuck) -> None:
    def careless(knobs: Knobs) -> Value:
        try:
            return stuck(knobs)
        except IngotError:
            return 0

    template = BoundedTemplate(careless, "it")
    assert is_late(template, Knobs({"x": 2}))
    assert is_late(template, Knobs({"x": 2, "y": 2}))
    assert stuck.asked == [2]


def test_when_the_time_is_over_one_that_is_late_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Value] = []

    def slow(knobs: Knobs) -> Value:
        asked.append(knobs.choice("x", (1, 2, 3, 4), 1))
        if asked[-1] != 1:
            time.sleep(0.5)
        return asked[-1]

    heard: list[Values] = []
    template = BoundedTemplate(slow, "it")
    template.until, template.hear = time.monotonic() - 1, lambda values, error: heard.append(values)
    assert is_late(template, Knobs({"x": 2}))
    assert is_late(template, Knobs({"x": 3}))
    assert asked == [2]
    assert template(Knobs()) == 1
    assert not heard, "it had no time, and may be but slow"


def test_a_process_that_builds_waits_and_tells_nobody(monkeypatch: pytest.MonkeyPatch, stuck: Stuck) -> None:
    heard: list[Values] = []
    template = BoundedTemplate(stuck, "it")
    template.until, template.hear = time.monotonic() - 1, lambda values, error: heard.append(values)
    own = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    assert is_late(template, Knobs({"x": 2}))
    assert template(Knobs({"x": 3})) == (3, 1)
    assert not heard


def test_knobs_tell_who_watches() -> None:
    def last(knob: Knob) -> Value:
        return knob.options[-1]

    made = [Knobs(), Knobs({"x": 2}), Knobs({}, last)]
    assert [k.is_default for k in made] == [True, False, False]
    told: list[list[str]] = []
    watched = made[0].watched(lambda asked: told.append(list(asked)))
    watched.within("a").choice("x", (1, 2), 1)
    watched.choice("y", (1, 2), 1)
    watched.choice("y", (1, 2), 1)
    assert told == [["a.x"], ["a.x", "y"]]
    assert list(made[0].asked) == ["a.x", "y"]
