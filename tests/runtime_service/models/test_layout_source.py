"""A model that somebody lays into a folder: whenever it comes, under the name that the server was given, signed or not at all."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from runtime_service.executors.resources import Resources
from runtime_service.models.layout import LayoutSource
from runtime_service.server import version_source
from runtime_service.settings import RuntimeSettings
from shared_ir.artifact.layout import OpenedArtifact, save_version
from shared_ir.artifact.signature import SigningKey, TrustFolder, local_keys
from shared_ir.errors import ErrorCode, IngotError
from tests.runtime_service.models.test_follower import Service
from tests.runtime_service.toy_models import ToyModel, scale_model
from tests.services.artifacts import toy_artifact


class Laid:
    """A folder that gets versions of a model which multiplies by the first byte of its weights, or by 3 where it has none."""

    def __init__(self, home: Path) -> None:
        self.key, _ = local_keys(home)
        self.trust = TrustFolder(home / "trust")
        self.directory = home / "mnt" / "models"

    def add(self, tag: str, weights: bytes, name: str = "toy", key: SigningKey | None = None) -> None:
        artifact = toy_artifact(name, weights, key=hashlib.sha256(weights).hexdigest(), features=(), cpu="x86-64")
        save_version(self.directory, tag, [artifact], key or self.key)

    def source(self) -> LayoutSource:
        return LayoutSource(self.directory, self.trust, self._load)

    def _load(self, opened: OpenedArtifact, instances: int, resources: Resources) -> tuple[ToyModel, ...]:
        factor = float(bytes(opened.weights)[0]) if opened.weights else 3.0
        return tuple(scale_model(factor) for _ in range(instances))


@pytest.fixture
def laid(tmp_path: Path) -> Laid:
    return Laid(tmp_path)


def test_it_is_served_under_another_name_once_it_is_there(laid: Laid) -> None:
    service = Service(laid.source(), models="service@latest")
    service.follower.reconcile()
    assert "no model is in the layout yet" in service.dataplane.repository_index()[0].reason
    laid.add("latest", b"\x02" * 64)
    service.follower.reconcile()
    assert service.infer("service") == (2.0, "1")
    service.follower.close()


def test_numbers_are_those_of_its_versions(laid: Laid) -> None:
    laid.add("4", b"\x04" * 64)
    laid.add("7", b"\x07" * 64)
    laid.add("latest", b"\x09" * 64)  # has no number, and is not the only one
    service = Service(laid.source(), models="toy@latest+4")
    service.follower.reconcile()
    assert service.infer("toy") == (7.0, "7")
    assert service.infer("toy", "4") == (4.0, "4")
    assert laid.source().changes(None) == {"toy"}
    service.follower.close()


def test_every_model_of_a_layout_is_the_one_that_is_there(laid: Laid) -> None:
    laid.add("latest", b"\x02" * 64)
    service = Service(laid.source(), models="*@latest")
    service.follower.reconcile()
    assert service.infer("toy") == (2.0, "1")
    service.follower.close()


def test_two_models_are_not_told_apart(laid: Laid) -> None:
    laid.add("1", b"\x02" * 64)
    laid.add("2", b"\x02" * 64, name="other")
    with pytest.raises(IngotError, match="not one model in the layout") as caught:
        laid.source().catalogue("toy")
    assert caught.value.received == "other, toy"


def test_the_folder_may_be_a_link_and_what_is_empty_may_be_left_out(laid: Laid, tmp_path: Path) -> None:
    laid.add("latest", b"")
    car = tmp_path / "car"
    shutil.move(laid.directory, car)
    laid.directory.symlink_to(car)
    empty = [blob for blob in car.rglob("*") if blob.is_file() and not blob.stat().st_size]
    assert len(empty) == 1
    empty[0].unlink()
    service = Service(laid.source(), models="toy@latest")
    service.follower.reconcile()
    assert service.infer("toy") == (3.0, "1")
    service.follower.close()


def test_an_unknown_signer_or_a_changed_blob_is_not_loaded_and_a_revoked_one_is_unloaded(laid: Laid) -> None:
    laid.add("latest", b"\x02" * 64, key=SigningKey.generate())
    service = Service(laid.source(), models="toy@latest")
    service.follower.reconcile()
    assert "signed" in service.dataplane.repository_index()[0].reason
    laid.add("latest", b"\x05" * 64)
    (blob,) = (b for b in laid.directory.rglob("*") if b.is_file() and b.read_bytes() == b"\x05" * 64)
    blob.write_bytes(b"\x06" * 64)
    with pytest.raises(IngotError) as caught:
        laid.source().load("toy", 1, 1, Resources(1))
    assert caught.value.code is ErrorCode.ARTIFACT_CORRUPT
    blob.write_bytes(b"\x05" * 64)
    service.follower.reconcile()
    assert service.infer("toy") == (5.0, "1")
    for public in laid.trust.directory.glob("*.pub"):
        public.unlink()
    service.follower.reconcile()
    with pytest.raises(IngotError):
        service.infer("toy")


def test_keys_that_are_away_for_a_moment_unload_nothing(laid: Laid, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who replaces the folder leaves a moment without it; so does who writes a key anew."""
    laid.add("latest", b"\x05" * 64)
    service = Service(laid.source(), models="toy@latest")
    service.follower.reconcile()
    keys, beside = laid.trust.directory, laid.trust.directory.with_name("beside")
    keys.rename(beside)
    monkeypatch.setattr(service.follower._stop, "wait", lambda seconds: beside.rename(keys) and False)
    service.follower.reconcile()
    assert service.infer("toy") == (5.0, "1")
    monkeypatch.undo()
    keys.rename(beside)
    service.follower.reconcile()
    with pytest.raises(IngotError):
        service.infer("toy")


def test_settings_say_which_of_both_it_is(tmp_path: Path) -> None:
    local_keys(tmp_path)
    found = version_source(RuntimeSettings(home=tmp_path, layout=str(tmp_path / "models")))
    assert isinstance(found, LayoutSource)
    with pytest.raises(IngotError, match="INGOT_RUNTIME_LAYOUT"):
        RuntimeSettings.from_environment({"INGOT_RUNTIME_LAYOUT": "/a", "INGOT_STORE_URL": "/b"})
