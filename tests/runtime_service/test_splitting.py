"""The law of a split by weight: parts as the weights are, the same key to the same version, and no key moves that need not."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http

from runtime_service.splitting import Share, chosen
from tests.runtime_service.toy_models import ToySource, running_server, scale_model, tensor

KEYS = [f"user-{number}" for number in range(20_000)]
SIGMAS = 4.5
"""Of the binomial distribution: one test in some 150,000 would fail by chance, if keys were drawn anew; they are not."""


def split(*weights: int) -> tuple[Share, ...]:
    """Shares ``a``, ``b``, ... of versions 1, 2, ..."""
    return tuple(Share("abcdef"[i], i + 1, weight) for i, weight in enumerate(weights) if weight)


def versions(shares: tuple[Share, ...], model: str = "m") -> list[int]:
    return [chosen(model, shares, key) for key in KEYS]


def within(count: int, part: float, of: int = len(KEYS)) -> bool:
    return abs(count - of * part) <= SIGMAS * math.sqrt(of * part * (1 - part))


@pytest.mark.parametrize("weights", [(95, 5), (1, 1), (999, 1), (50, 30, 20), (1, 2, 3, 4, 5, 6), (100,)])
def test_each_share_gets_the_part_that_its_weight_is(weights: tuple[int, ...]) -> None:
    found = Counter(versions(split(*weights)))
    for number, weight in enumerate(weights, 1):
        assert within(found[number], weight / sum(weights)), (number, found)


@pytest.mark.parametrize("weights", [(95, 5), (1, 1, 2)])
def test_requests_without_a_key_are_drawn_one_by_one(weights: tuple[int, ...]) -> None:
    found = Counter(chosen("m", split(*weights), "") for _ in KEYS)
    for number, weight in enumerate(weights, 1):
        assert within(found[number], weight / sum(weights)), (number, found)


def test_a_key_goes_to_the_same_version_in_every_process() -> None:
    code = (
        "from runtime_service.splitting import Share, chosen\n"
        "shares = (Share('a', 1, 50), Share('b', 2, 50))\n"
        "print(''.join(str(chosen('m', shares, f'user-{n}')) for n in range(200)))"
    )
    elsewhere = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert elsewhere == "".join(map(str, versions(split(50, 50))[:200]))
    assert {"1", "2"} == set(elsewhere)


def test_where_keys_go_stays_so_across_releases() -> None:
    """In a fleet of two releases a user is sent to one version: what is written here may not change."""
    keys = ("user-0", "user-1", "user-2", "日本", "\ud800")
    assert [chosen("m", split(50, 50), key) for key in keys] == [1, 2, 2, 2, 1]


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ((95, 5), (90, 10), 2),
        ((95, 5), (100, 0), 2),
        ((1, 99), (2, 99), 1),
        ((50, 30, 20), (50, 30, 60), 3),
        ((4, 3, 2, 1), (4, 3, 0, 1), 3),
    ],
)
def test_where_a_share_changes_keys_go_to_or_from_it_alone(
    before: tuple[int, ...], after: tuple[int, ...], changed: int
) -> None:
    parts = [weights[changed - 1] / sum(weights) for weights in (before, after)]
    pairs = zip(versions(split(*before)), versions(split(*after)), strict=True)
    moved = [(old, new) for old, new in pairs if old != new]
    assert {new if parts[1] > parts[0] else old for old, new in moved} == {changed}
    assert within(len(moved), abs(parts[1] - parts[0])), (len(moved), parts)


@pytest.mark.parametrize("way", ["parameter over gRPC", "parameter over REST", "head over REST", "head over gRPC"])
def test_a_client_says_its_key(way: str) -> None:
    source = ToySource()
    for version, label in ((1, "stable"), (2, "canary")):
        source.publish("m", version, partial(scale_model, float(version)), label)
    with running_server(source, models="m@stable:1+canary:1") as server:
        module, at = (grpc, "grpc") if "gRPC" in way else (http, "http")
        client = module.InferenceServerClient(server.addresses[at])
        x = tensor(module, "x", np.ones((1, 4), np.float32), "FP32")

        def answer(key: str) -> float:
            said = {"headers": {"ingot-split-key": key}} if "head" in way else {"parameters": {"split_key": key}}
            return float(client.infer("m", [x], **said).as_numpy("y")[0, 0])

        shares = split(1, 1)
        named = tuple(replace(share, term=term) for share, term in zip(shares, ("stable", "canary"), strict=True))
        keys = KEYS[:20]
        found = [answer(key) for key in keys]
        assert found == [float(chosen("m", named, key)) for key in keys]
        assert set(found) == {1.0, 2.0}
        client.close()


def test_a_label_that_moves_takes_its_keys_along() -> None:
    before = (Share("stable", 1, 90), Share("canary", 2, 10))
    after = (Share("stable", 1, 90), Share("canary", 3, 10))
    assert all({1: 1, 2: 3}[x] == y for x, y in zip(versions(before), versions(after), strict=True))


def test_it_is_not_the_same_callers_for_every_model() -> None:
    one, other = (versions(split(50, 50), model) for model in ("m", "n"))
    assert within(sum(x == y for x, y in zip(one, other, strict=True)), 0.5)
