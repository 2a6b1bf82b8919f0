"""The command of who runs the service, beside a real Redis: what it tells, what it does, and that it keeps what jobs need."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from compiler_service.housekeeping import main, open_repository, parser
from compiler_service.jobs.orders import Orders
from compiler_service.jobs.persistence.seal import Seal
from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.records import JobRecord, TargetRecord, UploadedModel
from compiler_service.keys import api_keys
from compiler_service.settings import CompilerSettings
from shared_ir.artifact.repository import ArtifactRepository
from tests.services.artifacts import toy_artifact
from tests.services.redis_server import redis_server

pytestmark = pytest.mark.services
KEYS = [f"{number:02x}" * 32 for number in range(4)]


@pytest.fixture(name="redis_url", scope="module")
def fixture_redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture(name="repository")
def fixture_repository(tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> ArtifactRepository:
    for name in [name for name in os.environ if name.startswith("INGOT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("INGOT_HOME", str(tmp_path))
    monkeypatch.setenv("INGOT_REDIS_URL", redis_url)
    repository = open_repository(CompilerSettings.from_environment())
    for key in KEYS:
        repository.put_artifact(toy_artifact("toy", key.encode(), key=key))
    for key in KEYS[:3]:
        repository.publish("m", [key])
    return repository


def age(home: Path, days: float) -> None:
    for path in (home / "store").rglob("*"):
        if path.is_file():
            moment = path.stat().st_mtime - days * 24 * 3600
            os.utime(path, (moment, moment))


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_versions_that_no_rule_keeps_are_deleted(
    repository: ArtifactRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.set_label("m", "stable", 1)
    expected = [{"name": "m", "deleted": [2], "left": []}]
    assert told(capsys, "retain", "--keep-last", "1", "--dry-run") == expected
    assert told(capsys, "retain", "--keep-last", "1", "--keep-days", "1") == []
    assert told(capsys, "retain", "--keep-last", "1") == expected
    assert repository.version_numbers("m") == (1, 3)
    assert main(["retain", "--keep-last", "0"]) == 1
    assert "keep nothing" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e-7"])
def test_times_that_are_none_are_refused(
    text: str, repository: ArtifactRepository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every option that takes a time."""
    age(tmp_path, 60)
    before = sorted((tmp_path / "store").rglob("*"))
    nested = next(action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    times = [
        (name, a.option_strings[0]) for name, own in nested.choices.items() for a in own._actions if a.type is float
    ]
    assert len(times) == 4
    for command, option in times:
        if option == "--keep-days" and text == "1e-7":
            continue
        needed = ["--keep-last", "1"] if command == "retain" else []
        assert main([command, *needed, option, text]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert option.split("-")[-2] in line
    assert sorted((tmp_path / "store").rglob("*")) == before


def test_a_model_that_is_not_there_is_named(repository: ArtifactRepository, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["retain", "--keep-last", "1", "m", "nosuch"]) == 1
    assert "no model 'nosuch'" in capsys.readouterr().err
    assert repository.version_numbers("m") == (1, 2, 3)


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        ("retain", 2, "the following arguments are required: --keep-last"),
        ("retain --keep-last many", 2, "argument --keep-last: invalid int value: 'many'"),
        ("sweep", 2, "invalid choice: 'sweep'"),
        ("", 2, "COMMAND"),
        ("collect --dry", 2, "unrecognized arguments: --dry"),
        ("retain --keep-last 0", 1, "keep nothing"),
        ("retain --keep-last 1 nosuch", 1, "no model 'nosuch'"),
        ("collect --grace-hours 0", 1, "grace"),
    ],
)
def test_errors_are_one_line_and_json_for_programs(
    words: str, status: int, told: str, repository: ArtifactRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words.split(), "--json"]) == status
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert told in json.loads(line)["error"]["message"] or told in json.loads(line)["error"]["field"]
    assert printed.out == ""
    assert main(words.split()) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


@pytest.mark.parametrize("command", ["collect", "index"])
def test_nothing_is_begun_where_there_is_no_store(
    command: str,
    repository: ArtifactRepository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("INGOT_STORE_URL", (tmp_path / "stroe").as_uri())
    assert main([command, "--json"]) == 1
    assert json.loads(capsys.readouterr().err)["error"]["field"] == "INGOT_STORE_URL"
    assert not (tmp_path / "stroe").exists()
    assert len(repository.versions("m")) == 3


def test_what_a_job_needs_stays(
    repository: ArtifactRepository, tmp_path: Path, redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = TargetRecord("host", {}, KEYS[3])
    record = JobRecord("job1", "n", UploadedModel("ab" * 32), {}, (target,), time.time())
    redis = Redis.from_url(redis_url, decode_responses=True)
    jobs = JobStore(redis, 100, Seal(repository.signer, repository.trust))
    jobs.create(record)
    age(tmp_path, 60)
    assert told(capsys, "collect")["taken"] == []
    orders = Orders(repository.store)
    orders.open(record.id, jobs.seal(record))
    redis.flushall()  # Redis has lost its data: the order still stands
    age(tmp_path, 60)
    assert told(capsys, "collect")["taken"] == []
    orders.close(record.id, {})
    age(tmp_path, 60)
    rehearsed = told(capsys, "collect", "--dry-run")
    assert rehearsed["taken"] == [f"artifacts/{KEYS[3]}.json"]
    assert repository.find_artifact(KEYS[3]) is not None  # which makes it one that is used
    age(tmp_path, 60)
    found = told(capsys, "collect")
    assert (found["taken"], found["generation"]) == (rehearsed["taken"], 3)
    assert main(["collect"]) == 0
    assert "blobs not needed that stay" in capsys.readouterr().out


def test_what_a_job_of_an_api_without_a_signing_key_needs_stays(
    repository: ArtifactRepository, tmp_path: Path, redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The order key has sealed it, and its files are those of a namespace."""
    keys, digest = api_keys(CompilerSettings(home=tmp_path)), "ab" * 32
    assert keys.signer is None
    record = JobRecord(
        "job2", "vision.n", UploadedModel(digest, {}, "vision"), {}, (TargetRecord("host", {}, KEYS[3]),), time.time()
    )
    redis = Redis.from_url(redis_url, decode_responses=True)
    redis.flushall()
    jobs = JobStore(redis, 100, Seal(keys.sealer, keys.order_trust))
    jobs.create(record)
    files = [f"sources/{digest}", f"sources/speech/{digest}", f"sources/vision/{digest}"]
    for file in files:
        repository.store.put(file, b"model")
    age(tmp_path, 60)
    assert told(capsys, "collect", "--keep-sources-days", "30")["taken"] == files[:2]
    redis.flushall()
    age(tmp_path, 60)
    taken = told(capsys, "collect", "--keep-sources-days", "30")["taken"]
    assert taken == [f"artifacts/{KEYS[3]}.json", files[2]]


def test_nothing_is_taken_while_redis_is_away(
    repository: ArtifactRepository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    age(tmp_path, 60)
    monkeypatch.setenv("INGOT_REDIS_URL", "redis://127.0.0.1:1/0")
    assert main(["collect"]) == 1
    assert "nothing is collected" in capsys.readouterr().err
    assert (tmp_path / f"store/artifacts/{KEYS[3]}.json").exists()


def test_the_store_as_a_layout_of_others(repository: ArtifactRepository, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "index")
    tags = json.loads(repository.store.get("index.json"))["manifests"]
    assert [tag["annotations"]["org.opencontainers.image.ref.name"] for tag in tags] == ["m/1", "m/2", "m/3"]
