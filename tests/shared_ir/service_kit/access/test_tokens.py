"""The file of tokens, and who it lets in as it changes."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from shared_ir.errors import Blame, ErrorCode, IngotError
from shared_ir.service_kit.access.gate import FileOfTokens, OpenGate, SingleToken, make_gate
from shared_ir.service_kit.access.principal import EVERY_SCOPE, Principal, Quota, TokenScope, check_namespace
from shared_ir.service_kit.access.token_file import TokenFile, editing, hash_of, read_token_file, scopes_of

CI = Principal("ci", "vision", frozenset({TokenScope.READ, TokenScope.UPLOAD}))


@pytest.fixture(name="file")
def fixture_file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def add(file: Path, principal: Principal = CI, expires: float = 0.0) -> str:
    with editing(file) as held:
        held[0], token = held[0].with_token(principal, expires)
    return token


def refused(gate: Any, header: str | bytes | None) -> IngotError:
    with pytest.raises(IngotError) as caught:
        gate.caller(header)
    return caught.value


def test_the_file_holds_hashes_alone(file: Path) -> None:
    token = add(file)
    assert len(token) > 40
    assert token not in file.read_text()
    assert hash_of(token) in file.read_text()
    assert FileOfTokens(file).caller(f"Bearer {token}") == CI
    assert FileOfTokens(file).caller(f"BEARER {token}".encode()) == CI


def test_who_has_no_token_of_the_file_is_not_let_in(file: Path) -> None:
    token = add(file)
    gate = FileOfTokens(file)
    for header in (
        None,
        "",
        token,
        f"bearer{token}",
        f"Basic {token}",
        f"Bearer {token}x",
        f"Bearer {hash_of(token)}",
        b"\xff",
        "Bearer ",
    ):
        error = refused(gate, header)
        assert (error.code, error.blame) == (ErrorCode.UNAUTHENTICATED, Blame.USER)
        assert token not in str(error)


def test_changes_count_from_the_next_call_on(file: Path) -> None:
    first = add(file)
    gate = FileOfTokens(file)
    second = add(file, Principal("other", scopes=frozenset({TokenScope.READ})))
    assert gate.caller(f"Bearer {second}").user == "other"
    with editing(file) as held:
        held[0] = held[0].without("ci").with_quota("vision", {"jobs": 3})
    assert refused(gate, f"Bearer {first}").code is ErrorCode.UNAUTHENTICATED
    third = add(file, Principal("third", "vision"))
    assert gate.caller(f"Bearer {third}").quota == Quota(jobs=3)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"version": 2, "tokens": []}', '{"version": 1}', None])
def test_a_file_that_is_damaged_or_gone_lets_nobody_in(file: Path, damage: str | None) -> None:
    token = add(file)
    whole = file.read_bytes()
    gate = FileOfTokens(file, SingleToken("root"))
    file.unlink() if damage is None else file.write_text(damage)
    error = refused(gate, f"Bearer {token}")
    assert (error.code, error.blame) == (ErrorCode.UNAVAILABLE, Blame.SERVICE)
    assert str(file) not in str(error)
    again = refused(gate, f"Bearer {token}")
    assert again is not error  # else it would have the frames of every call that was refused
    assert gate.caller("Bearer root").scopes == EVERY_SCOPE
    file.write_bytes(whole)
    assert gate.caller(f"Bearer {token}") == CI
    if damage is not None:
        file.write_text(damage)
        with pytest.raises(IngotError, match="cannot be used"):
            FileOfTokens(file)


def test_a_token_expires(file: Path) -> None:
    token = add(file, expires=1000.0)
    now = 999.0
    gate = FileOfTokens(file, clock=lambda: now)
    assert gate.caller(f"Bearer {token}") == CI
    now = 1000.0
    assert "has expired" in refused(gate, f"Bearer {token}").message


def test_what_is_not_known_is_kept(file: Path) -> None:
    """A later release may write more, and this one edit its file."""
    entry = {"id": "new", "sha256": "0" * 64, "scopes": ["read", "fly"], "colour": "red"}
    file.write_text(json.dumps({"version": 1, "tokens": [entry], "namespaces": {"a": {"gpus": 1}}, "more": 1}))
    add(file)
    with editing(file) as held:
        held[0] = held[0].with_quota("a", {"jobs": 1})
    document = json.loads(file.read_text())
    assert document["tokens"][0] == entry
    assert document["namespaces"]["a"] == {"gpus": 1, "jobs": 1}
    assert document["more"] == 1
    assert read_token_file(file).grants[0].principal.scopes == {TokenScope.READ}


def test_ids_scopes_and_namespaces_are_checked(file: Path) -> None:
    add(file)
    for principal, code in (
        (CI, ErrorCode.ALREADY_EXISTS),
        (Principal("a b"), ErrorCode.INVALID_ARGUMENT),
        (Principal("b", "A"), ErrorCode.INVALID_ARGUMENT),
    ):
        with pytest.raises(IngotError) as caught:
            add(file, principal)
        assert caught.value.code is code
    for bad in ("", "a.b", "-a", "a--b", "a" * 33, "a/b"):
        with pytest.raises(IngotError):
            check_namespace(bad)
    assert check_namespace("team-a1") == "team-a1"
    for names in ([], ["read", "fly"]):
        with pytest.raises(IngotError, match="scopes that exist"):
            scopes_of(names)
    with pytest.raises(IngotError) as caught:
        CI.require(TokenScope.READ, TokenScope.LABEL, TokenScope.DELETE)
    assert (caught.value.code, caught.value.expected) == (ErrorCode.PERMISSION_DENIED, "label, delete")


def test_a_file_that_anyone_may_write_is_refused(file: Path) -> None:
    add(file)
    os.chmod(file, 0o666)
    with pytest.raises(IngotError, match="everyone may write"):
        FileOfTokens(file)


def test_two_who_edit_at_once_lose_nothing(file: Path) -> None:
    threads = [threading.Thread(target=add, args=(file, Principal(f"user{n}"))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_token_file(file).grants) == 8


def test_gates_of_settings(file: Path) -> None:
    add(file)
    assert isinstance(make_gate("", None), OpenGate)
    assert isinstance(make_gate("x", None), SingleToken)
    gate = make_gate("x", file)
    assert gate.caller("Bearer x").namespace == ""
    assert TokenFile.empty().grants == ()
