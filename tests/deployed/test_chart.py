"""The chart as it is shipped, but for Kubernetes: its pods with their users, secrets, volumes, limits and probes, on the
roots that the Dockerfile makes. A model goes all the way."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.deploy.lint_tools import CHART, extract_helm, render, run
from tests.deployed.chart import Cluster, secrets_of
from tests.deployed.client import Array, Client
from tests.deployed.compose import Compose
from tests.deployed.containers import Network, may_be_made
from tests.deployed.roots import Roots
from tests.ingot.small_models import classifier, scale

pytestmark = [
    pytest.mark.slow,
    pytest.mark.services,
    pytest.mark.machines,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not may_be_made(), reason="only root may make the namespaces that stand for containers"),
]
VALUES = {
    "housekeeping": {"keepLast": 1, "keepDays": 0},
    "store": {"env": {"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_REGION": "us-east-1"}},
}
KNOWN = {
    "url": "redis://:ingot-change-me@redis:6379/0",
    "AWS_ACCESS_KEY_ID": "ingot",
    "AWS_SECRET_ACCESS_KEY": "ingot-change-me",
}
"""What the backends of compose take."""
PROBES = ("startupProbe", "livenessProbe")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="ingot-chart-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for inner in ("roots", "work"):
            (folder / inner).mkdir()
        helm = extract_helm(folder)
        objects = render(helm, VALUES, folder)
        notes = run(helm, "install", "release", CHART, "--dry-run=client", "--hide-notes=false")
        secrets = secrets_of(notes, folder / "keys", KNOWN)
        with Network.make(folder, ("redis", "minio")) as network:
            roots = Roots(folder / "roots")
            Compose(roots, network, folder).up_backends()
            yield Cluster(roots, network, folder, objects, secrets)


def test_what_is_shipped_compiles_publishes_and_serves(cluster: Cluster) -> None:
    for name in cluster.names():
        cluster.start(name)
    for name in cluster.names():
        for probe in PROBES:
            cluster.running[name].wait_until(partial(cluster.passes, name, probe), 120.0)
    client = Client(cluster.roots, cluster.network, cluster.folder / "work")
    assert client.command("compile", client.file("scale", scale()), "--label", "stable")["version"] == 1
    runtime = next(name for name in cluster.names() if name.endswith("-runtime"))
    cluster.running[runtime].wait_until(partial(cluster.passes, runtime, "readinessProbe"), 90.0)
    x: Array = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(client.infer("scale", x=x)["y"], x * 2)
    assert client.command("compile", client.file("classifier", classifier()), "--name", "scale")["version"] == 2
    assert (
        client.command("compile", client.file("scale", scale()), "--name", "scale", "--target", "x86-64-v2")["version"]
        == 3
    )
    said = cluster.run_job("release-ingot-housekeeping")
    assert "scale: 2" in said  # neither the newest nor with a label
    assert "generation 1: 0 objects" in said
    for name in cluster.names():
        assert cluster.passes(name, "livenessProbe"), name
        assert cluster.stop(name) == 0, cluster.running[name].log.read_text()
