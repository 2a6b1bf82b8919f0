"""Pages are read by those who read Prometheus' own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as Reference
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families

from shared_ir.service_kit.telemetry.exposition import COUNTER, GAUGE, HISTOGRAM, Exposition, Family, labelled
from shared_ir.service_kit.telemetry.histogram import Histogram

BOUNDS = (0.001, 0.5, 1, 1000.0)
VALUES = (0.0, 0.001, 0.0011, 0.5, 0.75, 1.0, 999.0, 1e6)


def test_labels_of_any_text_are_read_back() -> None:
    text = 'a "b" \\ c\nd } = , é'
    page = Exposition()
    page.numbers(Family("x", GAUGE, ("name",), "help"), [(labelled(name=text, other=""), 1.5)])
    (family,) = text_string_to_metric_families(page.encoded().decode())
    (sample,) = family.samples
    assert (sample.labels, sample.value) == ({"name": text, "other": ""}, 1.5)


def test_a_histogram_is_what_the_client_of_prometheus_makes_of_it() -> None:
    registry = CollectorRegistry()
    reference, own = Reference("x", "help", registry=registry, buckets=BOUNDS), Histogram(BOUNDS)
    for value in VALUES:
        reference.observe(value)
        own.observe(value)
    for is_open, parse in ((False, text_string_to_metric_families), (True, open_families)):
        page = Exposition(is_open)
        page.histograms(Family("x", HISTOGRAM, (), "help"), [("", own)])
        (family,) = parse(page.encoded().decode() + "# EOF\n")
        found = {(s.name, *s.labels.values()): s.value for s in family.samples}
        assert found == {
            (s.name, *s.labels.values()): s.value
            for m in registry.collect()
            for s in m.samples
            if s.name != "x_created"
        }


def test_a_copy_stands_still() -> None:
    histogram = Histogram(BOUNDS)
    histogram.observe(0.75)
    copy = histogram.copy()
    histogram.observe(0.75)
    assert (copy.counts, copy.sum) == ([0, 0, 1, 0, 0], 0.75)


def test_counters_that_end_otherwise_have_no_kind_in_open_metrics() -> None:
    families = [Family(name, COUNTER, (), "help") for name in ("a_total", "nv_b")]
    kinds = {}
    for is_open, parse in ((False, text_string_to_metric_families), (True, open_families)):
        page = Exposition(is_open)
        for family in families:
            page.numbers(family, [("", 3)])
        kinds[is_open] = [(f.name, f.type) for f in parse(page.encoded().decode() + "# EOF\n")]
        assert "\na_total 3\n" in page.encoded().decode()
        assert page.encoded().endswith(b"\nnv_b 3\n")
    assert kinds == {
        False: [("a", "counter"), ("nv_b", "counter")],
        True: [("a", "counter"), ("nv_b", "unknown")],
    }
