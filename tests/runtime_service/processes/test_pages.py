"""Pages of metrics of several processes become one."""

from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from runtime_service.processes.pages import merged

_PAGE = """# HELP up_total Things, with a brace { in their help.
# TYPE up_total counter
up_total{model="a b}{ c",version="1"} %d
# HELP ready Whether.
# TYPE ready gauge
ready 1
"""


def test_every_sample_says_whose_it_is() -> None:
    found = {f.name: f for f in text_string_to_metric_families(merged({0: _PAGE % 3, 1: _PAGE % 4}))}
    assert [(s.labels, s.value) for s in found["up"].samples] == [
        ({"process": "0", "model": "a b}{ c", "version": "1"}, 3),
        ({"process": "1", "model": "a b}{ c", "version": "1"}, 4),
    ]
    assert [(s.labels, s.value) for s in found["ready"].samples] == [({"process": "0"}, 1), ({"process": "1"}, 1)]


def test_a_family_that_one_process_has_alone_stays() -> None:
    page = merged({0: _PAGE % 1, 3: "# TYPE other gauge\nother{} 2\n"})
    found = {f.name: f for f in text_string_to_metric_families(page)}
    assert [s.labels for s in found["other"].samples] == [{"process": "3"}]
    assert len(found["up"].samples) == 1


def test_open_metrics_has_one_end() -> None:
    page = '# TYPE a counter\na_total 1.0 # {trace_id="x"} 1.0\n# EOF\n'
    joined = merged({0: page, 1: page})
    assert joined.endswith("# EOF\n")
    (family,) = open_metrics(joined)  # type: ignore[no-untyped-call]
    assert [s.labels for s in family.samples] == [{"process": "0"}, {"process": "1"}]
