"""A measuring server that others could reach starts with what guards it, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from ingot.device.settings import DeviceSettings
from ingot.device.trust import trust_at
from ingot.devices import connect
from ingot.server_address import device_address
from shared_ir.artifact.signature import SigningKey, public_pem
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.tls import TlsFiles

TRUST = Path("key.pub")
TLS = TlsFiles(Path("a"), Path("b"))


@pytest.mark.parametrize("listen", ["0.0.0.0:50070", "[::]:50070", "board:50070", "192.168.1.7:1"])
def test_others_need_a_token_and_tls(listen: str) -> None:
    for token, tls, is_plain, missing in (
        ("", None, False, "--token-file"),
        ("", TLS, False, "--token-file"),
        ("", None, True, "--token-file"),
        ("t", None, False, "--tls-certificate"),
    ):
        with pytest.raises(IngotError) as caught:
            DeviceSettings(TRUST, listen, token, tls, is_plain)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        assert missing in caught.value.expected
    DeviceSettings(TRUST, listen, "t", TLS)
    DeviceSettings(TRUST, listen, "t", is_plain=True)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:50070", "[::1]:50070"])
def test_this_machine_alone_needs_neither(listen: str) -> None:
    assert DeviceSettings(TRUST, listen).listen == listen


@pytest.mark.parametrize("listen", ["", "50070", "127.0.0.1:70000", "127.0.0.1:x"])
def test_addresses_that_are_none(listen: str) -> None:
    with pytest.raises(IngotError):
        DeviceSettings(TRUST, listen)


def test_a_core_that_is_not_there() -> None:
    with pytest.raises(IngotError, match="may not use that core"):
        DeviceSettings(TRUST, core=max(os.sched_getaffinity(0)) + 1)


def test_an_emulator_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("ingot.device.settings.find_emulator", lambda architecture: None)
    with pytest.raises(IngotError, match="no emulator of riscv64"):
        DeviceSettings(TRUST, emulates=("riscv64",))


def test_a_key_or_a_folder_of_keys_is_trusted(tmp_path: Path) -> None:
    key = SigningKey.generate()
    (tmp_path / "tuner.pub").write_bytes(public_pem(key.public))
    folder = trust_at(tmp_path)
    assert list(trust_at(tmp_path / "tuner.pub").keys) == list(folder.keys) == [key.key_id]
    (tmp_path / "tuner.pub").unlink()
    assert not folder.keys, "a key that is taken away counts no longer"
    with pytest.raises(IngotError) as caught:
        trust_at(tmp_path / "tuner.pub")
    assert caught.value.code is ErrorCode.NOT_FOUND
    (tmp_path / "junk").write_text("junk")
    with pytest.raises(IngotError) as caught:
        trust_at(tmp_path / "junk")
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("board", "board:50070"),
        ("board:7", "board:7"),
        ("10.0.0.7", "10.0.0.7:50070"),
        ("::1", "[::1]:50070"),
        ("[::1]", "[::1]:50070"),
        ("[fe80::1]:7", "[fe80::1]:7"),
    ],
)
def test_addresses_of_devices(text: str, whole: str) -> None:
    assert device_address(text) == whole


@pytest.mark.parametrize("text", ["", "a b", "board:", "board:0", "board:70000", "user@board", "board/x"])
def test_what_is_no_address_of_a_device(text: str) -> None:
    with pytest.raises(IngotError):
        device_address(text)


def test_a_device_that_does_not_run_is_said_with_what_starts_it() -> None:
    with pytest.raises(IngotError) as caught:
        connect(["127.0.0.1:1"], host_target(), SigningKey.generate())
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert "`ingot device serve`" in caught.value.remedy
