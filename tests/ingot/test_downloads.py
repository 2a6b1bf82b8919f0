"""A version as it is streamed: whole and checked, or not at all."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from ingot.download import receive_layout
from shared_ir.artifact.layout import open_version
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import local_keys
from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.storage.local import FileStore
from tests.services.artifacts import toy_artifact

Part = pb.DownloadArtifactResponse


@pytest.fixture
def parts(tmp_path: Path) -> list[Part]:
    """What the service sends for version 2 of a model."""
    key, trust = local_keys(tmp_path / "home")
    repository = ArtifactRepository(FileStore(tmp_path / "store"), trust, key)
    for number in (1, 2):
        repository.put_artifact(toy_artifact(weights=b"w" * 64 * number, key=f"{number:064x}"))
        version = repository.publish("toy", [f"{number:064x}"])
    return list(stream(repository.files(version)))


def stream(files: Iterable[tuple[str, bytes | memoryview | Path]]) -> Iterator[Part]:
    for path, content in files:
        data = content.read_bytes() if isinstance(content, Path) else bytes(content)
        yield Part(header=pb.FileHeader(path=path, size=len(data)))
        for start in range(0, len(data), 100):
            yield Part(chunk=data[start : start + 100])


def test_a_version_arrives_beside_others(parts: list[Part], tmp_path: Path) -> None:
    folder, (key, trust) = tmp_path / "out", local_keys(tmp_path / "home")
    from shared_ir.artifact.layout import save_version

    save_version(folder, "mine", [toy_artifact("mine")], key)
    assert receive_layout(parts, folder) == "2"
    assert receive_layout(parts, folder) == "2"
    choose = lambda manifests: manifests[0]
    assert bytes(open_version(folder, "2", trust, choose).weights) == b"w" * 128
    assert open_version(folder, "mine", trust, choose).manifest.name == "mine"


def test_a_changed_byte_is_noticed(parts: list[Part], tmp_path: Path) -> None:
    index = max(i for i, part in enumerate(parts) if part.WhichOneof("part") == "chunk")
    parts[index] = Part(chunk=bytes([parts[index].chunk[0] ^ 1]) + parts[index].chunk[1:])
    with pytest.raises(IngotError) as caught:
        receive_layout(parts, tmp_path / "out")
    assert caught.value.code is ErrorCode.CHECKSUM_MISMATCH
    assert not (tmp_path / "out" / "index.json").exists()


def test_an_interrupted_download_leaves_no_version(parts: list[Part], tmp_path: Path) -> None:
    def broken() -> Iterator[Part]:
        yield from parts[: len(parts) // 2]
        raise IngotError(ErrorCode.UNAVAILABLE, "gone")

    with pytest.raises(IngotError):
        receive_layout(broken(), tmp_path / "out")
    assert not (tmp_path / "out" / "index.json").exists()


HEX = sha256_hex(b"evil")


@pytest.mark.parametrize(
    "path",
    [
        "../../evil",
        "/etc/evil",
        "blobs/sha256/../../../evil",
        "evil",
        f"blobs/sha256/../../../{HEX}",
        f"blobs/sha256//{HEX}",
        f"blobs/sha256/x/{HEX}",
        f"blobs/sha256/{HEX.upper()}",
        f"blobs/sha256/{HEX}\n",
    ],
)
def test_a_path_out_of_the_folder_is_refused(parts: list[Part], tmp_path: Path, path: str) -> None:
    evil = [Part(header=pb.FileHeader(path=path, size=4)), Part(chunk=b"evil")]
    with pytest.raises(IngotError):
        receive_layout([*evil, *parts], tmp_path / "out" / "deep" / "er")
    assert list(tmp_path.rglob("evil")) == []
    assert list(tmp_path.rglob(HEX)) == []


def test_a_file_is_no_larger_than_was_said(parts: list[Part], tmp_path: Path) -> None:
    first = next(i for i, part in enumerate(parts) if part.header.path.startswith("blobs/"))
    endless = itertools.chain(parts[: first + 1], itertools.repeat(Part(chunk=b"x" * 1000)))
    with pytest.raises(IngotError, match="more of a file") as caught:
        receive_layout(endless, tmp_path / "out")
    assert caught.value.code is ErrorCode.ARTIFACT_CORRUPT


@pytest.mark.parametrize(
    ("path", "code"),
    [("index.json", ErrorCode.ARTIFACT_CORRUPT), (f"blobs/sha256/{HEX}", ErrorCode.RESOURCE_EXHAUSTED)],
)
def test_a_file_without_bounds_is_refused_before_it_comes(tmp_path: Path, path: str, code: ErrorCode) -> None:
    with pytest.raises(IngotError) as caught:
        receive_layout([Part(header=pb.FileHeader(path=path, size=1 << 60))], tmp_path / "out")
    assert caught.value.code is code


def test_a_stream_without_a_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IngotError) as caught:
        receive_layout([], tmp_path / "out")
    assert caught.value.code is ErrorCode.ARTIFACT_CORRUPT
