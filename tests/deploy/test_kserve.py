"""deploy/kserve: objects that KServe and Kubernetes take, and a server that is started as they say, on what KServe lays before it."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import grpc
import numpy as np
import pytest
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc
from onnx import TensorProto, helper

import ingot
from ingot.endpoint import Endpoint
from runtime_service.settings import RuntimeSettings
from shared_ir.artifact.signature import local_keys
from shared_ir.versions import VERSION
from tests.deploy.lint_tools import ROOT, run, tool
from tests.deployed.dockerfile import image
from tests.runtime_service.toy_models import wait_until
from tests.services.s3_server import s3_server

Object = dict[str, Any]
KSERVE = ROOT / "deploy/kserve"
SCHEMA = Path(__file__).with_name("kserve_schema.json")
KINDS = {"ClusterServingRuntime": "V1alpha1ClusterServingRuntime", "InferenceService": "V1beta1InferenceService"}
MODELS, TRUST = "/mnt/models", "/etc/ingot/trust"
NAME = "classifier"


def objects(file: str) -> list[Object]:
    return [document for document in yaml.safe_load_all((KSERVE / file).read_text()) if document]


def runtimes() -> dict[str, Object]:
    """By the protocol for which KServe takes them."""
    return {found["spec"]["protocolVersions"][0]: found for found in objects("runtimes.yaml")}


def container(runtime: Object) -> Object:
    (found,) = runtime["spec"]["containers"]
    assert found["name"] == "kserve-container"
    return dict(found)


def variables(runtime: Object) -> dict[str, str]:
    """As KServe sets them for an InferenceService: what stands in braces is its metadata."""
    return {own["name"]: own["value"].replace("{{.Name}}", NAME) for own in container(runtime)["env"]}


def validate(found: Object, folder: Path) -> str:
    schema = json.loads(SCHEMA.read_text()) | {"$ref": f"#/definitions/{KINDS[found['kind']]}"}
    (folder / "schema.json").write_text(json.dumps(schema))
    (folder / "object.json").write_text(json.dumps(found))
    return run(tool("check-jsonschema"), "--schemafile", folder / "schema.json", folder / "object.json")


@pytest.mark.slow
@pytest.mark.parametrize("file", ["runtimes.yaml", "s3.yaml", "oci.yaml"])
def test_objects_are_of_kserves_schema(file: str, tmp_path: Path) -> None:
    for found in objects(file):
        validate(found, tmp_path)
        assert (
            found["apiVersion"]
            == {"C": "serving.kserve.io/v1alpha1", "I": "serving.kserve.io/v1beta1"}[found["kind"][0]]
        )
        wrong = copy.deepcopy(found)
        wrong["spec"] = {f"{name}X": value for name, value in wrong["spec"].items()}
        with pytest.raises(AssertionError, match=r"X' (was|were) unexpected"):
            validate(wrong, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["v2", "grpc-v2"])
def test_pods_are_valid_for_kubernetes(protocol: str, tmp_path: Path) -> None:
    spec = copy.deepcopy({key: runtimes()[protocol]["spec"][key] for key in ("containers", "volumes")})
    spec["containers"][0]["volumeMounts"].append(
        {"name": "kserve-provision-location", "mountPath": MODELS, "readOnly": True}
    )
    spec["volumes"].append({"name": "kserve-provision-location", "emptyDir": {}})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}, "spec": spec}
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod))
    for version in ("1.27", "1.34"):
        output = run(tool("kubernetes-validate"), "--strict", "-k", version, tmp_path / "pod.yaml")
        assert "WARN" not in output, output
    mounts = {mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
    assert mounts == {volume["name"] for volume in spec["volumes"]}


def test_both_runtimes_differ_in_port_and_probes_alone() -> None:
    plain, remote = (copy.deepcopy(runtimes()[protocol]["spec"]) for protocol in ("v2", "grpc-v2"))
    ports = []
    for spec in (plain, remote):
        del spec["protocolVersions"]
        ports.append([spec["containers"][0].pop(name) for name in ("ports", "readinessProbe", "livenessProbe")])
    assert plain == remote
    for (port,), ready, live in ports:  # Knative: one port, which is asked whether the container is ready
        for probe in (ready, live):
            assert probe.get("httpGet", probe.get("grpc"))["port"] == port["containerPort"]


@pytest.mark.parametrize("file", ["s3.yaml", "oci.yaml"])
def test_a_service_finds_its_runtime(file: str) -> None:
    (service,) = objects(file)
    model = service["spec"]["predictor"]["model"]
    runtime = runtimes()[model["protocolVersion"]]
    assert model["modelFormat"] in [
        {"name": own["name"], "version": own["version"]} for own in runtime["spec"]["supportedModelFormats"]
    ]
    assert model["storageUri"].startswith(f"{file.partition('.')[0]}://")


@pytest.mark.parametrize("protocol", ["v2", "grpc-v2"])
def test_settings_are_known_and_a_pod_ends_in_the_time_that_it_has(protocol: str) -> None:
    runtime = runtimes()[protocol]
    found = RuntimeSettings.from_environment(image("runtime").variables | variables(runtime))
    assert [model.name for model in found.model_settings()] == [NAME]
    assert found.layout == MODELS
    assert found.drain_delay + found.drain_timeout + 2 < 30
    assert container(runtime)["image"] == f"ingot/runtime:{VERSION}"
    writable = {mount["mountPath"] for mount in container(runtime)["volumeMounts"] if not mount.get("readOnly")}
    assert {str(found.home), image("runtime").variables["INGOT_CACHE_DIR"], "/tmp"} <= writable


@pytest.mark.slow
def test_the_image_of_a_model_has_it_where_kserve_looks() -> None:
    file = KSERVE / "model.Dockerfile"
    assert run(tool("hadolint"), "--failure-threshold", "info", file) == ""
    assert [line for line in file.read_text().splitlines() if line[:1] != "#"] == [
        "FROM busybox:1.37.0",
        "COPY version /models",
    ]


class Pod:
    """A server that is started as a runtime says, its folders below one of the test's."""

    def __init__(self, folder: Path, protocol: str, trusted: Path, **changed: str) -> None:
        self.folder, self._file = folder, folder / "addresses.json"
        self.models = folder / "mnt" / "models"
        self.models.parent.mkdir(parents=True, exist_ok=True)
        self._file.unlink(missing_ok=True)
        own = image("runtime").variables | variables(runtimes()[protocol]) | changed
        own |= {name: "127.0.0.1:0" for name in own if name.endswith(("HTTP_ADDRESS", "GRPC_ADDRESS"))}
        own |= {"INGOT_RUNTIME_ADDRESS_FILE": str(self._file), "PATH": os.environ["PATH"]}
        places = {MODELS: self.models, TRUST: _mounted(trusted, folder / "trust"), "/var/lib/ingot": folder / "home"}
        own = {name: str(places.get(value, value)) for name, value in own.items()}
        own["INGOT_CACHE_DIR"] = str(folder / "cache")
        self._log = (folder / "server.log").open("ab")
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "runtime_service.server"], env=own, cwd=ROOT, stderr=self._log
        )
        wait_until(self._file.exists, 30)
        self.addresses: dict[str, str] = json.loads(self._file.read_text())

    def ready(self) -> int:
        """What the readiness probe of HTTP gets."""
        try:
            with urllib.request.urlopen(f"http://{self.addresses['http']}/v2/health/ready") as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def serving(self) -> bool:
        """What the readiness probe of gRPC gets."""
        with grpc.insecure_channel(self.addresses["grpc"]) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
            return bool(check.status == health_pb2.HealthCheckResponse.SERVING)

    def infer(self, protocol: str) -> float:
        with closing(Endpoint(self.addresses[protocol], protocol)) as endpoint:  # type: ignore[arg-type]
            return float(endpoint.infer(NAME, {"x": np.ones((2, 4), np.float32)})["y"][1, 3])

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.kill()
        self._log.close()
        return self.process.wait(30)


def _mounted(trusted: Path, folder: Path) -> Path:
    """A volume of a ConfigMap: files are links into a folder that is a link."""
    if not folder.exists():
        shutil.copytree(trusted, folder / "..version")
        (folder / "..data").symlink_to("..version")
        for file in trusted.glob("*.pub"):
            (folder / file.name).symlink_to(Path("..data", file.name))
    return folder


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A layout of ``y = -x``, which has no weights, and the folder of the key that signed it."""
    folder = tmp_path_factory.mktemp("version")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "negation", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    local_keys(folder / "home")
    ingot.compile(model, name="negation").save(folder / "laid", home=folder / "home")
    return folder / "laid", folder / "home" / "trust"


@pytest.fixture
def pods() -> Iterator[list[Pod]]:
    started: list[Pod] = []
    yield started
    for pod in started:
        pod.end()


def initialize(client: Any, bucket: str, prefix: str, folder: Path) -> int:
    """What KServe's storage initializer does for ``s3://bucket/prefix`` (kserve_storage 0.21.0, ``Storage._download_s3``): objects without
    bytes are passed over, the rest of the key behind the prefix is the path. How many were passed over."""
    passed = 0
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for found in page["Contents"]:
            if found["Key"].endswith("/") or not found["Size"]:
                passed += 1
                continue
            path = folder / found["Key"].removeprefix(prefix).lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(bucket, found["Key"], str(path))
    return passed


@pytest.mark.slow
@pytest.mark.services
def test_a_version_in_a_bucket_is_served_from_zero_and_to_zero(
    version: tuple[Path, Path], tmp_path: Path, pods: list[Pod]
) -> None:
    laid, trusted = version
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    with s3_server("models") as url:
        client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys)
        for file in laid.rglob("*"):
            if file.is_file():
                client.upload_file(str(file), "models", f"classifier/{file.relative_to(laid)}")
        for number in (1, 2):  # a pod that is gone leaves nothing to the next one
            folder = tmp_path / f"pod-{number}"
            assert initialize(client, "models", "classifier", folder / "mnt" / "models") == 1
            pods.append(Pod(folder, "v2", trusted))
            wait_until(lambda: pods[-1].ready() == 200, 30)
            assert pods[-1].infer("http") == -1.0
            pods[-1].process.send_signal(signal.SIGTERM)
            wait_until(lambda: pods[-1].ready() == 503, 5)
            assert pods[-1].infer("http") == -1.0  # endpoints may lead here for a while
            assert pods[-1].process.wait(30) == 0


@pytest.mark.slow
@pytest.mark.services
def test_a_version_in_an_image_is_served_when_its_container_has_started(
    version: tuple[Path, Path], tmp_path: Path, pods: list[Pod]
) -> None:
    """A modelcar: /mnt/models is a link into the root of another process, which may be there later than the server."""
    laid, trusted = version
    with tarfile.open(tmp_path / "layer.tar", "w") as archive:
        archive.add(laid, "models")
    pod = Pod(tmp_path, "grpc-v2", trusted, INGOT_RUNTIME_DRAIN_DELAY="0")
    pods.append(pod)
    assert pod.ready() == 503
    assert not pod.serving()
    with tarfile.open(tmp_path / "layer.tar") as archive:
        archive.extractall(tmp_path / "car", filter="data")
    pod.models.symlink_to(f"/proc/{os.getpid()}/root{tmp_path}/car/models")
    wait_until(pod.serving, 30)
    assert pod.infer("grpc") == -1.0
    pod.process.send_signal(signal.SIGTERM)
    assert pod.process.wait(20) == 0


@pytest.mark.slow
@pytest.mark.services
def test_what_a_stranger_signed_is_not_served(version: tuple[Path, Path], tmp_path: Path, pods: list[Pod]) -> None:
    laid, _ = version
    local_keys(tmp_path / "others")
    shutil.copytree(laid, tmp_path / "mnt" / "models")
    pod = Pod(tmp_path, "v2", tmp_path / "others" / "trust", INGOT_RUNTIME_DRAIN_DELAY="0")
    pods.append(pod)
    wait_until(lambda: b"not trusted here" in (tmp_path / "server.log").read_bytes(), 30)
    assert pod.ready() == 503
