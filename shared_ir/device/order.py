"""What a tuner orders from the measuring server of a device: a signed document that says everything, but for the bytes it names.

    {"mediaType": "application/vnd.ingot.device.order.v1+json", "annotations": {...signature...},
     "lease": "...", "target": {"triple": "aarch64-linux-gnu", "cpu": "cortex-a72", "features": ["+neon"]},
     "runner": "<sha256>", "seconds": 2.0, "limit": 5.0,
     "trials": [{"libraries": ["<sha256>"],
                 "launches": [{"library": 0, "symbol": "k0", "buffers": [0, 1], "symbols": [64], "tasks": 8, "scratch": 4096}],
                 "buffers": [{"size": 4096, "content": "<sha256>", "copies": 1, "is_result": false}]}]}

An empty content stands for zeros. The lease is part of it, so that no order is good for a second time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from shared_ir.artifact.signature import SigningKey, Trust
from shared_ir.artifact.signed import sign_document, verify_document
from shared_ir.errors import ErrorCode, IngotError

ORDER = "application/vnd.ingot.device.order.v1+json"
MOST_ORDER_BYTES = 1 << 20
MOST_TRIALS = 64
MOST_LAUNCHES = 256
MOST_BUFFERS = 1024
MOST_SECONDS = 600.0
"""Of one order."""
MOST_BYTES = 1 << 48
"""Of anything; what a device has room for is far less."""
_MOST_NUMBER = (1 << 63) - 1
_MOST_COPIES = 65_536
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]{0,254}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_WORD = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
_T = TypeVar("_T")


@dataclass(frozen=True)
class OrderedLaunch:
    """One kernel, called once for all of its tasks; ``library`` and ``buffers`` are numbers of those of the trial, ``scratch`` is bytes."""

    library: int
    symbol: str
    buffers: tuple[int, ...]
    symbols: tuple[int, ...]
    tasks: int
    scratch: int


@dataclass(frozen=True)
class OrderedBuffer:
    """Memory of a trial: ``size`` bytes, ``copies`` times; ``content`` is a digest, empty for zeros."""

    size: int
    content: str = ""
    copies: int = 1
    is_result: bool = False


@dataclass(frozen=True)
class OrderedTrial:
    """``libraries`` are digests of shared libraries, which export the symbols of the launches."""

    libraries: tuple[str, ...]
    launches: tuple[OrderedLaunch, ...]
    buffers: tuple[OrderedBuffer, ...]

    @property
    def memory(self) -> int:
        """Bytes that its process takes for buffers and scratch."""
        return sum(b.size * b.copies for b in self.buffers) + sum(own.scratch for own in self.launches)

    @property
    def digests(self) -> tuple[str, ...]:
        return (*self.libraries, *(b.content for b in self.buffers if b.content))


@dataclass(frozen=True)
class MeasuringOrder:
    """Trials that take turns on a device.

    Attributes:
        lease: under which it is run.
        triple, cpu, features: of the machine that the code is for, in LLVM's words.
        runner: digest of the program that loads the libraries.
        seconds: for all of them together.
        limit: seconds that a trial may take for one answer.
    """

    lease: str
    triple: str
    cpu: str
    features: tuple[str, ...]
    runner: str
    seconds: float
    limit: float
    trials: tuple[OrderedTrial, ...]

    @property
    def digests(self) -> tuple[str, ...]:
        """Of everything that it names, each once."""
        return tuple(dict.fromkeys((self.runner, *(digest for trial in self.trials for digest in trial.digests))))


def sign_order(order: MeasuringOrder, signer: SigningKey) -> bytes:
    target = {"triple": order.triple, "cpu": order.cpu, "features": list(order.features)}
    rest = {name: value for name, value in asdict(order).items() if name not in target}
    return sign_document({"mediaType": ORDER, "annotations": {}, "target": target, **rest}, signer)


def read_order(data: bytes, trust: Trust) -> MeasuringOrder:
    """The order in ``data``.

    Raises:
        IngotError: ARTIFACT_UNTRUSTED, nobody who is trusted signed it as an order; INVALID_ARGUMENT, it is none, or out of range.
    """
    if len(data) > MOST_ORDER_BYTES:
        raise _refused("the order is too large", "order", f"at most {MOST_ORDER_BYTES} bytes", f"{len(data)} bytes")
    try:
        document = verify_document(data, trust, "the order", ORDER)
    except IngotError as error:
        if error.code is ErrorCode.ARTIFACT_CORRUPT:
            raise _refused(error.message, "order", error.expected, error.received) from error
        raise
    target = _object(document, "target", "")
    return MeasuringOrder(
        lease=_text(document, "lease", "", re.compile(r"[A-Za-z0-9_-]{1,64}")),
        triple=_text(target, "triple", "target", _WORD),
        cpu=_text(target, "cpu", "target", _WORD),
        features=_list(target, "features", "target", 512, lambda item, at: _matching(item, at, _WORD)),
        runner=_text(document, "runner", "", _DIGEST),
        seconds=_seconds(document, "seconds"),
        limit=_seconds(document, "limit"),
        trials=_list(document, "trials", "", MOST_TRIALS, _trial, least=1),
    )


def _trial(item: Any, where: str) -> OrderedTrial:
    buffers = _list(item, "buffers", where, MOST_BUFFERS, _buffer)
    libraries = _list(item, "libraries", where, MOST_LAUNCHES, lambda own, at: _matching(own, at, _DIGEST), least=1)

    def launch(item: Any, where: str) -> OrderedLaunch:
        return OrderedLaunch(
            library=_number(item, "library", where, 0, len(libraries) - 1),
            symbol=_text(item, "symbol", where, _SYMBOL),
            buffers=_numbers(item, "buffers", where, 0, len(buffers) - 1),
            symbols=_numbers(item, "symbols", where, -_MOST_NUMBER, _MOST_NUMBER),
            tasks=_number(item, "tasks", where, 0, _MOST_NUMBER),
            scratch=_number(item, "scratch", where, 0, MOST_BYTES),
        )

    launches = _list(item, "launches", where, MOST_LAUNCHES, launch, least=1)
    return OrderedTrial(libraries, launches, buffers)


def _buffer(item: Any, where: str) -> OrderedBuffer:
    is_result = _field(item, "is_result", where)
    if not isinstance(is_result, bool):
        raise _refused("a field of the order is no truth value", f"{where}.is_result", "true or false", repr(is_result))
    return OrderedBuffer(
        size=_number(item, "size", where, 0, MOST_BYTES),
        content=_text(item, "content", where, re.compile(rf"({_DIGEST.pattern})?")),
        copies=_number(item, "copies", where, 1, _MOST_COPIES),
        is_result=is_result,
    )


def _field(item: Any, name: str, where: str) -> Any:
    if not isinstance(item, dict) or name not in item:
        raise _refused("the order lacks a field", _place(where, name), "the field", repr(item))
    return item[name]


def _object(item: Any, name: str, where: str) -> dict[str, Any]:
    found = _field(item, name, where)
    if not isinstance(found, dict):
        raise _refused("a field of the order is no object", _place(where, name), "an object", repr(found))
    return found


def _text(item: Any, name: str, where: str, pattern: re.Pattern[str]) -> str:
    return _matching(_field(item, name, where), _place(where, name), pattern)


def _matching(found: Any, place: str, pattern: re.Pattern[str]) -> str:
    if not isinstance(found, str) or not pattern.fullmatch(found):
        raise _refused("a text of the order is out of range", place, pattern.pattern, repr(found))
    return found


def _number(item: Any, name: str, where: str, least: int, most: int) -> int:
    return _whole(_field(item, name, where), _place(where, name), least, most)


def _numbers(item: Any, name: str, where: str, least: int, most: int) -> tuple[int, ...]:
    return _list(item, name, where, MOST_BUFFERS, lambda found, at: _whole(found, at, least, most))


def _whole(found: Any, place: str, least: int, most: int) -> int:
    if type(found) is not int or not least <= found <= most:
        raise _refused(
            "a number of the order is out of range", place, f"a whole number from {least} to {most}", repr(found)
        )
    return found


def _seconds(item: Any, name: str) -> float:
    found = _field(item, name, "")
    if type(found) not in (int, float) or not 0.001 <= found <= MOST_SECONDS:  # no NaN is in the range either
        raise _refused("a time of the order is out of range", name, f"0.001 to {MOST_SECONDS:g} seconds", repr(found))
    return float(found)


def _list(
    item: Any, name: str, where: str, most: int, read: Callable[[Any, str], _T], least: int = 0
) -> tuple[_T, ...]:
    found, place = _field(item, name, where), _place(where, name)
    if not isinstance(found, Sequence) or isinstance(found, str) or not least <= len(found) <= most:
        raise _refused("a list of the order is out of range", place, f"{least} to {most} items", repr(found))
    return tuple(read(each, f"{place}[{number}]") for number, each in enumerate(found))


def _place(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _refused(message: str, field: str, expected: str, received: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        message,
        field=field,
        expected=expected[:200],
        received=received[:200],
        remedy="Tune with the release of ingot that the device has.",
    )
