"""Interning: a metaclass that makes equal frozen values one object."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable
from dataclasses import MISSING, fields
from typing import Any, ClassVar


class _Reference(weakref.ref[Any]):
    """A weak reference that knows under which key it is kept."""

    __slots__ = ("key",)
    key: tuple[Hashable, ...]


class Interned(type):
    """Makes equal nodes one object, so that equality is identity and hashing costs nothing.

    Rewriting compares and looks up expressions millions of times; structural equality made up most of compile time.
    Nodes are kept weakly.
    """

    _nodes: ClassVar[dict[tuple[Hashable, ...], _Reference]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != len(cls.__match_args__):  # type: ignore[attr-defined]
            args = cls._complete(args, kwargs)
        key = cls.key_of(args)
        reference = Interned._nodes.get(key)
        node = None if reference is None else reference()
        return cls._create(key, args) if node is None else node

    def _create(cls, key: tuple[Hashable, ...], args: tuple[Any, ...]) -> Any:
        with Interned._lock:
            reference = Interned._nodes.get(key)
            node = None if reference is None else reference()
            if node is None:
                node = super().__call__(*args)
                reference = _Reference(node, _forget)
                reference.key = key
                Interned._nodes[key] = reference
            return node

    def key_of(cls, args: tuple[Any, ...]) -> tuple[Hashable, ...]:
        return (cls, *args)

    def signature(cls) -> tuple[tuple[str, Any], ...]:
        """(name, default) of every field; kept on the class, since the dataclass decorator runs after the class exists."""
        found = cls.__dict__.get("_signature")
        if found is None:
            found = tuple((f.name, f.default) for f in fields(cls))  # type: ignore[arg-type]
            type.__setattr__(cls, "_signature", found)
        return found

    def _complete(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Every field in order, defaults filled in."""
        rest = tuple(kwargs.pop(name, default) for name, default in cls.signature()[len(args) :])
        if kwargs or MISSING in rest or len(args) > len(cls.signature()):
            raise TypeError(f"{cls.__name__} takes {', '.join(name for name, _ in cls.signature())}")
        return (*args, *rest)


def _forget(reference: weakref.ref[Any]) -> None:
    assert isinstance(reference, _Reference)
    if Interned._nodes.get(reference.key) is reference:
        Interned._nodes.pop(reference.key, None)
