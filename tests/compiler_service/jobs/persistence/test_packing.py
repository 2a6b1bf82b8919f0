"""Finished jobs as Redis keeps them."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_service.jobs.persistence.packing import _COMMON, pack, unpack
from compiler_service.jobs.persistence.packing import MOST_BYTES as LARGEST
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


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[1]", "null", "x", f'{{"job":"{" " * LARGEST}"}}'], ids=lambda text: text[:9]
)
def test_what_is_no_record_is_refused(text: str) -> None:
    """Also a few bytes that become very many: whoever lists jobs would read them."""
    packed = zlib.compressobj(9, zdict=_COMMON)
    with pytest.raises(ValueError, match=r".+"):
        unpack(base64.b85encode(packed.compress(text.encode()) + packed.flush()).decode())


def test_a_known_model_costs_redis_less_than_a_kilobyte(tmp_path: Path) -> None:
    with redis_server() as url:
        process = Installation(tmp_path, url).process()
        process.submit({"name": "m"}, "m", ["x86-64-v3"])
        process.work()
        before, count = process.jobs.redis.info("memory")["used_memory"], 200
        for _ in range(count):
            assert process.submit({"name": "m"}, "m", ["x86-64-v3"]).cache_hit
        assert (process.jobs.redis.info("memory")["used_memory"] - before) / count < MOST_BYTES
