"""Every line says what it is about, as people or as programs read it."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator

import pytest

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.telemetry import wrapper
from shared_ir.service_kit.telemetry.fields import say, saying
from shared_ir.service_kit.telemetry.log import EXTRA, start_log
from shared_ir.service_kit.telemetry.trace_parent import TraceParent
from shared_ir.service_kit.telemetry.tracing import Tracing, start_tracing

LOGGER = logging.getLogger("ingot.test")


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def written(kind: str | None) -> io.StringIO:
    stream = io.StringIO()
    start_log("compiler-api", {} if kind is None else {"INGOT_LOG_FORMAT": kind}, stream)
    return stream


@pytest.mark.parametrize("kind", ["json", None])
def test_every_line_of_json_has_the_same_fields(kind: str | None) -> None:
    """By default too where nobody looks at a terminal."""
    stream = written(kind)
    LOGGER.info("before")
    with saying(job="j1", user="ci"):
        say(stage="build")
        LOGGER.warning("two\nlines \x1b[2J", extra={EXTRA: {"seconds": 1.5}})
        try:
            raise ValueError("odd")
        except ValueError:
            LOGGER.exception("failed")
    LOGGER.info("after")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["message"] for line in lines] == ["before", "two\nlines \x1b[2J", "failed", "after"]
    assert [line["job"] for line in lines] == ["", "j1", "j1", ""]
    assert (lines[1]["stage"], lines[1]["user"], lines[1]["trace_id"], lines[1]["seconds"]) == ("build", "ci", "", 1.5)
    assert (lines[1]["level"], lines[1]["process"], lines[1]["logger"]) == ("WARNING", "compiler-api", "ingot.test")
    assert "ValueError: odd" in lines[2]["exception"]
    assert "\x1b" not in stream.getvalue()


def test_lines_of_others_have_the_fields_of_ours() -> None:
    stream = written("json")
    LOGGER.info("ours")
    theirs = wrapper.document("E0000 00:00:1790000000.000000    1 ssl.cc:1] theirs", "compiler-api", os.getpid())
    ours = json.loads(stream.getvalue())
    assert list(theirs) == list(ours)
    assert (theirs["process"], theirs["pid"], theirs["level"]) == (ours["process"], ours["pid"], "ERROR")
    assert wrapper.document("I1126 19:30:01.862896 2 a.cc:1] x", "runtime", 1)["level"] == "INFO"
    assert wrapper.document("worker: Warm shutdown", "runtime", 1)["level"] == "WARNING"


def test_people_read_the_same_behind_the_message() -> None:
    stream = written("text")
    with saying(job="j1", trace_id="ab", user="a stage=x"):
        LOGGER.info("so it is \x1b[2J")
    LOGGER.info("no more")
    first, second = stream.getvalue().splitlines()
    assert first.endswith('INFO ingot.test: so it is \\x1b[2J [job=j1 trace_id=ab user="a stage=x"]')
    assert second.endswith("no more")


def test_another_format_is_refused() -> None:
    with pytest.raises(IngotError, match="no such format") as caught:
        start_log("x", {"INGOT_LOG_FORMAT": "xml"}, io.StringIO())
    assert caught.value.field == "INGOT_LOG_FORMAT"


def test_traces_are_those_of_the_caller() -> None:
    given = TraceParent.new()
    assert TraceParent.parse(str(given)) == given
    for text in ("", "00-ab-cd-01", f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'a' * 32}-{'0' * 16}-01", str(given) + "x"):
        assert TraceParent.parse(text) is None
    ids = f"{'a' * 32}-{'1' * 16}"
    for text in (f"00-{ids}-01-", f"00-{ids}-01-more", f"ff-{ids}-01", f"01-{ids}-01more", f"1-{ids}-01", f"01-{ids}"):
        assert TraceParent.parse(text) is None
    for text, flags in ((f"01-{ids}-01-more", "01"), (f"cc-{ids}-ff", "01"), (f"01-{ids}-02-", "00")):
        assert TraceParent.parse(text) == TraceParent("a" * 32, "1" * 16, flags)  # as version 00 says it
    tracing = Tracing()
    assert tracing.here() == ""
    with tracing.span("one", str(given)):
        inner = TraceParent.parse(tracing.here())
        assert inner is not None
        assert inner.trace_id == given.trace_id
        with tracing.span("two"):
            assert tracing.here()[3:35] == given.trace_id
    with tracing.span("three", "nonsense"):
        assert tracing.here()[3:35] != given.trace_id


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
@pytest.mark.parametrize(
    "url", ["nonsense", "collector:4318", "http://", "ftp://h", "http://h:99999", "http://[::", "http://h:x"]
)
def test_where_spans_cannot_be_sent_is_said_at_start(name: str, url: str) -> None:
    with pytest.raises(IngotError) as caught:
        start_tracing("test", {"INGOT_TRACES": "otlp", name: url})
    assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, name)
