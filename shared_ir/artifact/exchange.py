"""An artifact as plain files, the way it travels between processes of one machine. Not signed, not published."""

from __future__ import annotations

import json
import os
from pathlib import Path

from shared_ir.artifact.value import Artifact, Manifest
from shared_ir.plan.json_form import read_plan, write_plan
from shared_ir.storage.files import copy_file, write_blocks

_MANIFEST, _PLAN, _LIBRARY, _WEIGHTS, _REPORT = "manifest.json", "plan.json", "model.so", "weights.bin", "report.json"
_ATTACHMENTS = "attachments"


def write_artifact(directory: Path, artifact: Artifact) -> None:
    """Write ``artifact`` into a new directory."""
    directory.mkdir(parents=True)
    (directory / _MANIFEST).write_text(json.dumps(artifact.manifest.to_dict()))
    (directory / _PLAN).write_text(write_plan(artifact.plan))
    (directory / _LIBRARY).write_bytes(artifact.library)
    (directory / _REPORT).write_text(json.dumps(dict(artifact.report)))
    if isinstance(artifact.weights, Path):
        _link(artifact.weights, directory / _WEIGHTS)
    else:
        with (directory / _WEIGHTS).open("wb", buffering=0) as file:
            write_blocks(file, (artifact.weights,))
    (directory / _ATTACHMENTS).mkdir()
    for number, (name, data) in enumerate(sorted(artifact.attachments.items())):
        (directory / _ATTACHMENTS / f"{number}.name").write_text(name)
        (directory / _ATTACHMENTS / f"{number}.data").write_bytes(data)


def read_artifact(directory: Path) -> Artifact:
    """The inverse of :func:`write_artifact`; the weights stay in their file."""
    names = sorted((directory / _ATTACHMENTS).glob("*.name"))
    return Artifact(
        manifest=Manifest.from_dict(json.loads((directory / _MANIFEST).read_bytes())),
        plan=read_plan((directory / _PLAN).read_bytes()),
        library=(directory / _LIBRARY).read_bytes(),
        weights=directory / _WEIGHTS,
        report=json.loads((directory / _REPORT).read_bytes()),
        attachments={name.read_text(): name.with_suffix(".data").read_bytes() for name in names},
    )


def _link(source: Path, target: Path) -> None:
    """NOTE: a link saves copying weights of gigabytes; both names are only read from here on."""
    try:
        os.link(source, target)
    except OSError:
        copy_file(source, target)
