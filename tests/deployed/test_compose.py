"""Compose as it is shipped, but for Docker: roots made by the lines of the Dockerfile, the services of the file with their
users, variables, mounts, limits and health checks, a real Redis, an S3 endpoint. A model goes all the way, also when Redis
starts again and the store fails meanwhile."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from shared_ir.versions import VERSION
from tests.deployed.client import Array, Client
from tests.deployed.compose import Compose, services
from tests.deployed.containers import Network, may_be_made
from tests.deployed.dockerfile import image
from tests.deployed.locks import debian_python, pinned
from tests.deployed.roots import Roots
from tests.ingot.small_models import classifier, expected_scores, scale
from tests.packaging.extras import importable, normal
from tests.packaging.test_base import IMPORT_ALL

pytestmark = [
    pytest.mark.slow,
    pytest.mark.services,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not may_be_made(), reason="only root may make the namespaces that stand for containers"),
]
FAULT_SECONDS = 8.0
LOCKS = {"compiler-api": "compiler", "compiler-worker": "compiler", "runtime": "runtime"}
"""The extra that each image holds."""
X = np.arange(12, dtype=np.float32).reshape(3, 4)
IMAGE = np.random.default_rng(3).random((2, 3, 16, 16), np.float32)
LEFT_OUT = """
import importlib.util, os, shutil, sys
for name in sys.argv[1:]: assert importlib.util.find_spec(name) is None, name
folder = os.path.dirname(sys.executable)
assert not [name for name in os.listdir(folder) if name.startswith(("pip", "easy_install", "wheel"))]
for name in ("cc", "gcc", "g++", "clang", "ld"): assert shutil.which(name, path=folder) is None, name
"""
TRACES = "from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter"
WRITES = """
import os, sys
for name in sys.argv[1:]:
    try: open(os.path.join(name, "written"), "w").close()
    except OSError as error: print(name, error.strerror)
"""


@pytest.fixture
def compose() -> Iterator[Compose]:
    with tempfile.TemporaryDirectory(prefix="ingot-compose-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for inner in ("roots", "work"):
            (folder / inner).mkdir()
        with Network.make(folder, tuple(services())) as network:
            yield Compose(Roots(folder / "roots"), network, folder)


def test_what_is_shipped_compiles_publishes_and_serves(compose: Compose) -> None:
    compose.up()
    for name in LOCKS:
        holds_what_it_needs_alone(compose, name)
        is_confined(compose, name)
    bills_name_every_package(compose)
    client = Client(compose.roots, compose.network, compose.folder / "work")
    publish(client, "plain", scale())
    serves(compose, client, "plain", {"x": X}, {"y": X * 2})
    publish_with_faults(compose, client, "faults", classifier())
    serves(compose, client, "faults", {"image": IMAGE}, {"scores": expected_scores(classifier(), IMAGE)})
    assert "generation 1: 0 objects" in compose.run_once("housekeeping")
    for name, running in compose.running.items():
        grace = services()[name].get("stop_grace_period", "10s")
        assert running.stop(float(grace.removesuffix("s"))) == 0, running.log.read_text()


def holds_what_it_needs_alone(compose: Compose, name: str) -> None:
    extra = LOCKS[name]
    foreign = ["pip", "setuptools", "wheel", "cyclonedx_py"] + (["llvmlite", "ziglang"] if extra == "runtime" else [])
    for code, arguments in ((IMPORT_ALL, [json.dumps(importable(extra))]), (LEFT_OUT, foreign), (TRACES, [])):
        done = compose.running[name].run("python", "-c", code, *arguments, seconds=300)
        assert done.returncode == 0, f"{name}: {done.stderr}"


def bills_name_every_package(compose: Compose) -> None:
    """The SBOM of each environment lists what its lock does for this Python, and this project as what they are for."""
    for lock in ("runtime", "compiler"):
        bill = json.loads((compose.roots.of("sbom") / f"{lock}.cdx.json").read_text())
        assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", VERSION)
        listed = {(normal(each["name"]), each["version"]) for each in bill["components"]}
        assert listed == pinned(lock, debian_python())


def is_confined(compose: Compose, name: str) -> None:
    """It is the user of the image without a capability, and writes only where the file says so."""
    status = compose.running[name].run("cat", "/proc/1/status").stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    assert fields["Uid"].split() == [image(name).user.partition(":")[0]] * 4
    assert int(fields["CapBnd"], 16) == int(fields["CapEff"], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    refused = compose.running[name].run("python", "-c", WRITES, "/", "/opt/ingot", "/usr/local/bin", "/trust", "/tmp")
    assert "/tmp" not in refused.stdout
    assert refused.stdout.count("Read-only file system") == 4, refused


def publish(client: Client, name: str, model: onnx.ModelProto) -> None:
    done = client.command("compile", client.file(name, model), "--label", "stable")
    assert done["version"] == 1


def publish_with_faults(compose: Compose, client: Client, name: str, model: onnx.ModelProto) -> None:
    """Redis ends and starts again, and the store answers with errors, while the job is under way."""
    job = client.command("compile", client.file(name, model), "--label", "stable", "--no-wait")
    time.sleep(1.0)
    compose.store("fail")
    compose.stop_redis()
    ended = time.monotonic() + FAULT_SECONDS
    np.testing.assert_array_equal(client.infer("plain", x=X)["y"], X * 2)  # what is loaded is served on
    time.sleep(max(0.0, ended - time.monotonic()))
    compose.start_redis()
    compose.store("pass")
    compose.wait("compiler-worker", partial(is_finished, client, job["id"]), 300.0)
    done = client.command("jobs", job["id"])
    assert done["state"] == "SUCCEEDED", (done, compose.running["compiler-worker"].log.read_text()[-8000:])


def is_finished(client: Client, job: str) -> bool:
    return client.command("jobs", job)["state"] in ("SUCCEEDED", "FAILED", "CANCELLED")


def serves(
    compose: Compose, client: Client, name: str, inputs: Mapping[str, Array], expected: Mapping[str, Array]
) -> None:
    """Once the runtime has loaded the model, its answers are those."""
    answers: dict[str, Array] = {}
    compose.wait("runtime", lambda: bool(answers.update(client.infer(name, **inputs)) or answers))
    assert answers.keys() == expected.keys()
    for output, value in expected.items():
        np.testing.assert_allclose(answers[output], value, atol=1e-5)
