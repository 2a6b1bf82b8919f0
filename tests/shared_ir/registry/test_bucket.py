"""The same behind an S3 endpoint: conditional writes, pages, deletion, collection."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shared_ir.artifact.audit import Change
from shared_ir.artifact.repository import Version
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.registry.collection import CollectionTimes, Pins, collect
from shared_ir.registry.deletion import delete_model, delete_version
from shared_ir.registry.pages import models_page, versions_page
from shared_ir.storage.store import open_store
from tests.services.s3_server import s3_server
from tests.shared_ir.registry.conftest import Registry


@pytest.mark.services
def test_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server("registry") as url:
        settings = {"ENDPOINT_URL": url, "ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "REGION": "us-east-1"}
        for name, value in settings.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        registry = Registry(open_store("s3://registry/store", tmp_path))
        keys = registry.publish("m", 3)
        registry.publish("n", 1, ("stable",))

        def publish(number: int) -> Version:
            return registry.again().publish("once", keys, f"job{number}")

        with ThreadPoolExecutor(4) as pool:
            assert {version.number for version in pool.map(publish, range(4))} == {1}

        def move(number: int) -> bool:
            try:
                registry.again().set_label("m", "stable", number, etag="0")
            except IngotError as error:
                return error.code is not ErrorCode.CONFLICT
            return True

        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(move, (1, 2, 3))).count(True) == 1
        repository = registry.again()
        held = repository.labels("m")["stable"]
        assert [model.name for model in models_page(repository, 2).items] == ["m", "n"]
        assert [version.number for version in versions_page(repository, "m", 2).items] == [3, 2]
        gone = next(number for number in (3, 2, 1) if number != held)
        delete_version(repository, "m", gone)
        assert repository.version_numbers("m") == tuple(number for number in (1, 2, 3) if number != gone)
        delete_model(repository, "n", force=True)
        found = collect(repository, Pins, CollectionTimes())
        assert (found.taken, found.unreadable, found.kept > 0) == ([], {}, True)
        changes = [change for change in repository.audit.newest() if isinstance(change, Change)]
        assert [change.action for change in changes[:3]] == ["delete-model", "delete-label", "delete-version"]
