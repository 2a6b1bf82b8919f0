"""Someone else writes to the object store and to Redis: a worker signs and publishes only what the job asked for, made by it or
proven to be that. Real Redis, stages in processes of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler_service.jobs.records import WHOLE_JOB, JobStage, JobState
from shared_ir.errors import ErrorCode, IngotError
from tests.services.by_hand import Platform, Stage
from tests.services.redis_server import redis_server

pytestmark = pytest.mark.services


@pytest.fixture(name="platform")
def fixture_platform(tmp_path: Path, toy_stages: None) -> Iterator[Platform]:
    with redis_server() as url:
        yield Platform(tmp_path, url)


GOOD, EVIL = {"name": "good"}, {"name": "evil"}


def test_an_artifact_copied_to_the_key_of_another_is_compiled_anew(platform: Platform) -> None:
    assert platform.compile("evil", EVIL).state is JobState.SUCCEEDED
    evil = (platform.store / f"artifacts/{platform.key(EVIL)}.json").read_bytes()
    (platform.store / f"artifacts/{platform.key(GOOD)}.json").write_bytes(evil)
    job = platform.compile("good", GOOD)
    assert (job.state, job.cache_hit) == (JobState.SUCCEEDED, False)
    assert platform.parts.repository.open("good").manifest.name == "good"


@pytest.mark.parametrize("folder", ["artifacts", "staged"])
def test_what_is_copied_in_between_two_stages_is_not_published(platform: Platform, folder: str) -> None:
    platform.compile("evil", EVIL)
    evil = (platform.store / f"artifacts/{platform.key(EVIL)}.json").read_bytes()

    def copy(stage: Stage) -> None:
        if stage[0] is {"artifacts": JobStage.PUBLISH, "staged": JobStage.VERIFY}[folder]:
            (platform.store / f"{folder}/{platform.key(GOOD)}.json").write_bytes(evil)

    assert platform.compile("good", GOOD, copy).state is JobState.FAILED
    assert platform.parts.repository.models() == ("evil",)


@pytest.mark.parametrize("stage", [JobStage.VERIFY, JobStage.PUBLISH])
def test_a_job_whose_key_is_changed_in_redis_is_not_published(platform: Platform, stage: JobStage) -> None:
    platform.compile("evil", EVIL)

    def change(before: Stage) -> None:
        if before[0] is stage:
            platform.parts.service.store.redis.hset(f"ingot:job:{before[1]}", "0.artifact_key", platform.key(EVIL))

    job = platform.compile("good", GOOD, change)
    assert job.state is JobState.FAILED
    error = job.error or job.targets[0].error
    assert error is not None
    assert error.code is ErrorCode.INTERNAL, "no fault of the compiler"
    assert platform.parts.repository.models() == ("evil",)


def test_a_model_that_claims_the_key_of_another_is_not_signed(platform: Platform) -> None:
    """What compiles a model may have been taken over by it."""
    job = platform.compile("evil", EVIL | {"key": platform.key(GOOD)})
    assert job.targets[0].error is not None
    assert job.targets[0].error.code is ErrorCode.INTERNAL
    assert "not of what the job asked for" in job.targets[0].error.message
    assert not platform.parts.repository.find_artifact(platform.key(GOOD), staged=True)
    assert not list(platform.store.glob("staged/*"))


@pytest.mark.parametrize("file", ["model.so", "weights.bin", "plan.json", "report.json", "manifest.json"])
def test_a_link_to_the_signing_key_is_not_published(platform: Platform, file: str) -> None:
    job = platform.compile("evil", EVIL | {"link": file, "to": str(platform.home / "signing.pem")})
    assert job.targets[0].error is not None
    assert job.targets[0].error.code is ErrorCode.COMPILER_FAULT
    secret = (platform.home / "signing.pem").read_bytes()
    assert not any(secret in path.read_bytes() for path in platform.store.rglob("*") if path.is_file())


@pytest.mark.parametrize("stage", [JobStage.INGEST, JobStage.BUILD, JobStage.VERIFY])
def test_an_upload_that_was_changed_is_not_compiled(platform: Platform, stage: JobStage) -> None:
    source = platform.upload(GOOD)

    def change(before: Stage) -> None:
        if before[0] is stage:
            (platform.store / "sources" / source.model_sha256).write_bytes(json.dumps(EVIL).encode())

    job = platform.compile("good", GOOD, change)
    assert job.state is JobState.FAILED
    assert job.error is not None
    assert job.error.code is ErrorCode.CHECKSUM_MISMATCH
    assert platform.parts.repository.models() == ()


def test_the_service_itself_refuses_a_label_that_was_put_back(platform: Platform) -> None:
    platform.compile("good", GOOD, labels=("stable",))
    label = platform.store / "models/good/labels/stable.json"
    first = label.read_bytes()
    platform.compile("good", GOOD | {"steps": 3}, labels=("stable",))
    assert platform.parts.repository.resolve("good", "stable").number == 2
    label.write_bytes(first)
    with pytest.raises(IngotError, match="gone back"):
        platform.parts.repository.resolve("good", "stable")


@pytest.mark.parametrize("change", ["name", "source", "seal", "copied"])
def test_an_order_that_was_changed_in_redis_is_not_taken(platform: Platform, change: str) -> None:
    platform.compile("evil", EVIL)
    redis = platform.parts.service.store.redis

    def forge(before: Stage) -> None:
        record = f"ingot:job:{before[1]}"
        order = json.loads(redis.hget(record, "job"))
        match change:
            case "name":
                redis.hset(record, "job", json.dumps(order | {"name": "other"}))
            case "source":
                redis.hset(record, "job", json.dumps(order | {"model_sha256": platform.upload(EVIL).model_sha256}))
            case "seal":
                redis.hdel(record, "seal")
            case "copied":
                other = next(key for key in redis.scan_iter("ingot:job:????????????????") if key != record)
                redis.hset(record, mapping={name: redis.hget(other, name) for name in ("job", "seal")})

    submitted = platform.submit("good", GOOD, labels=("stable",))
    platform.work_off(forge)
    with pytest.raises(IngotError) as caught:
        platform.parts.service.store.get(submitted)
    assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED
    assert platform.parts.service.store.active() == []
    assert platform.parts.repository.models() == ("evil",)


def test_a_job_that_is_run_once_more_does_not_set_its_label_back(platform: Platform) -> None:
    first = platform.compile("good", GOOD, labels=("stable",))
    platform.compile("good", GOOD | {"steps": 3}, labels=("stable",))
    redis = platform.parts.service.store.redis
    redis.hset(f"ingot:job:{first.id}", "state", "RUNNING")
    platform.send(JobStage.PUBLISH, first.id, WHOLE_JOB)
    platform.work_off()
    assert platform.parts.service.store.get(first.id).version == 1
    assert platform.parts.repository.labels("good") == {"stable": 2}
