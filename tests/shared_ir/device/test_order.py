"""Orders are what a trusted key signed, field by field; whatever else arrives is refused with a sentence."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_ir.artifact.signature import SigningKey, TrustStore
from shared_ir.artifact.signed import sign_document
from shared_ir.device.order import (
    MOST_ORDER_BYTES,
    ORDER,
    MeasuringOrder,
    OrderedBuffer,
    OrderedLaunch,
    OrderedTrial,
    read_order,
    sign_order,
)
from shared_ir.errors import ErrorCode, IngotError

KEY = SigningKey.generate()
TRUST = TrustStore.of([KEY.public])
DIGESTS = [f"{n:064x}" for n in range(4)]
TRIAL = OrderedTrial(
    (DIGESTS[0], DIGESTS[3]),
    (OrderedLaunch(1, "k0", (0, 1), (64, -1), 8, 4096), OrderedLaunch(0, "k1.body$2", (1,), (), 0, 0)),
    (OrderedBuffer(4096, DIGESTS[1], 3), OrderedBuffer(0, is_result=True)),
)
MEASURED = MeasuringOrder(
    "a-lease_1", "aarch64-linux-gnu", "cortex-a72", ("+neon",), DIGESTS[2], 2.0, 5.5, (TRIAL, TRIAL)
)


def document_of(order: MeasuringOrder = MEASURED) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sign_order(order, KEY))
    found["annotations"] = {}
    return found


def test_an_order_travels_both_ways() -> None:
    assert read_order(sign_order(MEASURED, KEY), TRUST) == MEASURED
    assert MEASURED.digests == (DIGESTS[2], DIGESTS[0], DIGESTS[3], DIGESTS[1])
    assert TRIAL.memory == 3 * 4096 + 4096


def test_orders_of_nobody_who_is_trusted() -> None:
    signed, other = sign_order(MEASURED, KEY), SigningKey.generate()
    unsigned = json.dumps(document_of()).encode()
    as_another = sign_document(document_of() | {"mediaType": "application/vnd.ingot.label.v1+json"}, KEY)
    for data in (
        unsigned,
        sign_order(MEASURED, other),
        signed.replace(b"k0", b"k9"),
        signed.replace(b"a-lease", b"b-lease"),
    ):
        with pytest.raises(IngotError) as caught:
            read_order(data, TRUST)
        assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED
    with pytest.raises(IngotError) as caught:
        read_order(as_another, TRUST)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT, "what was signed for another purpose is no order"
    with pytest.raises(IngotError) as caught:
        read_order(signed, TrustStore.of([]))
    assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED


WRONG = [
    (("lease",), "a lease"),
    (("seconds",), 0),
    (("seconds",), True),
    (("limit",), 1e9),
    (("limit",), 10**400),
    (("runner",), DIGESTS[0].upper().replace("0", "A")),
    (("runner",), "../../bin/sh"),
    (("target",), []),
    (("target", "triple"), "aarch64 linux"),
    (("target", "features"), "+neon"),
    (("trials",), []),
    (("trials",), [json.loads("{}")] * 65),
    (("trials", 0, "libraries"), []),
    (("trials", 0, "libraries", 0), ""),
    (("trials", 0, "launches", 0, "library"), 2),
    (("trials", 0, "launches"), []),
    (("trials", 0, "launches", 0, "symbol"), 'k"; rm -rf'),
    (("trials", 0, "launches", 0, "symbol"), "k" * 256),
    (("trials", 0, "launches", 0, "buffers"), [2]),
    (("trials", 0, "launches", 0, "buffers"), [-1]),
    (("trials", 0, "launches", 0, "symbols"), [1 << 63]),
    (("trials", 0, "launches", 0, "symbols"), [1.0]),
    (("trials", 0, "launches", 0, "tasks"), -1),
    (("trials", 0, "launches", 0, "scratch"), True),
    (("trials", 0, "buffers"), {"0": 1}),
    (("trials", 0, "buffers", 0, "size"), -1),
    (("trials", 0, "buffers", 0, "size"), 1 << 60),
    (("trials", 0, "buffers", 0, "copies"), 0),
    (("trials", 0, "buffers", 0, "content"), None),
    (("trials", 0, "buffers", 0, "is_result"), 1),
]


@pytest.mark.parametrize(("place", "value"), WRONG, ids=lambda own: str(own)[:40])
def test_a_signed_order_with_a_field_out_of_range(place: tuple[Any, ...], value: Any) -> None:
    document = copy.deepcopy(document_of())
    holder: Any = document
    for part in place[:-1]:
        holder = holder[part]
    holder[place[-1]] = value
    with pytest.raises(IngotError) as caught:
        read_order(sign_document(document, KEY), TRUST)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert str(place[-1]) in caught.value.field or caught.value.field.startswith("trials[0]")


@pytest.mark.parametrize("name", [*document_of(), "nothing"])
def test_a_signed_order_without_a_field(name: str) -> None:
    document = document_of()
    document.pop(name, None)
    if name in ("annotations", "mediaType"):
        return  # what a signature needs
    if name == "nothing":
        assert read_order(sign_document(document | {"later": [1]}, KEY), TRUST) == MEASURED, "unknown fields do no harm"
        return
    with pytest.raises(IngotError) as caught:
        read_order(sign_document(document, KEY), TRUST)
    assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, name)


def test_an_order_without_end() -> None:
    many = replace(MEASURED, trials=(replace(TRIAL, buffers=(OrderedBuffer(1),) * 1024),) * 64)
    with pytest.raises(IngotError, match=str(MOST_ORDER_BYTES)):
        read_order(sign_order(many, KEY), TRUST)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(["lease", "target", "runner", "seconds", "limit", "trials"]), value=JSON)
def test_any_signed_json_is_an_order_or_is_refused(name: str, value: Any) -> None:
    data = sign_document(document_of() | {name: value}, KEY)
    try:
        found: MeasuringOrder | ErrorCode = read_order(data, TRUST)
    except IngotError as error:
        found = error.code
    assert isinstance(found, MeasuringOrder) or found is ErrorCode.INVALID_ARGUMENT


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | st.builds(lambda v: json.dumps(v).encode(), JSON))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(IngotError) as caught:
        read_order(data, TRUST)
    assert caught.value.code in (ErrorCode.INVALID_ARGUMENT, ErrorCode.ARTIFACT_UNTRUSTED)


assert ORDER in sign_order(MEASURED, KEY).decode()
