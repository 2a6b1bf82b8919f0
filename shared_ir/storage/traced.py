"""An object store whose requests are spans."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

from shared_ir.service_kit.telemetry.tracing import TRACING
from shared_ir.storage.protocol import ObjectStore


def traced(store: ObjectStore) -> ObjectStore:
    """``store`` itself where tracing is off."""
    return cast(ObjectStore, _TracedStore(store)) if TRACING.is_on else store


class _TracedStore:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return _traced(name, found) if callable(found) else found


def _traced(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        key = arguments[0] if arguments and isinstance(arguments[0], str) else ""
        with TRACING.span(f"store {name}", kind="CLIENT", **{"ingot.key": key}):
            return method(*arguments, **named)

    return call
