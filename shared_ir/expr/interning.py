"""Interning: a metaclass that makes equal frozen values one object."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import MISSING, fields
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

Key = tuple[Hashable, ...]
Value = TypeVar("Value")


class _Reference(weakref.ref[Any]):
    """A weak reference that knows where it is kept."""

    __slots__ = ("key", "table")
    key: Key
    table: dict[Key, _Reference]


class Interned(type):
    """Makes equal nodes one object, so that equality is identity and hashing costs nothing.

    Rewriting compares and looks up expressions millions of times; structural equality made up most of compile time.
    Nodes are kept weakly, in one table per class.
    """

    _lock: ClassVar[threading.RLock] = threading.RLock()
    """Reentrant: a node may be collected, and forgotten, while another is created."""
    _table: dict[Key, _Reference]
    _arity: int
    _signature: tuple[tuple[str, Any], ...]
    """Names of the fields and their defaults."""

    def __init__(cls, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cls._table = {}
        cls._arity = -1  # the dataclass decorator runs after the class exists

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != cls._arity:
            args = cls._complete(args, kwargs)
        reference = cls._table.get(args)
        if reference is not None:
            node = reference()
            if node is not None:
                return node
        return cls._create(args, args)

    def _create(cls, key: Key, args: tuple[Any, ...]) -> Any:
        """The node of ``args``, which is kept under ``key``."""
        table = cls._table
        with Interned._lock:
            reference = table.get(key)
            node = None if reference is None else reference()
            if node is None:
                node = super().__call__(*args)
                reference = _Reference(node, _forget)
                reference.key = key
                reference.table = table
                table[key] = reference
            return node

    def _complete(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Every field in order, defaults filled in."""
        if cls._arity < 0:
            cls._signature = tuple((field.name, field.default) for field in fields(cls))  # type: ignore[arg-type]
            cls._arity = len(cls._signature)
        rest = tuple([kwargs.pop(name, default) for name, default in cls._signature[len(args) :]])
        if kwargs or MISSING in rest or len(args) > cls._arity:
            raise TypeError(f"{cls.__name__} takes {', '.join(name for name, _ in cls._signature)}")
        return (*args, *rest)


def _forget(reference: weakref.ref[Any]) -> None:
    assert isinstance(reference, _Reference)
    with Interned._lock:
        if reference.table.get(reference.key) is reference:
            del reference.table[reference.key]


class DerivedAttribute(Generic[Value]):
    """An attribute of frozen nodes that follows from their fields: computed when it is first read, then remembered."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute = compute
        self._name = ""
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, node: None, owner: type) -> Self: ...
    @overload
    def __get__(self, node: object, owner: type) -> Value: ...
    def __get__(self, node: object | None, owner: type) -> Self | Value:
        if node is None:
            return self
        value = node.__dict__[self._name] = self._compute(node)  # found before this descriptor from now on
        return value
