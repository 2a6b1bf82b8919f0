"""``ingot trust``: a key counts after somebody has compared its fingerprint, and not before."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from ingot.cli.commands import trust
from ingot.cli.main import main
from shared_ir.artifact.signature import SigningKey, add_trusted, fingerprint, public_pem


class Service:
    """A service that signs with ``key``, as the command sees it."""

    address = "there:8500"

    def __init__(self, key: SigningKey) -> None:
        self.key = key

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def capabilities(self) -> SimpleNamespace:
        return SimpleNamespace(signing_key=public_pem(self.key.public).decode())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(name="key")
def fixture_key(monkeypatch: pytest.MonkeyPatch) -> SigningKey:
    key = SigningKey.generate()
    monkeypatch.setattr(trust, "make_client", lambda arguments: Service(key))
    return key


def keys(home: Path) -> list[str]:
    return sorted(path.stem for path in (home / "trust").glob("*.pub"))


@pytest.mark.parametrize(
    ("answer", "trusted"), [("y\n", True), ("Yes\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_a_person_is_shown_the_fingerprint_and_asked(
    key: SigningKey,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    trusted: bool,
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    status = main(["trust", "--home", str(tmp_path)])
    assert keys(tmp_path) == ([key.key_id] if trusted else [])
    assert status == (0 if trusted else 1)
    assert fingerprint(key.public) in capsys.readouterr().err


def test_a_script_names_the_fingerprint(key: SigningKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    home = ["--home", str(tmp_path)]
    assert main(["trust", *home]) == 1
    for wrong in ("sha256:" + "0" * 64, key.key_id, fingerprint(key.public)[:-1], "sha256:", "-"):
        assert main(["trust", *home, "--fingerprint", wrong]) == 1
    assert keys(tmp_path) == []
    assert main(["trust", *home, "--fingerprint", fingerprint(key.public).upper()]) == 0
    assert keys(tmp_path) == [key.key_id]
    assert main(["trust", *home]) == 0  # it is trusted already: nobody need be asked


def test_keys_are_listed_and_taken_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [SigningKey.generate() for _ in range(2)]
    for key in made:
        add_trusted(tmp_path / "trust", key.public)
    assert main(["trust", "--list", "--json", "--home", str(tmp_path)]) == 0
    shown = {entry["key_id"]: entry["fingerprint"] for entry in json.loads(capsys.readouterr().out)}
    assert shown == {key.key_id: fingerprint(key.public) for key in made}
    assert main(["trust", "--remove", made[0].key_id, "--home", str(tmp_path)]) == 0
    assert keys(tmp_path) == [made[1].key_id]
    for strange in (made[0].key_id, "*", "../trust/" + made[1].key_id, ""):
        main(["trust", "--remove", strange, "--home", str(tmp_path)])
        assert keys(tmp_path) == [made[1].key_id]


@pytest.mark.parametrize("names", [["new.pub"], ["new.pub", "ID.pub"], ["ID.pub", "other ID.pub"]])
def test_a_key_is_taken_away_by_its_id_whatever_its_files_are_called(tmp_path: Path, names: list[str]) -> None:
    key, other = SigningKey.generate(), SigningKey.generate()
    for name in names:
        add_trusted(tmp_path / "trust", key.public).rename(tmp_path / "trust" / name.replace("ID", key.key_id))
    kept = add_trusted(tmp_path / "trust", other.public).rename(tmp_path / "trust" / f"{key.key_id}0.pub")
    assert main(["trust", "--remove", key.key_id, "--home", str(tmp_path)]) == 0
    assert keys(tmp_path) == [kept.stem]
    assert main(["trust", "--remove", kept.stem, "--home", str(tmp_path)]) == 1, "that is the name of a file"
    assert main(["trust", "--remove", key.key_id, "--home", str(tmp_path)]) == 1


def test_a_service_whose_key_is_trusted_under_another_name_is_known(key: SigningKey, tmp_path: Path) -> None:
    add_trusted(tmp_path / "trust", key.public).rename(tmp_path / "trust" / "new.pub")
    assert main(["trust", "--home", str(tmp_path)]) == 0
    assert keys(tmp_path) == ["new"]
