"""Pods as the chart describes them, as containers: init containers, volumes, secrets, variables, users and probes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.deployed.containers import Container, Mount, Network, Running
from tests.deployed.dockerfile import image
from tests.deployed.roots import Roots

Object = Mapping[str, Any]
HEALTH = ("python", "/usr/local/bin/ingot-health", "grpc")
"""Asks what the kubelet asks of a ``grpc`` probe."""


@dataclass
class Cluster:
    """Deployments of a chart on one network.

    Attributes:
        objects: what ``helm template`` gives.
        secrets: by name, their keys and values; those that the notes ask for.
    """

    roots: Roots
    network: Network
    folder: Path
    objects: Sequence[Object]
    secrets: Mapping[str, Mapping[str, str]]
    running: dict[str, Running] = field(default_factory=dict)

    def names(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.objects if each["kind"] == "Deployment"]

    def template(self, name: str) -> Object:
        (found,) = [
            each["spec"]["template"]["spec"]
            for each in self.objects
            if each["kind"] == "Deployment" and each["metadata"]["name"] == name
        ]
        pod: Object = found
        return pod

    def start(self, name: str) -> None:
        """One pod of a deployment: its init containers to their ends, then its container."""
        pod = self.template(name)
        volumes = {each["name"]: self._volume(name, each, pod) for each in pod["volumes"]}
        for each in pod.get("initContainers", []):
            done = self.network.start(f"{name}-{each['name']}", self._container(pod, each, volumes))
            assert done.outer.wait(60) == 0, done.log.read_text()
        (own,) = pod["containers"]
        self.running[name] = self.network.start(name, self._container(pod, own, volumes))

    def run_job(self, name: str) -> str:
        """One run of a CronJob: its init containers and its container, each to its end. What they say."""
        (pod,) = [
            each["spec"]["jobTemplate"]["spec"]["template"]["spec"]
            for each in self.objects
            if each["kind"] == "CronJob" and each["metadata"]["name"] == name
        ]
        volumes = {each["name"]: self._volume(name, each, pod) for each in pod["volumes"]}
        said = []
        for each in (*pod.get("initContainers", []), *pod["containers"]):
            done = self.network.start(f"{name}-{each['name']}", self._container(pod, each, volumes))
            assert done.outer.wait(120) == 0, done.log.read_text()
            said.append(done.log.read_text())
        return "\n".join(said)

    def passes(self, name: str, probe: str) -> bool:
        """``startupProbe``, ``livenessProbe`` or ``readinessProbe`` of a running pod; one that it lacks passes."""
        found = self.template(name)["containers"][0].get(probe)
        if found is None:
            return True
        grpc = found.get("grpc", {})
        asked = [*HEALTH, f"127.0.0.1:{grpc['port']}", *filter(None, [grpc.get("service")])] if grpc else None
        return self.running[name].run(*(asked or found["exec"]["command"])).returncode == 0

    def stop(self, name: str) -> int:
        return self.running[name].stop(self.template(name)["terminationGracePeriodSeconds"])

    def _container(self, pod: Object, described: Object, volumes: Mapping[str, Path]) -> Container:
        stage = described["image"].rpartition("/")[2].partition(":")[0]
        found, security = image(stage), described["securityContext"]
        identity = pod["securityContext"]
        command = [*described.get("command", found.command), *described.get("args", [])]
        return Container(
            root=self.roots.of(stage),
            command=tuple(command),
            variables=found.variables | self._variables(described),
            user=f"{identity['runAsUser']}:{identity['runAsGroup']}",
            mounts=tuple(
                Mount(each["mountPath"], volumes[each["name"]], "ro" if each.get("readOnly") else "")
                for each in described["volumeMounts"]
            ),
            read_only=security["readOnlyRootFilesystem"],
            confined=security["capabilities"] == {"drop": ["ALL"]} and not security["allowPrivilegeEscalation"],
        )

    def _variables(self, described: Object) -> dict[str, str]:
        found: dict[str, str] = {}
        for each in described.get("envFrom", []):
            found |= self.secrets[each["secretRef"]["name"]]
        for each in described.get("env", []):
            reference = each.get("valueFrom", {}).get("secretKeyRef")
            found[each["name"]] = self.secrets[reference["name"]][reference["key"]] if reference else each["value"]
        return found

    def _volume(self, pod_name: str, volume: Object, pod: Object) -> Path:
        """An ``emptyDir`` or the files of a secret, of the group that the pod names."""
        folder = self.folder / "volumes" / pod_name / str(volume["name"])
        folder.mkdir(parents=True)
        folder.chmod(0o777)
        secret = volume.get("secret")
        if secret is None:
            assert "emptyDir" in volume, volume
            return folder
        content = self.secrets[secret["secretName"]]
        items = secret.get("items") or [{"key": key, "path": key} for key in content]
        for item in items:
            path = folder / item["path"]
            path.write_text(content[item["key"]])
            path.chmod(secret.get("defaultMode", 0o644))
            os.chown(path, 0, pod["securityContext"]["fsGroup"])
        folder.chmod(0o755)
        return folder


def secrets_of(notes: str, folder: Path, known: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The secrets that the notes ask for, made by the lines that they give; ``known`` are values that they leave open."""
    folder.mkdir()
    found: dict[str, dict[str, str]] = {}
    for line in notes.replace("\\\n", " ").splitlines():
        if line.strip().startswith("openssl "):
            subprocess.run(["sh", "-c", line], cwd=folder, check=True, capture_output=True)
        elif match := re.search(r"create secret generic (\S+)(.*)", line):
            files = re.findall(r"--from-file=(\S+)", match[2])
            literals = re.findall(r"--from-literal=(\w+)=", match[2])
            found[match[1]] = {name: (folder / name).read_text() for name in files} | {n: known[n] for n in literals}
    return found
