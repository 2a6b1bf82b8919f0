"""The same services against a real ``redis-server`` and an S3 endpoint instead of the embedded ones, and with a token."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ingot
from shared_ir.errors import ErrorCode
from tests.e2e.platform_process import PlatformProcess, wait_until
from tests.ingot.small_models import scale
from tests.services.redis_server import redis_server
from tests.services.s3_server import s3_server

pytestmark = pytest.mark.services


@pytest.fixture
def s3() -> Iterator[str]:
    """URL of an endpoint with an empty bucket ``models``."""
    with s3_server("models") as url:
        yield url


def test_redis_server_and_s3(tmp_path: Path, s3: str) -> None:
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("redis-server is not installed (Debian package redis-server)")
    with redis_server(binary) as redis_url:
        platform = PlatformProcess(
            tmp_path / "home",
            INGOT_REDIS_URL=redis_url,
            INGOT_STORE_URL="s3://models/ingot",
            INGOT_CACHE_DIR=str(tmp_path / "cache"),
            AWS_ENDPOINT_URL=s3,
            AWS_ACCESS_KEY_ID="test",
            AWS_SECRET_ACCESS_KEY="test",
            AWS_REGION="us-east-1",
        )
        try:
            compile_and_infer(platform)
            assert not (platform.home / "store").exists()
            assert not (platform.home / "logs" / "redis.log").exists()
            assert platform.stop() == 0
        finally:
            platform.kill()


def compile_and_infer(platform: PlatformProcess) -> None:
    with platform.client() as client:
        job = client.wait(client.compile(scale(), "scale", labels=["stable"]).id)
        assert job.error is None, platform.logs()
        assert client.compile(scale(), "scale").cache_hit
    endpoint = ingot.Endpoint(platform.addresses.grpc)

    def answers() -> bool:
        try:
            answer = endpoint.infer("scale", {"x": np.ones((1, 4), np.float32)})["y"]
            return bool(answer.tolist() == [[2.0] * 4])
        except ingot.IngotError:
            return False

    wait_until(answers)
    endpoint.close()


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    platform = PlatformProcess(tmp_path, INGOT_TOKEN="open sesame")
    try:
        for token, opens in (("", False), ("wrong", False), ("open sesame", True)):
            with ingot.Client(platform.addresses.compiler, token=token) as client:
                if opens:
                    assert client.models() == ()
                    continue
                with pytest.raises(ingot.IngotError) as caught:
                    client.models()
                assert caught.value.code is ErrorCode.UNAUTHENTICATED
                assert "INGOT_TOKEN" in caught.value.remedy
        assert platform.command("models").returncode == 0  # the command finds it in the environment
        assert platform.command("models", "--token", "wrong").returncode == 1
        assert platform.stop() == 0
    finally:
        platform.kill()
