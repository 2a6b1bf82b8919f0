"""An API whose store was spoiled, set back or taken away, as its clients see it. The worker has a home of its own."""

from __future__ import annotations

import shutil
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ingot
from compiler_service.settings import CompilerSettings
from compiler_service.wiring import Parts, make_parts
from ingot.cli.main import main
from shared_ir.artifact.published import blob_key
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.api.divided import Divided, Nowhere, divided
from tests.services.installation import wait_until
from tests.services.redis_server import redis_server
from tests.services.toy_compiler import STAGE_COMMAND, ToyCompiler

pytestmark = pytest.mark.services


@pytest.fixture(name="home")
def fixture_home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture(name="scene")
def fixture_scene(home: Path) -> Iterator[Divided]:
    with divided(home) as scene:
        yield scene


@pytest.fixture(name="ann")
def fixture_ann(scene: Divided) -> Iterator[ingot.Client]:
    with scene.client("ann") as client:
        yield client


def refusal(call: Callable[[], object]) -> IngotError:
    with pytest.raises(IngotError) as raised:
        call()
    return raised.value


def metrics(scene: Divided) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{scene.running.metrics_port}/metrics") as answer:
        text: str = answer.read().decode()
    return text


def test_a_blob_that_was_spoiled_in_the_store_is_the_matter_of_the_store(
    scene: Divided, ann: ingot.Client, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene.publish("a", 1)
    version = scene.registry.version("a", 1)
    blobs = scene.registry.proven.blobs_of(version.index, scene.registry.proven.blob(version.index))
    for turn, spoiled in enumerate(blobs):
        path = home / "worker" / "store" / blob_key(spoiled.digest)
        data = path.read_bytes()
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        caplog.clear()
        error = refusal(lambda turn=turn: ann.download("a", home / f"out{turn}"))  # type: ignore[misc]
        path.write_bytes(data)
        assert error.code is ErrorCode.ARTIFACT_CORRUPT, spoiled.media_type
        assert "compile it again" in error.remedy
        assert spoiled.digest in f"{error.expected}{caplog.text}".replace("blobs/sha256/", "sha256:")
    counted = f'ingot_compiler_calls_total{{code="DATA_LOSS",method="DownloadArtifact"}} {len(blobs)}.0'
    wait_until(lambda: counted in metrics(scene))
    assert ann.download("a", home / "whole") == "1"


def test_what_the_api_had_a_worker_delete_does_not_come_back(scene: Divided, ann: ingot.Client, home: Path) -> None:
    for name in ("one", "all"):
        scene.publish(name, 4)
        folder = home / "worker" / "store" / "models" / name
        shutil.copytree(folder, home / name)
        if name == "one":
            ann.delete_version(name, 4)
        else:
            ann.delete_model(name)
        shutil.rmtree(folder)
        shutil.copytree(home / name, folder)
    assert [version.version for version in ann.versions("one")] == [1, 2, 3]
    for name in ("one", "all"):
        error = refusal(lambda name=name: ann.download(name, home / "out", 4))  # type: ignore[misc]
        assert error.code is ErrorCode.ARTIFACT_UNTRUSTED
        assert "was deleted" in str(error)
    assert refusal(lambda: ann.versions("all")).code is ErrorCode.ARTIFACT_UNTRUSTED
    assert {model.name: model.error and model.error.code for model in ann.models()} == {
        "all": ErrorCode.ARTIFACT_UNTRUSTED,
        "one": None,
    }


def test_a_revoked_key_is_said_and_not_that_there_is_no_model(
    scene: Divided, ann: ingot.Client, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.publish("a", 2)
    for path in (home / "worker" / "trust").glob("*.pub"):
        path.unlink()
    error = refusal(lambda: ann.model("a"))
    assert (error.code, "compile the model again" in error.remedy) == (ErrorCode.ARTIFACT_UNTRUSTED, True)
    (model,) = ann.models()
    assert model.error is not None
    assert (model.name, model.latest_version, model.error.code) == ("a", 0, ErrorCode.ARTIFACT_UNTRUSTED)
    (home / "worker" / "trust" / "junk.pub").write_text("junk")
    assert len(ann.models()) == 1
    assert main(["models", "--address", ann.address, "--token", scene.token("bob")]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1].split() == ["a", "?"]
    assert "a: the artifact is signed by a key that is not trusted here" in shown.err


def test_a_store_that_was_taken_away_is_away(scene: Divided, ann: ingot.Client, home: Path) -> None:
    scene.publish("a", 1)
    assert ann.model("a").latest_version == 1
    store = home / "worker" / "store"
    store.rename(home / "elsewhere")
    calls: dict[str, Callable[[], object]] = {
        "models": ann.models,
        "model": lambda: ann.model("a"),
        "events": ann.events,
        "download": lambda: ann.download("a", home / "out"),
    }
    for left in ("nothing", "an empty folder"):
        for what, call in calls.items():
            assert refusal(call).code is ErrorCode.UNAVAILABLE, (what, left)
        store.mkdir(exist_ok=True)
    wait_until(lambda: 'ingot_compiler_up{what="store"} 0.0' in metrics(scene), 30)
    assert not list(store.iterdir())
    store.rmdir()
    (home / "elsewhere").rename(store)
    wait_until(lambda: 'ingot_compiler_up{what="store"} 1.0' in metrics(scene), 30)
    assert ann.model("a").latest_version == 1


def test_a_service_with_a_new_home_knows_from_redis_that_its_store_is_away(tmp_path: Path) -> None:
    with redis_server() as url:
        settings = CompilerSettings(redis_url=url, home=tmp_path / "home", store_url=(tmp_path / "store").as_uri())

        def started() -> Parts:
            return make_parts(settings, ToyCompiler(), Nowhere(), STAGE_COMMAND)

        started().repository.store.put("models/a", b"a")
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        shutil.rmtree(tmp_path / "home")
        error = refusal(lambda: started().repository.store.put("models/b", b"b"))
        assert error.code is ErrorCode.UNAVAILABLE
        assert not (tmp_path / "store").exists()
        (tmp_path / "elsewhere").rename(tmp_path / "store")
        assert started().repository.store.get("models/a") == b"a"
