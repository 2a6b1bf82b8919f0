"""Sequences of requests: the state of a recurrent model is kept between them, on the server.

Such a model takes its state as inputs and hands out the next one as outputs (silero-vad: ``state`` and ``stateN``). A request says which
sequence it belongs to by the parameters ``sequence_id``, ``sequence_start`` and ``sequence_end`` (Triton's
``extension_sequence.md``); what its state is, its client neither sends nor gets.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeAlias

import numpy as np

from runtime_service.arrays import Array
from runtime_service.batching.execution import BatchResult
from runtime_service.batching.messages import Cancellation, InferRequest
from runtime_service.batching.rows import Arrays
from runtime_service.batching.validation import signature
from runtime_service.batching.watch import WATCH, Watch
from runtime_service.batching.work import why_unwanted
from runtime_service.policies import SequenceOptions
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Var
from shared_ir.expr.dim import Dim, static
from shared_ir.plan.program import TensorSpec
from shared_ir.service_kit.calls.shares import is_for_others

_LOOK_SECONDS = 0.25
"""How often a request that waits for its turn is asked whether its client is still there."""
_LEAST_PAUSE_SECONDS = 1.0
"""Between two looks for states that nobody uses any more."""
_MOST_CHARACTERS = 128
"""Of a name of a sequence, as in Triton."""
Name: TypeAlias = tuple[str, int | str]
"""Who sent it, and what he calls it: the sequences of others are not there."""


@dataclass(frozen=True, slots=True)
class Step:
    """A request of a sequence: whether it is its first, and its last."""

    name: Name
    starts: bool
    ends: bool


@dataclass(slots=True)
class _State:
    """``arrays`` by input; ``turn`` is held by the request that is computed, ``used`` is when the last one came or went."""

    used: float
    arrays: dict[str, Array] = field(default_factory=dict)
    size: int = 0
    turn: threading.Lock = field(default_factory=threading.Lock)


def step_of(request: InferRequest) -> Step | None:
    """The place of ``request`` in a sequence, if it has one.

    Raises:
        IngotError: INVALID_ARGUMENT, its parameters are malformed, or name no sequence.
    """
    if not request.parameters:
        return None
    name = request.parameters.get("sequence_id", 0)
    starts, ends = (request.parameters.get(f"sequence_{edge}", False) for edge in ("start", "end"))
    well_named = isinstance(name, int | str) and not isinstance(name, bool) and len(str(name)) <= _MOST_CHARACTERS
    if not well_named or not isinstance(starts, bool) or not isinstance(ends, bool):
        raise _malformed(f"{name!r}, {starts!r}, {ends!r}")
    if name in (0, ""):
        if starts or ends:
            raise _malformed("a start or an end without sequence_id")
        return None
    assert isinstance(name, int | str)
    return Step((request.peer, name), starts, ends)


class Sequences:
    """The states of the sequences of one model version. Safe to be used from several threads."""

    def __init__(
        self,
        options: SequenceOptions,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        clock: Callable[[], float] = time.monotonic,
        watch: Watch = WATCH,
    ) -> None:
        """Raises IngotError INVALID_ARGUMENT: the model has no such state."""
        _check_state(options, inputs, outputs)
        self.options = options
        self._inputs = {spec.name: spec for spec in inputs if spec.name in options.state}
        self._order = tuple(spec.name for spec in inputs)
        self._others = tuple(spec for spec in inputs if spec.name not in options.state)
        self._clock = clock
        self._watch = watch
        self._is_reminded = False
        self._lock = threading.Lock()
        self._states: OrderedDict[Name, _State] = OrderedDict()
        self._bytes = 0
        self._count_of: Counter[str] = Counter()
        self._bytes_of: Counter[str] = Counter()
        """Of each address that has some: who has half of all gets nothing of the last quarter."""

    def __len__(self) -> int:
        return len(self._states)

    @property
    def held_bytes(self) -> int:
        """That the states take."""
        return self._bytes

    def run(
        self,
        step: Step,
        inputs: Arrays,
        deadline: float | None,
        compute: Callable[[Arrays], BatchResult],
        cancellation: Cancellation | None = None,
    ) -> BatchResult:
        """``compute`` of ``inputs`` and the state, whose next value is kept. Requests of one sequence are computed one by one.

        Raises:
            IngotError: INVALID_ARGUMENT, there is no such sequence, or state is sent to one that goes on; RESOURCE_EXHAUSTED, there
                are too many, or their states too large; DEADLINE_EXCEEDED, CANCELLED; and what ``compute`` raises. The state stays as it
                was.
        """
        given = {name for name in self._inputs if name in inputs}
        if given and not step.starts:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "a request sends the state of a sequence that goes on",
                tensor=min(given),
                expected="nothing: the state is kept here",
                remedy="Send a first state with sequence_start alone.",
            )
        with self._turn(step, deadline, cancellation) as state:
            before = self._first(inputs) if step.starts else state.arrays
            whole = {**inputs, **before}
            result = compute({name: whole[name] for name in self._order if name in whole})
            self._keep(step, state, {name: _own(result.outputs[o]) for name, o in self.options.state.items()})
            return result

    @property
    def inputs(self) -> frozenset[str]:
        """What is kept here and need not be sent."""
        return frozenset(self._inputs)

    def gives(self, specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """The outputs of requests that name none."""
        kept = set(self.options.state.values())
        return tuple(spec for spec in specs if spec.name not in kept)

    @contextmanager
    def _turn(self, step: Step, deadline: float | None, cancellation: Cancellation | None) -> Iterator[_State]:
        state = self._acquired(step, deadline, cancellation)
        is_over = False
        try:
            yield state
            is_over = step.ends
        finally:
            with self._lock:
                self._used(step.name, state)
                if is_over or not state.arrays:  # or it has not begun
                    self._forget(step.name, state)
            state.turn.release()

    def _acquired(self, step: Step, deadline: float | None, cancellation: Cancellation | None) -> _State:
        while True:
            state = self._begin(step)
            self._wait(state, deadline, cancellation)
            if self._states.get(step.name) is state:
                return state
            state.turn.release()  # it has ended meanwhile

    def _wait(self, state: _State, deadline: float | None, cancellation: Cancellation | None) -> None:
        """For the turn, as long as somebody waits for the result."""
        while True:
            left = _LOOK_SECONDS if deadline is None else min(_LOOK_SECONDS, max(0.0, deadline - self._clock()))
            if state.turn.acquire(timeout=left):
                return
            unwanted = why_unwanted(deadline, cancellation, self._clock())
            if unwanted is not None and unwanted.code is ErrorCode.DEADLINE_EXCEEDED:
                raise IngotError(
                    ErrorCode.DEADLINE_EXCEEDED,
                    "the deadline of the request passed while the one before it in its sequence was computed",
                    remedy="Send a request of a sequence when the one before it is answered.",
                )
            if unwanted is not None:
                raise unwanted

    def _begin(self, step: Step) -> _State:
        with self._lock:
            self._expire()
            state = self._states.get(step.name)
            if state is None:
                if not step.starts:
                    raise _no_sequence(self.options.idle_seconds)
                if len(self._states) >= self.options.most:
                    raise _too_many(f"at most {self.options.most} sequences at a time")
                if is_for_others(len(self._states), self._count_of[step.name[0]], self.options.most):
                    raise _too_many(f"the last quarter of {self.options.most} sequences for other addresses")
                self._count_of[step.name[0]] += 1
                state = self._states[step.name] = _State(self._clock())
                self._remind(self.options.idle_seconds)
            self._used(step.name, state)
            return state

    def _used(self, name: Name, state: _State) -> None:
        if self._states.get(name) is state:
            state.used = self._clock()
            self._states.move_to_end(name)

    def _expire(self) -> None:
        """Forget what has not been used for too long; the oldest come first."""
        oldest = self._clock() - self.options.idle_seconds
        for name, state in list(takewhile(lambda item: item[1].used <= oldest, self._states.items())):
            if not state.turn.locked():
                self._forget(name, state)

    def _remind(self, seconds: float) -> None:
        """Look after so long whether there are states that nobody uses: the last ones of a model are followed by no request. NOTE: who is
        reminded is not kept for that, as its model may be unloaded."""
        if self._is_reminded:
            return
        self._is_reminded = True
        own = weakref.ref(self)

        def look() -> None:
            if (sequences := own()) is not None:
                sequences._look()

        self._watch.remind(max(seconds, _LEAST_PAUSE_SECONDS), look)

    def _look(self) -> None:
        with self._lock:
            self._is_reminded = False
            self._expire()
            if self._states:
                oldest = next(iter(self._states.values()))
                self._remind(oldest.used + self.options.idle_seconds - self._clock())

    def _forget(self, name: Name, state: _State) -> None:
        if self._states.get(name) is state:
            del self._states[name]
            self._count_of[name[0]] -= 1
            self._hold(name[0], -state.size)
            if not self._count_of[name[0]]:
                del self._count_of[name[0]], self._bytes_of[name[0]]

    def _hold(self, peer: str, count: int) -> None:
        self._bytes += count
        self._bytes_of[peer] += count

    def _keep(self, step: Step, state: _State, arrays: dict[str, Array]) -> None:
        size = 0 if step.ends else sum(array.nbytes for array in arrays.values())
        peer, most, more = step.name[0], self.options.most_bytes, size - state.size
        with self._lock:
            if self._bytes + more > most:
                raise _too_many(f"states of {most} bytes together")
            if more > 0 and is_for_others(self._bytes, self._bytes_of[peer], most):
                raise _too_many(f"the last quarter of {most} bytes of states for other addresses")
            self._hold(peer, more)
            state.arrays, state.size = arrays, size

    def _first(self, inputs: Arrays) -> dict[str, Array]:
        """Zeros, where the request does not bring the state."""
        sizes = dict(self.options.sizes)
        for spec in self._others:
            if spec.name in inputs:
                sizes |= {
                    d.name: n for d, n in zip(spec.shape, inputs[spec.name].shape, strict=True) if isinstance(d, Var)
                }
        return {
            name: inputs[name]
            if name in inputs
            else np.zeros([_extent(d, sizes) for d in spec.shape], spec.dtype.numpy)
            for name, spec in self._inputs.items()
        }


def _extent(dim: Dim, sizes: Mapping[str, int]) -> int:
    return sizes[dim.name] if isinstance(dim, Var) else static(dim)


def _own(array: Array) -> Array:
    """``array`` without what it is a part of."""
    return array if array.base is None else array.copy()


def _check_state(options: SequenceOptions, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
    takes, gives = ({spec.name: spec for spec in specs} for specs in (inputs, outputs))
    said = {d.name for spec in inputs if spec.name not in options.state for d in spec.shape if isinstance(d, Var)}
    for name, output in options.state.items():
        if name not in takes or output not in gives:
            raise _no_state(name, "an input, and the output that is its next value", f"{name!r}: {output!r}")
        spec, other = takes[name], gives[output]
        if spec.dtype is not other.dtype or len(spec.shape) != len(other.shape) or spec.dtype is DType.STRING:
            raise _no_state(
                name, "numbers of the same type and rank in both", f"{signature(spec)} and {signature(other)}"
            )
        unsaid = {d.name for d in spec.shape if isinstance(d, Var)} - said - set(options.sizes)
        if unsaid:
            raise _no_state(name, "sizes of what no other input says", f"none of {', '.join(sorted(unsaid))}")


def _no_state(name: str, expected: str, received: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "the model has no such state",
        tensor=name,
        field="sequence",
        expected=expected,
        received=received,
        remedy='Name it in the models file: {"sequence": {"state": {"INPUT": "OUTPUT"}, "sizes": {"SYMBOL": 1}}}.',
    )


def _no_sequence(idle_seconds: float) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "the request goes on with a sequence that is not there",
        field="sequence_id",
        expected=f"one that was begun here, has not ended and had a request in the last {idle_seconds:g} s",
        remedy="Begin it again with sequence_start; a version that is loaded or a server that restarts knows none.",
    )


def _too_many(expected: str) -> IngotError:
    return IngotError(
        ErrorCode.RESOURCE_EXHAUSTED,
        "the state of the sequences of this model leaves no room for this one",
        expected=expected,
        remedy="End sequences with sequence_end, or add replicas.",
    )


def _malformed(received: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "the parameters of a sequence are malformed",
        field="sequence_id",
        expected=f"a number or at most {_MOST_CHARACTERS} characters, sequence_start and sequence_end true or false",
        received=received[:200],
    )
