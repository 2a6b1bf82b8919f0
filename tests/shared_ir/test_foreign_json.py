"""JSON that somebody else wrote."""

from __future__ import annotations

import json

import pytest

from shared_ir.digest import canonical_json
from shared_ir.foreign_json import foreign_json

BAD = {
    "nothing": b"",
    "no JSON": b"{",
    "no text": b"\xff\xfe[",
    "deep array": b"[" * 100_000,
    "deep object": b'{"a":' * 100_000,
    "NaN": b"[NaN]",
    "infinity": b"-Infinity",
    "number without end": b'{"a":1e999}',
    "whole number without end": b"1" * 100_000,
    "half of a pair": b'["\\ud800"]',
    "half of a pair, written large": b'{"\\uDFFF":1}',
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_whatever_is_wrong_is_one_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        foreign_json(data)
    if data.isascii():
        with pytest.raises(ValueError, match=r".+"):
            foreign_json(data.decode())


@pytest.mark.parametrize(
    "value", [None, [1, -2.5e300, "\u00e4 \U0001f600 \\ud800"], {"a": {"b": [True]}, "": 0.0}, 2**63, "\\"]
)
def test_everything_else_is_read_as_it_was_written(value: object) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False), json.dumps(value).encode()):
        assert foreign_json(text) == value
        assert canonical_json(foreign_json(text)) == canonical_json(value)
