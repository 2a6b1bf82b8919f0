"""Finished jobs as Redis keeps them."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from compiler_service.jobs.packing import pack, unpack
from tests.compiler_service.jobs.mortal import Installation
from tests.services.redis_server import redis_server

MOST_BYTES = 1024


@given(st.dictionaries(st.text(), st.text(), max_size=30))
def test_what_is_packed_comes_back(fields: dict[str, str]) -> None:
    assert unpack(pack(fields)) == fields


def test_what_yesterday_packed_is_read() -> None:
    packed = (Path(__file__).parent / "packed.json").read_text()
    for fields, text in json.loads(packed):
        assert unpack(text) == fields


def test_a_known_model_costs_redis_less_than_a_kilobyte(tmp_path: Path) -> None:
    with redis_server() as url:
        process = Installation(tmp_path, url).process()
        process.submit({"name": "m"}, "m", ["x86-64-v3"])
        process.work()
        before, count = process.jobs.redis.info("memory")["used_memory"], 200
        for _ in range(count):
            assert process.submit({"name": "m"}, "m", ["x86-64-v3"]).cache_hit
        assert (process.jobs.redis.info("memory")["used_memory"] - before) / count < MOST_BYTES
