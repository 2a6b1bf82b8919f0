"""Triton's four clients, unmodified, spoken to in one way."""

from __future__ import annotations

import asyncio
import inspect
from types import ModuleType
from typing import Any

import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio

from runtime_service.server import RuntimeServer

CLIENTS: dict[str, ModuleType] = {
    "grpc": tritonclient.grpc,
    "http": tritonclient.http,
    "grpc.aio": tritonclient.grpc.aio,
    "http.aio": tritonclient.http.aio,
}


class Triton:
    """One of the four: its methods are called as those of the client that waits."""

    def __init__(self, kind: str, server: RuntimeServer, headers: dict[str, str] | None = None, at: str = "") -> None:
        """``at`` is the name of another address of the server than that of the protocol."""
        self.kind = kind
        self.protocol = kind.partition(".")[0]
        self._headers = headers
        self._loop = asyncio.new_event_loop()
        self._client: Any = self._made(CLIENTS[kind], server.addresses[at or self.protocol])

    @property
    def module(self) -> ModuleType:
        """Where tensors are made."""
        return CLIENTS[self.protocol]

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            if self._headers is not None:
                named.setdefault("headers", dict(self._headers))  # the clients write into it
            return self._result(getattr(self._client, name)(*arguments, **named))

        return call

    def as_json(self) -> dict[str, Any]:
        """What gRPC's clients must be told to answer as HTTP's do."""
        return {"as_json": True} if self.protocol == "grpc" else {}

    def close(self) -> None:
        self._result(self._client.close())
        self._loop.close()

    def _made(self, module: ModuleType, address: str) -> Any:
        async def make() -> Any:
            return module.InferenceServerClient(address)

        return (
            self._loop.run_until_complete(make())
            if self.kind.endswith("aio")
            else module.InferenceServerClient(address)
        )

    def _result(self, found: Any) -> Any:
        return self._loop.run_until_complete(found) if inspect.isawaitable(found) else found
