"""Alerts and dashboard: every expression parses, and names metrics and labels that a live scrape has."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis

from compiler_service.jobs.persistence.counters import Counters
from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.records import TargetRecord
from compiler_service.metrics import make_registry
from shared_ir.errors import ErrorCode, IngotError
from tests.deploy.lint_tools import CHART
from tests.runtime_service.toy_models import ToyModel, ToySource, running_server, scale_model, wait_until
from tests.services.redis_server import redis_server

RULES = yaml.safe_load((CHART / "files/rules.yml").read_text())
DASHBOARD = json.loads((CHART / "files/dashboard.json").read_text())
_METRIC = re.compile(r"\b(?:ingot|process)_\w+")


def rules() -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    """Every PromQL expression, with the dashboard's variables filled in."""
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
    filled = [e.replace("$__rate_interval", "5m").replace("$model", ".*") for e in panels]
    return [rule["expr"] for rule in rules()] + filled


@pytest.fixture(scope="module")
def scraped() -> dict[str, set[str]]:
    """Labels by sample name, from a runtime server and from the compiler service's registry."""
    source = ToySource()
    source.publish("scale", 1, scale_model, "stable")
    source.publish("broken", 1, _broken, "stable")
    with running_server(source, wait=False, models="scale,broken") as server:
        wait_until(lambda: len(server.dataplane.repository_index(ready_only=True)) == 1)
        for data in (b"[1,2,3,4]", b"[1]"):
            body = b'{"inputs":[{"name":"x","shape":[1,%d],"datatype":"FP32","data":%s}]}' % (len(data) // 2, data)
            with suppress(urllib.error.HTTPError):
                urllib.request.urlopen(f"http://{server.addresses['http']}/v2/models/scale/infer", body).close()
        page = urllib.request.urlopen(f"http://{server.addresses['metrics']}/metrics").read().decode()
    return _samples(page) | _samples(_compiler_page())


def _broken() -> ToyModel:
    raise IngotError(ErrorCode.ARTIFACT_CORRUPT, "a byte was flipped")


def _samples(page: str) -> dict[str, set[str]]:
    """Sample names of all families, also of those that have no samples yet."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(page):
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        for suffix in suffixes:
            found.setdefault(family.name + suffix, set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def _compiler_page() -> str:
    with redis_server() as url:
        redis = Redis.from_url(url, decode_responses=True)
        counters = Counters(redis)
        counters.target_finished("FAILED", TargetRecord("host", {}, ""), "INTERNAL")
        counters.cache("hit")
        counters.stage_finished("build", 1.0)
        return generate_latest(make_registry(JobStore(redis, 60), counters)).decode()


@pytest.mark.services
def test_every_metric_and_label_exists(scraped: dict[str, set[str]]) -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    checked = 0
    for expression in expressions():
        for name in set(_METRIC.findall(re.sub(r"\bingot:\w+:\w+", "", expression))):
            assert name in scraped, f"{name} in {expression}"
            checked += 1
        for name, matchers in re.findall(r"(\b(?:ingot|process)_\w+)\{([^}]*)\}", expression):
            for label in re.findall(r"(\w+)\s*[=!]", matchers):
                assert label in scraped[name] | {"instance", "job"}, f"{label} of {name} in {expression}"
        assert set(re.findall(r"\bingot:\w+:\w+", expression)) <= recorded
    assert checked > 30


@pytest.mark.services
def test_grouping_labels_exist(scraped: dict[str, set[str]]) -> None:
    for expression in expressions():
        names = set(_METRIC.findall(re.sub(r"\bingot:\w+:\w+", "", expression)))
        available = set.union(*(scraped[name] for name in names), {"instance", "job"}) if names else None
        for labels in re.findall(r"\bby \(([^)]*)\)", expression):
            for label in re.split(r",\s*", labels):
                assert available is None or label in available, f"{label} in {expression}"


@pytest.mark.slow
def test_every_expression_parses() -> None:
    try:
        import promql_parser
    except ImportError:
        pytest.fail("promql-parser is missing; install the linters: pip install '.[lint]'", pytrace=False)
    for expression in expressions():
        promql_parser.parse(expression)
    with pytest.raises(ValueError, match=r"unclosed|unexpected|unterminated|expected"):
        promql_parser.parse("rate(x[5m]")


def test_alerts_say_what_to_do() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len({rule["alert"] for rule in alerts}) == len(alerts) >= 8
    for rule in alerts:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        grid = panel["gridPos"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken, panel["title"]
        assert grid["x"] + grid["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
