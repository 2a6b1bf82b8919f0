"""Options of passes as text, ``{merge=false,most_nodes=8}``, and back: what a field takes is what its annotation says.

A truth value is ``true`` or ``false``, nothing is ``none``, several values stand in brackets, ``(float16,bfloat16)``, and the fields
of a value that has some stand in braces, ``costs={cache=1048576}``. What is not written is the default.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError

_WORD = re.compile(r"[\w.+-]+")
_NAME = re.compile(r"[^\W\d][\w-]*")
_QUOTED_OR_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[\w.+-]+')
_SPACE = re.compile(r"\s*")
_INTEGER = re.compile(r"-?\d+")


def print_options(options: object) -> str:
    """The fields of a dataclass that are not the default; empty where all are."""
    assert dataclasses.is_dataclass(options)
    kinds = typing.get_type_hints(type(options))
    fields = [(f.name, getattr(options, f.name), f.default) for f in dataclasses.fields(options)]
    written = [f"{name}={_print(value, kinds[name])}" for name, value, default in fields if value != default]
    return f"{{{','.join(written)}}}" if written else ""


def _print(value: object, kind: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case DType():  # before str: a DType is one
            return value.value
        case int() | float():
            return repr(float(value)) if kind is float else repr(value)
        case str():
            return value if _WORD.fullmatch(value) else json.dumps(value)
        case frozenset() | tuple():
            parts = [_print(part, _item(kind)) for part in value]
            return f"({','.join(sorted(parts) if isinstance(value, frozenset) else parts)})"
    return print_options(value) or "{}"


def _item(kind: Any) -> Any:
    """The kind of what is in a tuple or a set."""
    return typing.get_args(kind)[0]


@dataclass
class OptionReader:
    """Text of passes, and how much of it has been read. ``where`` is the option that is being read, for messages."""

    text: str
    position: int = 0
    where: str = ""

    def match(self, pattern: re.Pattern[str]) -> str | None:
        space = _SPACE.match(self.text, self.position)
        self.position = space.end() if space else self.position
        found = pattern.match(self.text, self.position)
        if found is None:
            return None
        self.position = found.end()
        return found[0]

    def accept(self, sign: str) -> bool:
        return self.match(re.compile(re.escape(sign))) is not None

    def take(self, sign: str) -> None:
        if not self.accept(sign):
            self.fail("a list of passes is malformed", f"{sign!r}{f' behind {self.where}' if self.where else ''}")

    def name(self, what: str) -> str:
        found = self.match(_NAME)
        return self.fail("a list of passes is malformed", what) if found is None else found

    def is_done(self) -> bool:
        self.match(_SPACE)
        return self.position == len(self.text)

    def fail(self, message: str, expected: str, received: str | None = None) -> NoReturn:
        rest = self.text[self.position : self.position + 32]
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            message,
            field="passes",
            expected=expected,
            received=received if received is not None else rest or "the end",
        )

    def options(self, kind: type, owner: str) -> dict[str, Any]:
        """``{name=value,...}`` for the fields of ``kind``, which is called ``owner``; nothing where no brace opens."""
        values: dict[str, Any] = {}
        if not self.accept("{"):
            return values
        kinds = typing.get_type_hints(kind)
        known = {f.name: kinds[f.name] for f in dataclasses.fields(kind)}
        while not self.accept("}"):
            if values:
                self.take(",")
            name = self.name("the name of an option")
            if name not in known:
                self.fail(f"{owner} has no such option", ", ".join(known) or "none", name)
            if name in values:
                self.fail(f"{owner}.{name} is given twice", "each option once", name)
            self.where = f"{owner}.{name}"
            self.take("=")
            values[name] = self.value(known[name], self.where)
        return values

    def value(self, kind: Any, where: str) -> Any:
        """A value of the kind that an annotation names."""
        if isinstance(kind, types.UnionType):
            return self.optional(kind, where)
        if typing.get_origin(kind) in (tuple, frozenset):
            return self.several(kind, where)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            return self.record(kind, where)
        return self.word(kind, where)

    def optional(self, kind: types.UnionType, where: str) -> Any:
        if self.match(re.compile(r"none\b")):
            return None
        (kind,) = (k for k in typing.get_args(kind) if k is not types.NoneType)
        return self.value(kind, where)

    def several(self, kind: Any, where: str) -> Any:
        if not self.accept("("):
            self.fail(f"{where} is no list of values", "values in brackets, separated by commas")
        found: list[Any] = []
        while not self.accept(")"):
            if found:
                self.take(",")
            found.append(self.value(_item(kind), where))
        return typing.get_origin(kind)(found)

    def record(self, kind: type, where: str) -> Any:
        start = self.position
        if not self.accept("{"):
            names = ",".join(f"{f.name}=.." for f in dataclasses.fields(kind))
            self.fail(f"{where} has fields of its own", f"{{{names}}}")
        self.position = start
        return kind(**self.options(kind, where))

    def word(self, kind: Any, where: str) -> Any:
        """A truth value, a number, an element type or a name."""
        start = self.position
        text = self.match(_QUOTED_OR_WORD if kind is str else _WORD)
        if text is not None and kind in _READ:
            try:
                return _READ[kind](text)
            except ValueError:
                pass
        self.position = start
        return self.fail(f"{where} is no {_CALLED.get(kind, kind)}", _ADMITTED.get(kind, str(kind)), text)


def _integer(text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


def _string(text: str) -> str:
    return str(json.loads(text)) if text.startswith('"') else text


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


_READ: Mapping[Any, Any] = {bool: _truth, int: _integer, float: float, DType: DType, str: _string}
_CALLED: Mapping[Any, str] = {
    bool: "truth value",
    int: "whole number",
    float: "number",
    DType: "element type",
    str: "name",
}
_ADMITTED: Mapping[Any, str] = {
    bool: "true or false",
    int: "digits",
    float: "a number, as 8 or 0.5",
    DType: ", ".join(DType),
    str: "a name, or a JSON string",
}
