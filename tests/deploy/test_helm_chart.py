"""The chart: lints, renders valid Kubernetes objects for every switch, refuses wrong values, sets known settings."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

import compiler_service.housekeeping
import compiler_service.settings
import runtime_service.settings
from tests.deploy.lint_tools import CHART, extract_helm, render, run, tool
from tests.deployed.dockerfile import image, instructions

Object = dict[str, Any]
pytestmark = pytest.mark.slow
OLDEST, NEWEST = "1.27", "1.34"
HEALTH = "/usr/local/bin/ingot-health"
CUSTOM = {"ServiceMonitor", "PrometheusRule"}
"""Kinds that Kubernetes itself does not know; the validator only warns of them."""

EVERYTHING: dict[str, Any] = {
    "image": {"registry": "registry.example", "pullSecrets": ["pull"]},
    "store": {"env": {"AWS_ENDPOINT_URL": "https://s3.example"}},
    "auth": {"existingSecret": "token", "tokensSecret": "tokens"},
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:x"}},
    "api": {"podDisruptionBudget": {"enabled": True}, "extraEnv": {"INGOT_MAX_WATCHERS": 10}},
    "worker": {
        "autoscaling": {"enabled": True},
        "podDisruptionBudget": {"enabled": True},
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "compile", "operator": "Exists"}],
    },
    "housekeeping": {"keepLast": 10, "keepSourcesDays": 90, "schedule": "@daily"},
    "runtime": {
        "autoscaling": {"enabled": True},
        "modelSettings": {"resnet": {"policy": "stable+canary", "max_batch_size": 16, "warmup": {"h": 224}}},
        "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
        "podAnnotations": {"c": "d"},
    },
    "networkPolicy": {"enabled": True, "monitoring": [{"namespaceSelector": {"matchLabels": {"n": "m"}}}]},
    "monitoring": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    },
}
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": EVERYTHING,
    "runtime alone": {"api": {"enabled": False}, "worker": {"enabled": False}, "store": {"existingSecret": ""}},
    "compiler alone": {"runtime": {"enabled": False}, "serviceAccount": {"create": False}},
}


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(params=VARIANTS)
def objects(request: pytest.FixtureRequest, helm: Path, tmp_path: Path) -> list[Object]:
    return render(helm, VARIANTS[request.param], tmp_path)


def pods(objects: Sequence[Object]) -> Iterator[tuple[Object, Object]]:
    """Each object that makes pods, and what it makes of them: labels and description."""
    for document in objects:
        match document["kind"]:
            case "Deployment":
                yield document, document["spec"]["template"]
            case "CronJob":
                yield document, document["spec"]["jobTemplate"]["spec"]["template"]
            case "Pod":
                yield document, document


def containers(pod: Object) -> list[Object]:
    return [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]


def test_lint(helm: Path, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(EVERYTHING))
    assert "WARNING" not in run(helm, "lint", "--strict", CHART)
    assert "WARNING" not in run(helm, "lint", "--strict", CHART, "--values", values)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_objects_are_valid(objects: list[Object], version: str, tmp_path: Path) -> None:
    kinds = {document["kind"] for document in objects}
    known = [document for document in objects if document["kind"] not in CUSTOM]
    assert kinds - CUSTOM
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all(known))
    output = run(tool("kubernetes-validate"), "--strict", "-k", version, file)
    assert "WARN" not in output, output


def test_names_are_unique_and_selectors_match(objects: list[Object]) -> None:
    names = [(document["kind"], document["metadata"]["name"]) for document in objects]
    assert len(set(names)) == len(names)
    labelled = [pod["metadata"]["labels"] for document, pod in pods(objects) if document["kind"] != "Pod"]
    for document in objects:
        if document["kind"] == "Service":
            selector = document["spec"]["selector"]
        elif document["kind"] in ("PodDisruptionBudget", "ServiceMonitor"):
            selector = document["spec"]["selector"]["matchLabels"]
        elif document["kind"] == "NetworkPolicy" and "worker" not in document["metadata"]["name"]:
            selector = document["spec"]["podSelector"]["matchLabels"]
        else:
            continue
        assert any(selector.items() <= labels.items() for labels in labelled), names


def test_every_container_is_confined(objects: list[Object]) -> None:
    for _, pod in pods(objects):
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["enableServiceLinks"] is False
        for container in containers(pod):
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]
            assert not container["image"].endswith((":", ":latest"))


def test_every_deployment_has_probes(objects: list[Object]) -> None:
    for document in objects:
        if document["kind"] == "Deployment":
            (container,) = document["spec"]["template"]["spec"]["containers"]
            assert {"startupProbe", "livenessProbe"} <= container.keys()
            assert "readinessProbe" in container or "ports" not in container


def test_volumes_and_mounts_agree(objects: list[Object]) -> None:
    for document, pod in pods(objects):
        if document["kind"] != "Pod":
            mounted = {m["name"] for container in containers(pod) for m in container["volumeMounts"]}
            assert mounted == {volume["name"] for volume in pod["spec"]["volumes"]}


def test_only_known_settings_are_set(objects: list[Object]) -> None:
    runtime, compiler = runtime_service.settings.variables(), compiler_service.settings.variables()
    checked = 0
    for _, pod in pods(objects):
        for container in containers(pod):
            known = runtime if container["name"] == "runtime" else compiler
            for variable in container.get("env", []):
                if variable["name"].startswith("INGOT_"):
                    assert variable["name"] in known
                    checked += 1
    assert checked > 4


def test_the_settings_of_the_runtime_can_be_read(helm: Path, tmp_path: Path) -> None:
    for values in (VARIANTS["defaults"], EVERYTHING):
        objects = {(o["kind"], o["metadata"]["name"]): o for o in render(helm, values, tmp_path)}
        pod = objects["Deployment", "release-ingot-runtime"]["spec"]["template"]["spec"]
        environment = {v["name"]: v["value"] for v in pod["containers"][0]["env"] if "value" in v}
        models = objects.get(("ConfigMap", "release-ingot-models"))
        if models is not None:
            (tmp_path / "models.json").write_text(models["data"]["models.json"])
            environment["INGOT_RUNTIME_MODELS_FILE"] = str(tmp_path / "models.json")
        if "INGOT_RUNTIME_TOKEN_FILE" in environment:
            (tmp_path / "token").write_text("s3cret")
            environment["INGOT_RUNTIME_TOKEN_FILE"] = str(tmp_path / "token")
        settings = runtime_service.settings.RuntimeSettings.from_environment(environment)
        assert settings.model_settings()
        assert pod["terminationGracePeriodSeconds"] > settings.drain_delay + settings.drain_timeout


BIG = 268_435_456
"""As bytes are said: to Helm a float, as every number of a values file."""


def test_numbers_of_a_values_file_are_numbers_to_the_services(helm: Path, tmp_path: Path) -> None:
    values = {
        "store": {"env": {"AWS_BIG": BIG}},
        "api": {"maxJobs": 1_000_000, "maxModelBytes": BIG, "extraEnv": {"INGOT_MAX_WATCHERS": 1_000_000}},
        "worker": {"jobMemoryBytes": BIG, "jobSeconds": BIG + 0.5, "terminationGracePeriodSeconds": BIG},
        "runtime": {
            "cacheBytes": BIG,
            "maxQueueSize": 1_000_000,
            "extraEnv": {"INGOT_RUNTIME_MAX_REQUEST_BYTES": BIG, "INGOT_RUNTIME_POLL_INTERVAL": 0.5},
        },
        "housekeeping": {"keepLast": BIG, "keepDays": BIG, "keepSourcesDays": BIG},
    }
    objects = {
        o["metadata"]["name"]: o for o in render(helm, values, tmp_path) if o["kind"] in ("Deployment", "CronJob")
    }
    found = {}
    for name in ("compiler-api", "compiler-worker", "runtime"):
        pod = objects[f"release-ingot-{name}"]["spec"]["template"]["spec"]
        found[name] = {own["name"]: own["value"] for own in pod["containers"][0]["env"] if "value" in own}
        assert found[name]["AWS_BIG"] == str(BIG)
    for name in ("compiler-api", "compiler-worker"):
        own = compiler_service.settings.CompilerSettings.from_environment(found[name] | {"INGOT_HOME": str(tmp_path)})
        expected = (1_000_000, BIG, 1_000_000) if name == "compiler-api" else (BIG, BIG + 0.5)
        read = (own.max_jobs, own.max_model_bytes, own.max_watchers)
        assert (read if name == "compiler-api" else (own.job_memory, own.job_seconds)) == expected
    served = runtime_service.settings.RuntimeSettings.from_environment(found["runtime"])
    assert (served.max_request_bytes, served.max_queue_size, served.poll_interval) == (BIG, 1_000_000, 0.5)
    text = json.dumps(objects)
    assert "e+0" not in text


@pytest.mark.parametrize(
    "values",
    [
        {"store": {"url": "/data"}},
        {"runtime": {"replica": 3}},
        {"runtime": {"replicas": "3"}},
        {"runtime": {"modelControl": "poll"}},
        {"runtime": {"modelSettings": {"m": {"max_batch": 3}}}},
        {"worker": {"concurrency": 0}},
        {"api": {"maxJobs": 2_000_000}},
        {"housekeeping": {"schedule": "every day"}},
        {"housekeeping": {"graceHours": 0}},
        {"housekeeping": {"keepSourcesDays": 0.01}},
        {"worker": {"autoscaling": {"enabled": True, "minReplicas": 3, "maxReplicas": 2}}},
        {"signing": {"existingSecret": ""}},
        {"image": {"pullPolicy": "Sometimes"}},
        {"unknown": True},
    ],
)
def test_wrong_values_are_refused(helm: Path, tmp_path: Path, values: dict[str, Any]) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    done = subprocess.run([helm, "template", "r", CHART, "--values", file], capture_output=True, text=True)
    assert done.returncode != 0
    assert "values" in done.stderr


def test_every_value_is_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def missing(values: dict[str, Any], schema: dict[str, Any], path: str) -> list[str]:
        found = []
        for name, value in values.items():
            inner = schema.get("properties", {}).get(name)
            if inner is None:
                found += [] if schema.get("additionalProperties") else [f"{path}{name}"]
            elif isinstance(value, dict):
                found += missing(value, inner, f"{path}{name}.") if "properties" in inner else []
        return found

    assert missing(yaml.safe_load((CHART / "values.yaml").read_text()), schema, "") == []


def test_notes_name_what_has_to_be_made_first(helm: Path) -> None:
    notes = run(helm, "install", "release", CHART, "--dry-run=client", "--hide-notes=false")
    for secret in ("ingot-store", "ingot-redis", "ingot-signing", "ingot-orders"):
        assert secret in notes
    assert "No token is set" in notes
    compiling = run(
        helm, "install", "r", CHART, "--dry-run=client", "--hide-notes=false", "--set", "auth.tokensSecret=t"
    )
    assert "No token is set for inference" in compiling


def test_commands_are_those_of_the_images(objects: list[Object]) -> None:
    """The chart starts images by their entry points; what it runs beside them is in the images."""
    for document, pod in pods(objects):
        for container in containers(pod):
            name = container["image"].rpartition("/")[2].partition(":")[0]
            assert image(name).command[:2] == ("python", "-m")
            if document["kind"] == "Deployment" and container in pod["spec"]["containers"]:
                assert "command" not in container, name
            for text in commands(container):
                for script in re.findall(r"\bpython (\S+)", text):
                    assert script in (HEALTH, "-m"), text
                for module in re.findall(r"\bpython -m (\S+)", text):
                    assert importlib.util.find_spec(module), module


def test_what_housekeeping_is_told_is_understood(objects: list[Object]) -> None:
    """It has what a worker has to sign with, and no more: no token, no order key, no port."""
    for document, pod in pods(objects):
        if document["kind"] == "CronJob":
            told = [container for container in containers(pod) if container["name"] != "keys"]
            for container in told:
                assert compiler_service.housekeeping.parser().parse_args(container["args"])
                assert "ports" not in container
                secrets = {v["valueFrom"]["secretKeyRef"]["name"] for v in container["env"] if "valueFrom" in v}
                assert secrets == {"ingot-redis"}
            assert {c["args"][0] for c in told} <= {"retain", "collect"}
            assert document["spec"]["concurrencyPolicy"] == "Forbid"
            assert pod["spec"]["restartPolicy"] == "Never"


def commands(container: dict[str, Any]) -> list[str]:
    probes = [container.get(f"{kind}Probe", {}).get("exec", {}) for kind in ("startup", "liveness", "readiness")]
    words = [probe["command"] for probe in probes if probe]
    words.append([*container.get("command", []), *container.get("args", [])])
    return [" ".join(each) for each in words]


def test_the_health_check_is_in_every_image() -> None:
    (copied,) = [each for each in instructions("base", "COPY") if each.text.endswith(f" {HEALTH}")]
    assert (copied.text, copied.flag("chmod")) == (f"deploy/health.py {HEALTH}", "0755")


def test_the_api_gets_no_key_that_artifacts_are_signed_with(objects: list[Object]) -> None:
    for document, pod in pods(objects):
        if document["kind"] == "Pod":
            continue
        secrets = {v["name"]: v["secret"] for v in pod["spec"]["volumes"] if "secret" in v}
        named = {v["name"] for container in containers(pod) for v in container.get("env", [])}
        if document["metadata"]["name"].endswith("-compiler-api"):
            assert [item["key"] for item in secrets["signing"]["items"]] == ["signer.pub"]
            assert "items" not in secrets["orders"]
            assert "INGOT_ORDER_KEY" in named
            assert "INGOT_SIGNING_KEY" not in named
        elif document["metadata"]["name"].endswith(("-compiler-worker", "-housekeeping")):
            assert [item["key"] for item in secrets["orders"]["items"]] == ["orders.pub"]
            assert "items" not in secrets["signing"]
            assert "INGOT_ORDER_KEY" not in named
