"""Keys, signatures and who is trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared_ir.artifact.signature import Signature, SigningKey, TrustStore, add_trusted, local_keys
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
    (tmp_path / "k.pub").write_text(text)
    with pytest.raises(IngotError, match="not an ed25519 public key"):
        TrustStore.load(tmp_path)


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
