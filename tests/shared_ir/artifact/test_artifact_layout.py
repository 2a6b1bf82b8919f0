"""Artifacts on disk: what was saved comes back, and nothing else does."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shared_ir.artifact.host import host_architecture, incompatibility
from shared_ir.artifact.layout import list_targets, open_version, save_version
from shared_ir.artifact.signature import SigningKey, TrustStore
from shared_ir.artifact.value import Manifest, artifact_key
from shared_ir.digest import canonical_json, sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target
from tests.services.artifacts import toy_artifact

REFUSALS = {
    ErrorCode.ARTIFACT_CORRUPT,
    ErrorCode.ARTIFACT_UNTRUSTED,
    ErrorCode.ARTIFACT_INCOMPATIBLE,
    ErrorCode.NOT_FOUND,
}
ARM: dict[str, Any] = {"triple": "aarch64-linux-gnu", "cpu": "cortex-a72", "features": (), "key": "ef" * 32}


@pytest.fixture(name="key")
def fixture_key() -> SigningKey:
    return SigningKey.generate()


@pytest.fixture(name="trust")
def fixture_trust(key: SigningKey) -> TrustStore:
    return TrustStore.of([key.public])


def test_what_was_saved_comes_back(tmp_path: Path, key: SigningKey, trust: TrustStore) -> None:
    artifact = toy_artifact()
    save_version(tmp_path, "1", [artifact], key)
    assert open_version(tmp_path, "1", trust).to_artifact() == artifact
    assert open_version(tmp_path, None, trust).manifest == artifact.manifest


def test_equal_artifacts_give_equal_bytes(tmp_path: Path, key: SigningKey) -> None:
    for name in ("a", "b"):
        save_version(tmp_path / name, "1", [toy_artifact(), toy_artifact(**ARM)], key)
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert len(files) > 8
    assert all((tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files)


@pytest.mark.parametrize("size", [0, 1, 4096, 9 * 1024 * 1024 + 3])
def test_weights_from_a_file(tmp_path: Path, key: SigningKey, trust: TrustStore, size: int) -> None:
    source = tmp_path / "weights"
    source.write_bytes(bytes(range(251)) * (size // 251) + b"x" * (size % 251))
    save_version(tmp_path / "layout", "1", [toy_artifact(weights=source)], key)
    opened = open_version(tmp_path / "layout", "1", trust)
    assert opened.weights == source.read_bytes()
    assert opened.weights.readonly


def test_a_version_holds_several_targets(tmp_path: Path, key: SigningKey, trust: TrustStore) -> None:
    arm = toy_artifact(**ARM)
    save_version(tmp_path, "1", [toy_artifact(), arm], key)
    assert [m.cpu for m in list_targets(tmp_path, "1", trust)] == ["x86-64-v3", "cortex-a72"]
    assert open_version(tmp_path, "1", trust, lambda manifests: manifests[1]).manifest == arm.manifest


def test_saving_a_tag_again_replaces_it_and_keeps_others(tmp_path: Path, key: SigningKey, trust: TrustStore) -> None:
    for tag, name in (("1", "one"), ("2", "two"), ("1", "three")):
        save_version(tmp_path, tag, [toy_artifact(name)], key)
    assert open_version(tmp_path, "1", trust).manifest.name == "three"
    assert open_version(tmp_path, "2", trust).manifest.name == "two"


@pytest.mark.slow
def test_a_flipped_byte_anywhere_is_refused(tmp_path: Path, key: SigningKey, trust: TrustStore) -> None:
    save_version(tmp_path, "1", [toy_artifact()], key)
    open_version(tmp_path, "1", trust)
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len(files) == 9
    for path in files:
        original = path.read_bytes()
        for position in range(0, len(original), 1 if len(original) < 700 else 7):
            for mask in (0x01, 0x20):
                flipped = bytearray(original)
                flipped[position] ^= mask
                path.write_bytes(flipped)
                with pytest.raises(IngotError) as caught:
                    open_version(tmp_path, "1", trust)
                assert caught.value.code in REFUSALS, (path, position, caught.value)
        path.write_bytes(original)
    open_version(tmp_path, "1", trust)


def test_a_byte_more_or_less_or_a_missing_file_is_refused(tmp_path: Path, key: SigningKey, trust: TrustStore) -> None:
    save_version(tmp_path, "1", [toy_artifact()], key)
    for path in [p for p in tmp_path.rglob("*") if p.is_file()]:
        original = path.read_bytes()
        for changed in (original[:-1], original + b"\0", None):
            path.unlink() if changed is None else path.write_bytes(changed)
            with pytest.raises(IngotError) as caught:
                open_version(tmp_path, "1", trust)
            assert caught.value.code in REFUSALS
        path.write_bytes(original)


def test_an_unknown_key_is_refused(tmp_path: Path, key: SigningKey) -> None:
    save_version(tmp_path, "1", [toy_artifact()], key)
    stranger = TrustStore.of([SigningKey.generate().public])
    with pytest.raises(IngotError, match="not trusted here") as caught:
        open_version(tmp_path, "1", stranger)
    assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED
    assert key.key_id in caught.value.received


def test_a_foreign_abi_is_refused_even_when_signed(tmp_path: Path, key: SigningKey, trust: TrustStore) -> None:
    save_version(tmp_path, "1", [toy_artifact(abi_version=99)], key)
    with pytest.raises(IngotError, match="ABI version 99") as caught:
        open_version(tmp_path, "1", trust)
    assert caught.value.code is ErrorCode.ARTIFACT_INCOMPATIBLE


def test_a_target_of_another_signed_version_cannot_be_slipped_in(
    tmp_path: Path, key: SigningKey, trust: TrustStore
) -> None:
    save_version(tmp_path, "1", [toy_artifact("old")], key)
    save_version(tmp_path, "2", [toy_artifact("new")], key)
    index = json.loads((tmp_path / "index.json").read_text())
    digests = {m["annotations"]["org.opencontainers.image.ref.name"]: m["digest"] for m in index["manifests"]}
    old, new = ((tmp_path / "blobs" / "sha256" / digests[tag].removeprefix("sha256:")) for tag in ("1", "2"))
    mixed = json.loads(new.read_text()) | {"manifests": json.loads(old.read_text())["manifests"]}
    new.write_text(json.dumps(mixed))
    with pytest.raises(IngotError):
        open_version(tmp_path, "2", trust)


def test_an_unsigned_manifest_is_refused(tmp_path: Path, key: SigningKey, trust: TrustStore) -> None:
    save_version(tmp_path, "1", [toy_artifact()], key)
    resign(tmp_path, lambda document: document["annotations"].pop("io.ingot.signature"))
    with pytest.raises(IngotError, match="not signed") as caught:
        open_version(tmp_path, "1", trust)
    assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED


def resign(directory: Path, change: Any) -> None:
    """Change the version's index and make ``index.json`` fit it, as an attacker without a key can."""
    index = json.loads((directory / "index.json").read_text())
    descriptor = index["manifests"][0]
    path = directory / "blobs" / "sha256" / descriptor["digest"].removeprefix("sha256:")
    document = json.loads(path.read_text())
    change(document)
    data = canonical_json(document)
    descriptor |= {"digest": f"sha256:{sha256_hex(data)}", "size": len(data)}
    (path.parent / sha256_hex(data)).write_bytes(data)
    (directory / "index.json").write_bytes(canonical_json(index))


def test_the_library_is_not_read_before_the_signature_holds(tmp_path: Path, key: SigningKey) -> None:
    save_version(tmp_path, "1", [toy_artifact()], key)
    for path in (tmp_path / "blobs" / "sha256").iterdir():
        if path.read_bytes().startswith(b"\x7fELF"):
            path.unlink()
    with pytest.raises(IngotError) as caught:
        open_version(tmp_path, "1", TrustStore.of([]))
    assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED


def test_unknown_tag_names_the_known_ones(tmp_path: Path, key: SigningKey, trust: TrustStore) -> None:
    save_version(tmp_path, "1", [toy_artifact()], key)
    with pytest.raises(IngotError, match="one of 1"):
        open_version(tmp_path, "7", trust)
    with pytest.raises(IngotError) as caught:
        open_version(tmp_path / "nothing", None, trust)
    assert caught.value.code is ErrorCode.NOT_FOUND
    with pytest.raises(IngotError):
        save_version(tmp_path, "../1", [toy_artifact()], key)


def test_the_host_gets_the_best_target_it_can_run(tmp_path: Path, key: SigningKey, trust: TrustStore) -> None:
    triple = f"{host_architecture()}-linux-gnu"
    plain = toy_artifact(triple=triple, cpu="generic", features=(), key="01" * 32)
    other = toy_artifact(triple="riscv64-linux-gnu", cpu="other", features=("+v",), key="02" * 32)
    save_version(tmp_path, "1", [other, plain], key)
    assert open_version(tmp_path, "1", trust).manifest.cpu == "generic"
    save_version(tmp_path, "1", [other, toy_artifact(**{**ARM, "triple": "armv7-linux-gnueabihf"})], key)
    with pytest.raises(IngotError, match="no target of this version runs on this machine"):
        open_version(tmp_path, "1", trust)


def test_features_that_the_machine_lacks_are_named() -> None:
    manifest = toy_artifact(cpu="x86-64-v4", features=()).manifest
    old = frozenset({"sse4_1", "sse4_2", "ssse3", "pni", "popcnt", "avx", "avx2", "fma"})
    reason = incompatibility(manifest, "x86_64", old)
    assert "avx512f" in reason
    assert "avx2" not in reason
    assert incompatibility(manifest, "aarch64", old) == "made for x86_64"


def test_artifact_key_depends_on_everything() -> None:
    target = Target("llvm", "x86_64-linux-gnu", "x86-64-v3", ("+avx2",))
    base = artifact_key("m", target, {"opt_level": 3}, "t", "1")
    assert base == artifact_key("m", target, {"opt_level": 3}, "t", "1")
    others = {
        artifact_key("n", target, {"opt_level": 3}, "t", "1"),
        artifact_key("m", Target("llvm", "x86_64-linux-gnu", "x86-64-v3"), {"opt_level": 3}, "t", "1"),
        artifact_key("m", target, {"opt_level": 2}, "t", "1"),
        artifact_key("m", target, {"opt_level": 3}, "u", "1"),
        artifact_key("m", target, {"opt_level": 3}, "t", "2"),
    }
    assert len(others | {base}) == 6


def test_fields_of_a_later_manifest_are_kept_and_those_that_are_missing_told() -> None:
    manifest = toy_artifact().manifest
    assert Manifest.from_dict(manifest.to_dict()) == manifest
    later = manifest.to_dict() | {"extra": {"a": [1]}, "others": 2}
    assert Manifest.from_dict(later).to_dict() == later
    for lacking in ({n: v for n, v in later.items() if n != "key"}, later | {"abi_version": "1"}):
        with pytest.raises(IngotError, match="does not have the fields"):
            Manifest.from_dict(lacking)


@pytest.fixture(name="skopeo")
def fixture_skopeo() -> str:
    path = shutil.which("skopeo")
    assert path, "these tests need skopeo (Debian package `skopeo`)"
    return path


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_skopeo_inspects_a_version(tmp_path: Path, key: SigningKey, skopeo: str) -> None:
    save_version(tmp_path, "1", [toy_artifact(), toy_artifact(**ARM)], key)
    text = run(skopeo, "inspect", "--override-os=linux", "--override-arch=arm64", f"oci:{tmp_path}:1")
    assert json.loads(text)["Labels"]["io.ingot.cpu"] == "cortex-a72"
    index = json.loads(run(skopeo, "inspect", "--raw", f"oci:{tmp_path}:1"))
    assert [m["platform"]["architecture"] for m in index["manifests"]] == ["amd64", "arm64"]


@pytest.mark.parametrize("every", [True, False], ids=["all platforms", "one platform"])
def test_the_signature_survives_a_copy(
    tmp_path: Path, key: SigningKey, trust: TrustStore, skopeo: str, every: bool
) -> None:
    save_version(tmp_path / "a", "1", [toy_artifact(), toy_artifact(**ARM)], key)
    options = ["--all"] if every else ["--override-arch=amd64", "--override-os=linux"]
    run(skopeo, "copy", *options, f"oci:{tmp_path}/a:1", f"oci:{tmp_path}/b:copied")
    opened = open_version(tmp_path / "b", "copied", trust, lambda manifests: manifests[0])
    assert opened.manifest == toy_artifact().manifest
