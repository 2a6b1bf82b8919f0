"""External data comes from the model's own folder or from named blobs, and from nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler_service.compiler.frontend.reading.limits import FrontendLimits
from compiler_service.compiler.frontend.reading.source import ModelSource
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.compiler.frontend.onnx_models import load, model, node, tensor

WEIGHTS = np.arange(6, dtype=np.float32)


def external_model(**entries: str) -> onnx.ModelProto:
    weights = onnx.TensorProto(name="w", data_type=1, dims=[6], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in entries.items():
        weights.external_data.add(key=key, value=value)
    return model([node("Add", ["x", "w"], ["y"])], [tensor("x", [6])], ["y"], [weights])


def save(folder: Path, proto: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def weights_of(source: Path | ModelSource) -> np.ndarray:
    (found,) = load(source).graph.constants.values()
    return found


def test_data_beside_the_model(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "w.bin").write_bytes(b"skip" + WEIGHTS.tobytes() + b"more")
    path = save(tmp_path, external_model(location="parts/w.bin", offset="4", length="24"))
    np.testing.assert_array_equal(weights_of(path), WEIGHTS)


@pytest.mark.parametrize("as_file", [True, False])
def test_data_as_a_named_blob(tmp_path: Path, as_file: bool) -> None:
    stored = tmp_path / "stored-under-another-name"
    stored.write_bytes(WEIGHTS.tobytes())
    data = external_model(location="../w.bin").SerializeToString()  # a blob's name is a key, not a path
    source = ModelSource(data, {"../w.bin": stored if as_file else WEIGHTS.tobytes()})
    np.testing.assert_array_equal(weights_of(source), WEIGHTS)


def refusal(source: Path | ModelSource) -> IngotError:
    with pytest.raises(IngotError) as caught:
        load(source)
    assert caught.value.code is ErrorCode.EXTERNAL_DATA
    assert caught.value.tensor == "w"
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize(
    "location",
    [
        "/etc/passwd",
        "../secret",
        "a/../../secret",
        "..",
        "",
        ".",
        "a\0b",
        "..\\secret",
        "C:\\secret",
        "missing",
        "folder",
    ],
)
def test_other_places_are_refused(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (folder / "a").mkdir()
    (tmp_path / "secret").write_bytes(WEIGHTS.tobytes())
    refusal(save(folder, external_model(location=location)))


@pytest.mark.parametrize("kind", ["file", "folder", "hidden"])
def test_symbolic_links_are_refused(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "w.bin").write_bytes(WEIGHTS.tobytes())
    location = "w.bin"
    if kind == "file":
        (folder / "w.bin").symlink_to(outside / "w.bin")
    else:
        (folder / "link").symlink_to(outside)
        location = "link/w.bin" if kind == "folder" else "./link/./w.bin"
    refusal(save(folder, external_model(location=location)))


def test_a_model_reached_through_a_link_keeps_its_data(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "w.bin").write_bytes(WEIGHTS.tobytes())
    save(real, external_model(location="w.bin"))
    (tmp_path / "link").symlink_to(real)
    np.testing.assert_array_equal(weights_of(tmp_path / "link" / "model.onnx"), WEIGHTS)


def test_special_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is not a file" in refusal(save(tmp_path, external_model(location="pipe"))).message


def test_models_sent_as_bytes_have_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHTS.tobytes())
    monkeypatch.chdir(tmp_path)
    error = refusal(ModelSource(external_model(location="w.bin").SerializeToString()))
    assert "a blob named 'w.bin'" in error.expected


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"offset": "4"}, "ends before"),
        ({"offset": "99999999999999999999"}, "offset of external data is no number"),
        ({"offset": "-4"}, "offset of external data is no number"),
        ({"offset": "１"}, "offset of external data is no number"),
        ({"offset": "9223372036854775807"}, "ends before"),
        ({"length": "23"}, "is not that of the tensor"),
        ({"length": "x"}, "length of external data is no number"),
    ],
)
def test_ranges_are_checked(entries: dict[str, str], says: str) -> None:
    data = external_model(location="w", **entries).SerializeToString()
    assert says in refusal(ModelSource(data, {"w": WEIGHTS.tobytes()})).message


def test_the_total_is_limited() -> None:
    source = ModelSource(external_model(location="w").SerializeToString(), {"w": WEIGHTS.tobytes()})
    with pytest.raises(IngotError, match="external data is too large") as caught:
        load(source, limits=FrontendLimits(external_bytes=23))
    assert caught.value.code is ErrorCode.LIMIT_EXCEEDED
