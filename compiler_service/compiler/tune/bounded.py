"""Templates of users, asked with a limit: where one takes long, or for ever, at some answers, those are no candidate, and it is not asked
again with them."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Generic, TypeAlias, TypeVar

from compiler_service.compiler.schedule.language.knobs import Knob, Knobs, Value, Values
from shared_ir.errors import ErrorCode, IngotError

T = TypeVar("T")
_Trail: TypeAlias = frozenset[tuple[str, Value]]
"""All answers so far: what a template does next follows from them."""

SECONDS_OF_TEMPLATE = 10.0
"""That a template may take for one schedule; most take milliseconds."""
_LEAST_SECONDS = 1.0
"""That it may take when the time of the whole run is over."""


class _Abandoned(SystemExit):
    """Raised in a thread that nobody waits for any more, which it ends without a word."""


def within(seconds: float, call: Callable[[], T], what: str) -> T:
    """What ``call`` gives, or raises, in another thread with a copy of this one's context.

    A call that takes longer goes on there until it is back in Python, where an exception ends it.

    Args:
        what: it is, for people.

    Raises:
        IngotError: DEADLINE_EXCEEDED, it took longer than ``seconds``.
    """
    context, found = contextvars.copy_context(), Future[T]()

    def run() -> None:
        try:
            found.set_result(context.run(call))
        except BaseException as error:
            found.set_exception(error)

    thread = threading.Thread(target=run, name="template", daemon=True)
    thread.start()
    try:
        with contextlib.suppress(TimeoutError):
            found.exception(seconds)
        if found.done():
            return found.result()
    finally:
        if not found.done():  # also where this thread was interrupted
            _end(thread)
    raise IngotError(
        ErrorCode.DEADLINE_EXCEEDED,
        f"{what} takes too long",
        expected=f"a schedule within {seconds:.0f} s",
        received="none until then",
        remedy="Offer no answers with which it takes longer.",
    )


def _end(thread: threading.Thread) -> None:
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Abandoned))


class BoundedTemplate(Generic[T]):
    """A template that is asked with a limit.

    Args:
        make: the template.
        name: of it, for people.

    Attributes:
        until: when the run that asks is over, in the seconds of ``time.monotonic``: what is asked for later must be ready at once.
        hear: called with all answers until it took too long, those of the model included, and the error that says so.
    """

    def __init__(self, make: Callable[[Knobs], T], name: str) -> None:
        self._make, self._name = make, name
        self.until = math.inf
        self.hear: Callable[[Values, IngotError], None] = lambda values, error: None
        self._process = os.getpid()
        self._late: dict[_Trail, IngotError] = {}
        self._is_given_up = False

    def know(self, values: Values) -> None:
        """That it takes too long once it has these answers, as ``hear`` was told."""
        self._late[frozenset(values.items())] = self._before()

    def __call__(self, knobs: Knobs) -> T:
        """What the template makes.

        Raises:
            IngotError: DEADLINE_EXCEEDED, that takes too long, or did before. Whatever the template raises.
        """
        if self._is_given_up and self._is_own and not knobs.is_default:
            raise self._before()
        met: list[IngotError] = []

        def answered(asked: Mapping[str, Knob]) -> None:
            error = self._late.get(_trail(asked))
            if error is not None:
                met.append(error)
                raise error

        seconds = self._seconds(knobs)
        try:
            found = within(seconds, lambda: self._make(knobs.watched(answered)), self._name)
        except IngotError as error:
            if error.code is ErrorCode.DEADLINE_EXCEEDED and not met:
                self._note(knobs, error, seconds)
            raise
        if met:  # it has caught what it was told
            raise met[0]
        return found

    @property
    def _is_own(self) -> bool:
        """Whether this is the process that searches; those that build have a limit for each candidate, and tell it."""
        return os.getpid() == self._process

    def _seconds(self, knobs: Knobs) -> float:
        if knobs.is_default or not self._is_own:
            return SECONDS_OF_TEMPLATE
        return min(SECONDS_OF_TEMPLATE, max(_LEAST_SECONDS, self.until - time.monotonic()))

    def _note(self, knobs: Knobs, error: IngotError, seconds: float) -> None:
        self._late[_trail(knobs.asked)] = error
        if not self._is_own:
            return
        self._is_given_up = self._is_given_up or time.monotonic() > self.until
        if seconds >= SECONDS_OF_TEMPLATE:  # else it may be but slow
            self.hear(dict(_trail(knobs.asked)), error)

    def _before(self) -> IngotError:
        return IngotError(ErrorCode.DEADLINE_EXCEEDED, f"{self._name} took too long before")


def _trail(asked: Mapping[str, Knob]) -> _Trail:
    return frozenset((knob.name, knob.value) for knob in list(asked.values()))
