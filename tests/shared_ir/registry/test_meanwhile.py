"""Who reads or changes a model while somebody else changes it sees the model before or after, and never one that was tampered with.

Every operation is stopped after each of its requests to the store in turn; there another one runs to its end. Both share one memory, as the
threads of a server and the processes of a machine do.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shared_ir.artifact.memory import Memory
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.registry.deletion import delete_model, delete_version
from shared_ir.registry.pages import newest_version
from shared_ir.registry.retention import Retention, retain
from shared_ir.storage.local import FileStore
from tests.services.artifacts import toy_artifact
from tests.shared_ir.registry.conftest import Registry

Act = Callable[[ArtifactRepository], Any]
FRESH = f"{99:064x}"
"""The key of artifacts that no version has."""


def publish(repository: ArtifactRepository) -> None:
    repository.put_artifact(toy_artifact("toy", b"fresh", key=FRESH))
    repository.publish("m", [FRESH], "fresh", ("canary",))


CHANGES: dict[str, Act] = {
    "publishes": publish,
    "moves a label": lambda r: r.set_label("m", "stable", 2),
    "deletes the label": lambda r: r.delete_label("m", "stable"),
    "deletes the oldest": lambda r: delete_version(r, "m", 1),
    "deletes the newest": lambda r: delete_version(r, "m", 3),
    "deletes the model": lambda r: delete_model(r, "m", force=True),
    "retains two": lambda r: retain(r, Retention(1), ("m",), by="ann"),
}
READS: dict[str, Act] = {
    "numbers": lambda r: r.version_numbers("m"),
    "oldest": lambda r: r.version("m", 1),
    "versions": lambda r: r.versions("m"),
    "newest": lambda r: newest_version(r, "m"),
    "latest": lambda r: r.resolve("m"),
    "label": lambda r: r.resolve("m", "stable"),
    "all labels": lambda r: _no_faults(r.all_labels("m").faults),
    "finds": lambda r: r.find_version("m", [f"{1:064x}"]),
    "opens": lambda r: r.open("m", 1),
}


def _no_faults(faults: Any) -> None:
    for fault in faults.values():
        raise fault


@dataclass
class Interrupted:
    """A store after whose request number ``at`` somebody else acts."""

    store: FileStore
    at: int
    act: Callable[[], Any]
    requests: int = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if not callable(found):
            return found

        def asked(*arguments: Any) -> Any:
            answer = found(*arguments)
            if isinstance(answer, Iterator):
                answer = iter(list(answer))
            self.requests += 1
            if self.requests == self.at:
                self.act()
            return answer

        return asked


def allowed(act: Act, repository: ArtifactRepository, where: tuple[str, str, int]) -> None:
    """Do it; that something is not there any more, or holds, may be the answer."""
    try:
        act(repository)
    except IngotError as error:
        if error.code not in (ErrorCode.NOT_FOUND, ErrorCode.CONFLICT):
            raise AssertionError(f"{where}: {error}") from error


@pytest.mark.sampled
@pytest.mark.parametrize("kept", [True, False], ids=["processes", "threads"])
@pytest.mark.parametrize("other", CHANGES)
@pytest.mark.parametrize("own", [*READS, *CHANGES])
def test_nobody_is_called_a_forger(registry: Registry, tmp_path: Path, own: str, other: str, kept: bool) -> None:
    registry.publish("m", 3)
    registry.again().set_label("m", "stable", 1)
    for at in range(1, 200):
        where, root = (own, other, at), tmp_path / str(at)
        shutil.copytree(tmp_path / "store", root / "store")
        plain = FileStore(root / "store")
        memories = [Memory(root / "seen.db"), Memory(root / "seen.db")] if kept else [Memory()] * 2
        others = Registry(plain, registry.key).again(memories[1])
        store = Interrupted(plain, at, partial(allowed, CHANGES[other], others, where))
        allowed((READS | CHANGES)[own], Registry(store, registry.key).again(memories[0]), where)
        allowed(lambda r: r.versions("m"), others, where)
        assert not others.all_labels("m").faults, where
        for number in others.labels("m").values():
            others.version("m", number)
        shutil.rmtree(root)
        if store.requests < at:
            return
    pytest.fail("it never ends")
