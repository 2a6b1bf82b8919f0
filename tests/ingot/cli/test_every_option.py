"""No option of any command is taken and ignored: in each way of using a command it has an effect, or is refused by name."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from compiler_service.compiler.tune.records.lines import write_lines
from ingot.artifact import save_artifacts
from ingot.cli.commands.tokens import TOKENS_FILE
from ingot.cli.main import make_parser
from ingot.cli.usage import commands
from ingot.home import Addresses
from shared_ir.artifact.signature import SigningKey, add_trusted, fingerprint, local_keys
from shared_ir.service_kit.access.principal import Principal, TokenScope
from shared_ir.service_kit.access.token_file import editing, scopes_of
from tests.compiler_service.compiler.tune.records.trials import OTHER, trial, workload
from tests.ingot.cli.recorder import Outcome, Recorder, error_of, record, run
from tests.ingot.small_models import classifier
from tests.services.artifacts import toy_artifact

KEY = "FINGERPRINT"
_TLS = "--tls-certificate own.pem --tls-key own.key --tls-client-ca ca.pem"
WAYS: dict[str, tuple[str, ...]] = {
    "up": ("", "--free-ports"),
    "compile": ("net.onnx", "net.onnx --out out", "net.onnx --local", "net.onnx --no-wait"),
    "models": ("", "net", "net --set-label canary=1", "net --delete", "net --out out"),
    "targets": ("", "--local"),
    "check": ("net.onnx", "net.onnx --local"),
    "trust": (f"--fingerprint {KEY}", "--list", "--remove KEY_ID"),
    "events": ("", "net"),
    "jobs": ("", "1", "1 --watch", "1 --cancel", "1 --retry", "1 --reproducer", "1 --log"),
    "top": ("", "--once"),
    "infer": ("net", "net --http"),
    "run": ("folder --tag a",),
    "profile": ("folder --tag a",),
    "inspect": ("net.onnx", "net.onnx --graph", "folder"),
    "tokens new": ("me --scope read",),
    "tokens remove": ("me",),
    "tokens list": ("",),
    "tokens quota": ("team --max-jobs 1",),
    "tune": ("net.onnx", "net.onnx --device board"),
    "records list": ("",),
    "records best": ("",),
    "records prune": ("",),
    "records import": ("given.jsonl",),
    "records export": ("exported.jsonl",),
    "device serve": ("--trust key.pub", f"--trust key.pub {_TLS}"),
    "device status": ("board",),
    "device key": ("",),
}
"""Every way of using every command. A new command has its ways here."""

VALUES: dict[str, str] = {
    "address": "there:1",
    "token": "secret",
    "home": "other",
    "name": "other",
    "target": "aws/graviton3",
    "label": "canary",
    "tune": "3",
    "effort": "quick",
    "seconds": "7",
    "records": "mine.jsonl",
    "plot": "plot.png",
    "device": "another",
    "overridable": "w",
    "verification": "required",
    "out": "out2",
    "shape": "x=1,h",
    "opt_level": "0",
    "limit": "3",
    "state": "failed",
    "set_label": "canary=1",
    "delete_label": "stable",
    "version": "3",
    "fingerprint": KEY,
    "remove": "KEY_ID",
    "input": "x=random:3x4",
    "repeat": "3",
    "save": "saved",
    "executor": "graph",
    "tag": "a",
    "threads": "3",
    "size": "batch=8",
    "compiler_port": "7",
    "grpc_port": "8",
    "http_port": "9",
    "models": "net@latest",
    "scope": "delete",
    "namespace": "team",
    "days": "3",
    "file": "other.json",
    "max_bytes": "5",
    "max_jobs": "5",
    "max_running_stages": "5",
    "ca_certificate": "ca.pem",
    "client_certificate": "me.pem",
    "client_key": "me.key",
    "etag": "7",
    "prefix": "ne",
    "delete_version": "1",
    "action": "publish",
    "by": "ann",
    "user": "ann",
    "stage": "build",
    "deadline": "60",
    "priority": "3",
    "since": "2026-05-31",
    "until": "2026-05-31",
    "interval": "3",
    "sort": "memory",
    "keep": "1",
    "trust": "other.pub",
    "listen": "127.0.0.1:7",
    "token_file": "secret.txt",
    "tls_certificate": "own.pem",
    "tls_key": "own.key",
    "tls_client_ca": "ca.pem",
    "emulate": "aarch64",
    "core": "0",
    "cache_bytes": "2000000",
    "memory_bytes": "2000000",
}
"""A value for every option that takes one. A new option has its value here."""


_NO_NUMBER = ("many", "-", "nan", "1e400", "1.5", "0x10", "-99")
NONSENSE: dict[str, tuple[str, ...]] = {
    "address": ("nowhere", "127.0.0.1:87036", "h:0", ":8500", "http://h:1"),
    "tune": (*_NO_NUMBER, "", "slow", "86401"),
    "keep": (*_NO_NUMBER, "0"),
    "opt_level": (*_NO_NUMBER, "4"),
    "limit": _NO_NUMBER,
    "repeat": (*_NO_NUMBER, "0"),
    "threads": (*_NO_NUMBER, "0"),
    "compiler_port": (*_NO_NUMBER, "65536"),
    "grpc_port": (*_NO_NUMBER, "65536"),
    "http_port": (*_NO_NUMBER, "65536"),
    "days": ("many", "-", "nan", "inf", "0", "-1"),
    "max_bytes": _NO_NUMBER,
    "max_jobs": _NO_NUMBER,
    "max_running_stages": _NO_NUMBER,
    "delete_version": (*_NO_NUMBER, "0"),
    "deadline": (*_NO_NUMBER, "0"),
    "priority": (*_NO_NUMBER, "10"),
    "verification": ("sometimes", ""),
    "executor": ("other", ""),
    "shape": ("", "x", "=", "=1,2", "x=1,,2", "x=,"),
    "size": ("", "batch", "batch=", "=8", "batch=many", "batch=-1"),
    "input": ("", "x", "x=", "=file.npy", "x=random:a", "x=random:1x", "x=random:-1"),
    "set_label": ("", "stable", "stable=", "=1", "stable=new", "stable=0", "stable=-1", "a b=1", "latest=1", "all=1"),
    "delete_label": ("", "a b", "../x"),
    "name": ("", "../x", "a b"),
    "label": ("", "../x", "a b"),
    "state": ("lost", "finished?"),
    "stage": ("link", "built"),
    "action": ("explode", "publish,collect"),
    "scope": ("", "everything", "read,", "read;delete"),
    "since": ("yesterday", "2026-13-01", "12"),
    "until": ("yesterday", "2026-13-01", "12"),
    "effort": ("", "much"),
    "device": ("", "board:", "board:87036", "http://board:1"),
    "seconds": ("many", "nan", "0", "-1", "1e9"),
    "interval": ("often", "nan", "0", "-1", "1e9"),
    "sort": ("size", ""),
    "emulate": ("", "sparc", "aarch64,"),
    "core": _NO_NUMBER,
    "cache_bytes": (*_NO_NUMBER, "1000"),
    "memory_bytes": (*_NO_NUMBER, "1000"),
}
"""What is no value of an option whose values have a form."""


_BY_HALF = {(name, 1) for name in ("tls_certificate", "tls_key", "tls_client_ca")}


def ends_well(command: str, action: argparse.Action, status: int) -> bool:
    """Another home trusts other keys; no job can be followed without its id; what serves is left by Ctrl-C, and has its TLS files whole;
    and the other file holds tokens, which no command of records writes over."""
    special = {("up", 130), ("device serve", 130), ("jobs", 1)}
    foreign = action.dest == "file" and command in ("records prune", "records import")
    return (
        status == 0
        or (command, status) in special
        or (action.dest, status) in {("home", 1), *_BY_HALF}
        or (foreign and status == 1)
    )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, two homes, the keys of a service, and a folder of two versions."""
    place = tmp_path_factory.mktemp("prepared")
    (place / "net.onnx").write_bytes(classifier().SerializeToString())
    for home in ("home", "other"):
        local_keys(place / home)
        Addresses(f"{home}:1", f"{home}:2", f"{home}:3", f"{home}:4", f"{home}:5").write(place / home)
    local_keys(place / "service")
    known = [
        trial(confirmed=True),
        trial(workload(64)),
        trial(compiler="old"),
        trial(rule="other"),
        trial(target=str(OTHER)),
    ]
    (place / "home" / "records.jsonl").write_bytes(write_lines(known))
    (place / "given.jsonl").write_bytes(write_lines([trial(machine="another")]))
    (place / "secret.txt").write_text("secret")
    for tag in ("a", "b"):
        save_artifacts([toy_artifact("net")], place / "folder", tag, place / "home")
    return place


@pytest.fixture
def recorder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shared_ir.service_kit.access.token_file.secrets.token_urlsafe", counted)
    return record(tmp_path / "home", monkeypatch)


def spelled(text: str) -> list[str]:
    own = SigningKey.load(Path("home", "signing.pem"))
    known = {KEY: fingerprint(local_keys(Path("service"))[0].public), "KEY_ID": own.key_id}
    return [known.get(word, word) for word in text.split()]


def seen(recorder: Recorder, command: str, words: Sequence[str]) -> Outcome:
    """As if for the first time."""
    for place in ("saved", "out2"):
        shutil.rmtree(place, ignore_errors=True)
    add_trusted(Path("home", "trust"), SigningKey.load(Path("home", "signing.pem")).public)
    for home in ("home", "other"):
        Path(home, "trust", f"{local_keys(Path('service'))[0].key_id}.pub").unlink(missing_ok=True)
    drawn.clear()
    write_tokens("" if command == "tokens new" else "me")
    outcome = run(recorder, *command.split(), *words)
    if command.startswith("tokens "):
        outcome = replace(outcome, printed=outcome.printed + tokens_text())
    assert "Traceback" not in outcome.errors
    return outcome


drawn: list[int] = []


def counted(count: int) -> str:
    """In place of what is random: the same each time that a command is looked at."""
    drawn.append(count)
    return "a" * count + str(len(drawn))


def tokens_text() -> str:
    """What the files of tokens say, but for times, which differ by a second now and then."""
    texts = (path.read_text() for path in (Path("home", TOKENS_FILE), Path("other.json")) if path.exists())
    return re.sub(r'"(created|expires)": "20[^"]*"', r'"\1": "then"', "".join(texts))


def write_tokens(user: str) -> None:
    """Files of tokens, that of the home with one for ``user``, the other with one more."""
    for path, users in ((Path("home", TOKENS_FILE), [user]), (Path("other.json"), [user, "else"])):
        path.unlink(missing_ok=True)
        with editing(path) as held:
            for each in filter(None, users):
                held[0], _ = held[0].with_token(Principal(each, "", scopes_of([TokenScope.READ])))


def test_every_command_and_option_is_walked() -> None:
    found = commands(make_parser())
    assert set(found) == set(WAYS)
    taking = {a.dest for own in found.values() for a in own._actions if a.option_strings and a.nargs != 0}
    assert taking == set(VALUES)


@pytest.mark.parametrize("command", sorted(WAYS))
def test_options_have_an_effect_or_are_refused(recorder: Recorder, command: str) -> None:
    parser = commands(make_parser())[command]
    options = [action for action in parser._actions if action.option_strings and action.dest != "help"]
    used = set()
    for way in WAYS[command]:
        seen(recorder, command, spelled(way))  # makes what is made once
        base = seen(recorder, command, spelled(way))
        assert (command, base.status) in {(command, 0), ("up", 130), ("device serve", 130)}, (way, base.errors)
        for action in options:
            option = action.option_strings[-1]
            value = [] if action.nargs == 0 else spelled(VALUES[action.dest])
            here = option in way.split()
            words = [*spelled(way), option, *value]
            other = seen(recorder, command, without(spelled(way), action) if here else words)
            if other.status == 2 and not here:
                assert any(word in other.errors for word in words if word.startswith("--")), (way, option)
                assert other.calls == (), "it was refused after the work"
                continue
            assert other != base, f"ingot {command} {way} {option}: taken and ignored"
            assert here or ends_well(command, action, other.status), (words, other.errors)
            used.add(option)
    assert {action.option_strings[-1] for action in options} == used, "there is no way to use it"


def without(words: list[str], action: argparse.Action) -> list[str]:
    start = words.index(action.option_strings[-1])
    return words[:start] + words[start + (1 if action.nargs == 0 else 2) :]


@pytest.mark.parametrize(
    "words",
    [
        "",
        "bogus",
        "compile",
        "compile net.onnx --opt-level 7",
        "compile net.onnx --tune many",
        "compile net.onnx --unknown",
        "compile net.onnx --loc",
        "jobs 1 --watch --cancel",
        "jobs 1 --state failed",
        "jobs --limit 0",
        "jobs --since yesterday",
        "jobs --until 2026-13-01",
        "jobs --log",
        "jobs --cancel",
        "events --since yesterday",
        "events --limit -1",
        "models --limit -1",
        "models net --delete-version 0",
        "tokens new ann --scope read --days nan",
        "tokens quota vision --max-jobs -1",
        "models --set-label stable=1",
        "models --out somewhere",
        "models net --version 3",
        "inspect folder --graph",
        "inspect net.onnx --tag a",
        "run folder --threads 0",
        "run folder --executor other",
        "up --http-port 65536",
        "up --http-port -1",
        "trust --list --remove a",
    ],
)
def test_wrong_usage_is_a_sentence_and_json_where_json_is_asked_for(recorder: Recorder, words: str) -> None:
    told = run(recorder, *words.split())
    assert (told.status, told.printed, told.calls) == (2, "", ())
    assert told.errors.startswith("error: ")
    assert told.errors.count("\n") == 1
    for place in (0, len(words.split())):
        texts = words.split()
        texts.insert(place, "--json")
        asked = run(recorder, *texts)
        assert asked.status == 2
        assert error_of(asked)["code"] == "INVALID_ARGUMENT"


def has_form(action: argparse.Action) -> bool:
    return bool(action.choices) or action.type not in (None, Path)


def test_every_option_whose_values_have_a_form_is_given_what_has_none() -> None:
    found = [a for own in commands(make_parser()).values() for a in own._actions if a.option_strings and a.nargs != 0]
    assert {a.dest for a in found if has_form(a)} == set(NONSENSE)


@pytest.mark.parametrize("command", sorted(WAYS))
def test_nonsense_is_wrong_usage_before_anything_is_done(recorder: Recorder, command: str) -> None:
    parser = commands(make_parser())[command]
    for action in (own for own in parser._actions if own.option_strings and has_form(own)):
        for way, nonsense in product(WAYS[command], NONSENSE[action.dest]):
            words = [*command.split(), *spelled(way), f"{action.option_strings[-1]}={nonsense}"]
            told, asked = run(recorder, *words), run(recorder, *words, "--json")
            assert (told.status, told.printed, told.calls) == (2, "", ()), words
            assert told.errors.startswith("error: "), words
            assert told.errors.count("\n") == 1, words
            assert (asked.status, error_of(asked)["code"]) == (2, "INVALID_ARGUMENT"), words


def test_every_number_has_a_range() -> None:
    """``int`` takes -1, ``float`` takes nan and inf: an option has a range, or choices."""
    walked = ((words, own) for words, parser in commands(make_parser()).items() for own in parser._actions)
    assert [(words, own.dest) for words, own in walked if own.type in (int, float) and not own.choices] == []


@pytest.mark.parametrize("command", sorted(WAYS))
def test_every_command_says_in_json_what_it_does_not_know(recorder: Recorder, command: str) -> None:
    asked = run(recorder, *command.split(), *spelled(WAYS[command][0]), "--nonsense", "--json")
    assert asked.status == 2
    assert "--nonsense" in error_of(asked)["message"]
    assert asked.calls == ()


@pytest.mark.parametrize(
    "words",
    [
        "models net --set-label a=1 --set-label a=2",
        "check net.onnx --shape x=1 --shape x=2",
        "infer net --input x=a --input x=b",
        "run folder --input x=a --input x=b",
        "inspect folder --size n=1 --size n=2",
    ],
)
def test_of_two_values_none_is_ignored(recorder: Recorder, words: str) -> None:
    told = run(recorder, *words.split())
    assert (told.status, told.calls) == (2, ())
    assert "two things" in told.errors
