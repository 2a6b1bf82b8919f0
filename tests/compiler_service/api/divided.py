"""An API that holds no signing key and knows callers by their tokens, with two workers that sign for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ingot
from compiler_service.jobs.clerk import Clerk, writes_of
from compiler_service.keys import api_keys
from compiler_service.server import RunningServer, start_server
from compiler_service.settings import CompilerSettings
from compiler_service.wiring import Parts, make_parts
from shared_ir.digest import sha256_hex
from shared_ir.registry.registry import ArtifactRegistry
from shared_ir.service_kit.access.principal import EVERY_SCOPE, Principal, TokenScope
from shared_ir.service_kit.access.token_file import editing
from tests.services.artifacts import toy_artifact
from tests.services.by_hand import Platform
from tests.services.installation import Client
from tests.services.redis_server import redis_server
from tests.services.toy_compiler import STAGE_COMMAND, ToyCompiler


class Nowhere:
    def send(self, stage: Any, job: str, target: int, kind: str = "") -> None:
        """Nothing is compiled."""

    def waiting(self, kinds: Any) -> Any:
        return {}


@dataclass
class Divided:
    """``registry`` is that of a worker; ``api`` are the parts of the server."""

    tokens: Path
    api: Parts
    running: RunningServer
    registry: ArtifactRegistry

    def token(self, user: str, namespace: str = "", *scopes: TokenScope) -> str:
        with editing(self.tokens) as held:
            held[0], token = held[0].with_token(Principal(user, namespace, frozenset(scopes or EVERY_SCOPE)))
        return token

    def client(self, user: str, namespace: str = "", *scopes: TokenScope) -> ingot.Client:
        return ingot.Client(f"127.0.0.1:{self.running.port}", token=self.token(user, namespace, *scopes))

    def plain(self, user: str, namespace: str = "", *scopes: TokenScope) -> Client:
        head = (("authorization", f"Bearer {self.token(user, namespace, *scopes)}"),)
        return Client(f"127.0.0.1:{self.running.port}", head)

    def publish(self, name: str, count: int, by: str = "") -> None:
        for number in range(count):
            key = sha256_hex(f"{name} {number}".encode())
            self.registry.put_artifact(toy_artifact("toy", key=key))
            self.registry.publish(name, [key], f"job{number}", by=by)


def clerk_of(worker: Parts) -> Clerk:
    redis, registry = worker.service.store.redis, worker.repository
    return Clerk(redis, registry.store, worker.keys.order_trust, writes_of(registry), worker.signer.key_id)


@contextmanager
def divided(home: Path) -> Iterator[Divided]:
    with redis_server() as url:
        workers = [Platform(home / "worker", url).parts for _ in range(2)]
        settings = CompilerSettings(
            redis_url=url,
            home=home / "api",
            store_url=(home / "worker" / "store").as_uri(),
            trust=str(home / "worker" / "trust"),
            api_tokens=str(home / "tokens.json"),
            compiler_port=0,
            compiler_metrics_port=0,
            drain_seconds=1.0,
        )
        with editing(home / "tokens.json"):
            pass
        api = make_parts(settings, ToyCompiler(), Nowhere(), STAGE_COMMAND, api_keys(settings))
        stopping = threading.Event()
        threads = [clerk_of(own).start(stopping) for own in workers]
        running = start_server(settings, ToyCompiler(), api)
        yield Divided(home / "tokens.json", api, running, workers[0].repository)
        running.stop(0)
        stopping.set()
        for thread in threads:
            thread.join()
