"""Keys, signatures and who is trusted."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared_ir.artifact.signature import (
    Signature,
    SigningKey,
    TrustFolder,
    TrustStore,
    add_trusted,
    local_keys,
    public_pem,
    read_public,
    remove_trusted,
)
from shared_ir.errors import ErrorCode, IngotError


def test_a_key_comes_back_from_its_file_which_only_its_owner_may_read(tmp_path: Path) -> None:
    key = SigningKey.generate()
    key.save(tmp_path / "k.pem")
    assert (tmp_path / "k.pem").stat().st_mode & 0o777 == 0o600
    assert SigningKey.load(tmp_path / "k.pem").key_id == key.key_id
    assert "PRIVATE" not in repr(key)


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    SigningKey.generate().save(tmp_path / "k.pem")
    (tmp_path / "k.pem").chmod(0o644)
    with pytest.raises(IngotError, match="chmod 600"):
        SigningKey.load(tmp_path / "k.pem")


@pytest.mark.parametrize("text", ["", "not a key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_key_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "k.pem"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(IngotError, match="not an ed25519 private key"):
        SigningKey.load(path)
    with pytest.raises(IngotError, match="not an ed25519 public key"):
        read_public(text.encode(), "k.pub")


def test_a_file_without_a_key_harms_itself_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    key = SigningKey.generate()
    add_trusted(tmp_path, key.public)
    (tmp_path / "junk.pub").write_text("junk")
    (tmp_path / "folder.pub").mkdir()
    (tmp_path / "nothing.pub").symlink_to("nowhere")
    folder = TrustFolder(tmp_path)
    for _ in range(3):
        assert set(folder.keys) == {key.key_id}
    said = [record.getMessage() for record in caplog.records]
    assert [sum(name in text for text in said) for name in ("junk.pub", "folder.pub", "nothing.pub")] == [1, 1, 1]


def test_a_key_that_cannot_be_read_for_a_moment_is_not_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a crowd holds all descriptors, or a disk fails: nobody knows then whose key it is, and later it is what it was."""
    key, other = SigningKey.generate(), SigningKey.generate()
    folder = TrustFolder(tmp_path)
    add_trusted(tmp_path, key.public)
    for number in (errno.EMFILE, errno.EIO, errno.ESTALE):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "read_bytes", _failing(number))
            add_trusted(tmp_path, other.public)  # something to look at anew
            for _ in range(2):
                with pytest.raises(IngotError) as caught:
                    folder.verify(b"x", key.sign(b"x"))
                assert caught.value.code is ErrorCode.UNAVAILABLE
        assert set(folder.keys) == {key.key_id, other.key_id}
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", _failing(errno.EACCES))
        with pytest.raises(IngotError, match="cannot be read") as caught:
            _ = folder.keys
        assert caught.value.code is ErrorCode.UNAVAILABLE
    (tmp_path / f"{other.key_id}.pub").unlink()
    assert set(folder.keys) == {key.key_id}


def _failing(number: int) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_trust_folder_that_is_none_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "trust").write_text("")
    with pytest.raises(IngotError) as caught:
        _ = TrustFolder(tmp_path / "trust").keys
    assert caught.value.code is ErrorCode.UNAVAILABLE


def test_an_own_key_that_was_revoked_does_not_come_back(tmp_path: Path) -> None:
    key, _ = local_keys(tmp_path)
    assert remove_trusted(tmp_path / "trust", key.key_id)
    with pytest.raises(IngotError, match="revoked") as caught:
        local_keys(tmp_path)
    assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED
    assert list((tmp_path / "trust").glob("*.pub")) == []
    (tmp_path / "signing.pem").unlink()
    fresh, trust = local_keys(tmp_path)
    assert set(trust.keys) == {fresh.key_id} != {key.key_id}


def test_an_own_key_that_somebody_else_trusts_under_another_name_is_trusted_once(tmp_path: Path) -> None:
    key = SigningKey.load_or_create(tmp_path / "signing.pem")
    (tmp_path / "trust").mkdir()
    (tmp_path / "trust" / "new.pub").write_bytes(public_pem(key.public))
    local_keys(tmp_path)
    assert [path.name for path in (tmp_path / "trust").glob("*.pub")] == ["new.pub"]


def test_missing_key_file(tmp_path: Path) -> None:
    with pytest.raises(IngotError) as caught:
        SigningKey.load(tmp_path / "none.pem")
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_signatures_hold_for_exactly_what_was_signed() -> None:
    key = SigningKey.generate()
    trust = TrustStore.of([key.public])
    signature = key.sign(b"payload")
    trust.verify(b"payload", signature)
    for payload, forged in (
        (b"payloae", signature),
        (b"payload", Signature(key.key_id, signature.value[:-4] + "AAA=")),
        (b"payload", Signature(key.key_id, "not base64!")),
        (b"payload", Signature("0" * 16, signature.value)),
        (b"payload", SigningKey.generate().sign(b"payload")),
    ):
        with pytest.raises(IngotError) as caught:
            trust.verify(payload, forged)
        assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED


def test_trust_directory(tmp_path: Path) -> None:
    keys = [SigningKey.generate() for _ in range(2)]
    for key in keys:
        add_trusted(tmp_path, key.public)
    assert set(TrustStore.load(tmp_path).keys) == {key.key_id for key in keys}
    assert TrustStore.load(tmp_path / "none").keys == {}


def test_local_keys_are_made_once(tmp_path: Path) -> None:
    first, trust = local_keys(tmp_path / "home")
    second, _ = local_keys(tmp_path / "home")
    assert first.key_id == second.key_id
    trust.verify(b"x", second.sign(b"x"))


def test_saving_never_replaces_a_key(tmp_path: Path) -> None:
    first, second = SigningKey.generate(), SigningKey.generate()
    first.save(tmp_path / "k.pem")
    second.save(tmp_path / "k.pem")
    assert SigningKey.load(tmp_path / "k.pem").key_id == first.key_id
    assert [p.name for p in tmp_path.iterdir()] == ["k.pem"]
