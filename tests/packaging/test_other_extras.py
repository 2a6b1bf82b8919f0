"""The extras of those who look at the project or work on it: what belongs to each is there when it is installed alone."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.house.test_imports import ROOT, name_of
from tests.packaging.clean_environment import CleanEnvironment
from tests.packaging.extras import importable, owner, project, sources
from tests.packaging.test_base import IMPORT_ALL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CHECKOUT = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
Install = Callable[[str], CleanEnvironment]


def test_demo(install: Install) -> None:
    demo = install("demo")
    demo.check("python", "-c", IMPORT_ALL, json.dumps(importable("demo")))
    example = demo.run("python", ROOT / "examples" / "serve_with_triton.py")
    assert "ModuleNotFoundError" not in example.stderr


def test_bench(install: Install) -> None:
    names = [name_of(path) for path in sources() if owner(name_of(path)) == "bench"]
    code = "import importlib, json, sys\nfor name in json.loads(sys.argv[1]): importlib.import_module(name)"
    bench = install("bench")
    bench.check("python", "-c", code, json.dumps(names), more=CHECKOUT)
    assert "--models" in bench.check("python", "-m", "bench.peers", "--help", more=CHECKOUT)


@pytest.mark.long  # whoever runs the default run has installed it
def test_test(install: Install) -> None:
    """Every test can be imported; so can what generates the stubs."""
    test = install("test")
    options = ("--collect-only", "-q", "-p", "no:cacheprovider", "--rootdir", ROOT, "-c", ROOT / "pyproject.toml")
    output = test.check("python", "-m", "pytest", *options, ROOT / "tests", more=CHECKOUT)
    assert "error" not in output.splitlines()[-1]
    test.check("python", "-c", "import grpc_tools.protoc, mypy.api, ruff")


def test_telemetry(install: Install) -> None:
    """Spans of whatever it is installed beside: the base alone here."""
    code = "import opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.http.trace_exporter"
    install("telemetry").check("python", "-c", code)


def test_tune(install: Install) -> None:
    """What ranks candidates, and what draws."""
    modules = "import pathlib, ingot.tuning_plot as p, compiler_service.compiler.tune.cost.ranking as r"
    code = f"{modules}; p.require_plots(pathlib.Path('plot.png')); print(r.Ranking(1.0).why_not)"
    assert install("tune").check("python", "-c", code).strip() == ""


def test_lint(install: Install) -> None:
    lint = install("lint")
    for program in ("hadolint", "check-jsonschema", "kubernetes-validate"):
        assert lint.check(program, "--version")
    lint.check("python", "-c", "import promql_parser")


def test_no_extra_is_forgotten() -> None:
    tried = {"runtime", "compiler", "embedded", "telemetry", "tune", "demo", "bench", "test", "lint"}
    tried |= {"exports"}  # `make exports` installs it, with gigabytes that come along, and runs what belongs to it
    assert set(project()["optional-dependencies"]) == tried
