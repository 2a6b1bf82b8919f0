"""What of source trees and other folders of the path a process inside the boundary is given, and what it is never given."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from compiler_service.boundary.imports import ROOT, imports, libraries
from compiler_service.boundary.parts import BoundaryPart, Standing
from compiler_service.boundary.policy import Policy
from compiler_service.boundary.private import held, private_places, without
from compiler_service.boundary.state import LAUNCH, say_standing, standing
from compiler_service.boundary.toolchain import narrowed, toolchain
from compiler_service.settings import CompilerSettings, variable
from compiler_service.stages.local import _beside, _refuse_private
from compiler_service.stages.runner import StageLimits, StageRunner
from shared_ir.errors import IngotError

needs_files = pytest.mark.skipif(BoundaryPart.FILES in standing().missing, reason="this kernel has no Landlock")

TRIES = """
import json, os, pathlib, sys
work = pathlib.Path(sys.argv[1])
got = {}
for path in json.loads((work / "request.json").read_bytes())["options"]["paths"]:
    try:
        got[path] = os.listdir(path) if os.path.isdir(path) else open(path).read()
    except OSError:
        pass
for name in ("ours", "alone", "shared_ir.digest", "production", "numpy"):
    try:
        __import__(name)
        got[name] = True
    except ImportError:
        got[name] = False
(work / "result.json").write_text(json.dumps({"got": got}))
"""


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source tree with an installation below it, as in README's "In production", and in the path."""
    tree = tmp_path / "clone"
    for name in (
        *("ours/__init__.py", "alone.py", ".git/config", "notes.txt", "production/logs/server.log"),
        *("production/home/signing.pem", "production/home/trust/a.pub", "production/store/sources/foreign"),
        *("production/redis/dump.rdb", "production/private/token", "ours/secrets/tls.key"),
    ):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("" if name.endswith(".py") else "secret")
    monkeypatch.setenv("INGOT_HOME", str(tree / "production/home"))
    monkeypatch.setenv("INGOT_STORE_URL", f"file://{tree}/production/store")
    monkeypatch.setenv("INGOT_REDIS_URL", f"unix://{tree}/production/redis/redis.sock")
    monkeypatch.setenv("INGOT_TOKEN_FILE", str(tree / "production/private/token"))
    monkeypatch.setenv("INGOT_TLS_KEY", str(tree / "ours/secrets/tls.key"))
    return tree


def tried(tmp_path: Path, paths: list[Path]) -> Mapping[str, Any]:
    """What a stage can read of ``paths``, and which modules it can import."""
    (tmp_path / "tries.py").write_text(TRIES)
    (tmp_path / "work").mkdir()
    request = {"stage": "build", "options": {"paths": [str(path) for path in paths]}}
    limits = StageLimits(memory=4 * 1024**3, seconds=60)
    runner = StageRunner((sys.executable, str(tmp_path / "tries.py")), limits, tmp_path / "cache")
    got: Mapping[str, Any] = runner.run(tmp_path / "work", request, lambda _: None, lambda: False)["got"]
    return got


@needs_files
@pytest.mark.parametrize("name", ["PYTHONPATH", "LD_LIBRARY_PATH"])
@pytest.mark.parametrize("above", [".", "..", "production", "production/home"])
def test_a_folder_of_the_path_gives_nothing_that_lies_in_it(
    name: str, above: str, clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, os.path.normpath(clone / above))
    places = [p for p in clone.rglob("*") if "ours" not in p.parts or "secrets" in p.parts]
    got = tried(tmp_path, [clone, *(p for p in places if p.name != "alone.py")])
    assert [path for path in got if os.path.isabs(path)] == []
    assert got["numpy"]
    assert got["shared_ir.digest"]
    assert not got["production"]
    whole = name == "PYTHONPATH" and above == "."
    assert (got["ours"], got["alone"]) == (whole, whole)


@needs_files
def test_our_own_tree_is_not_listed(tmp_path: Path) -> None:
    got = tried(tmp_path, [ROOT, ROOT / "docs", ROOT / "pyproject.toml", ROOT / ".git"])
    assert [path for path in got if os.path.isabs(path)] == []
    assert got["shared_ir.digest"]


@needs_files
def test_an_installed_folder_is_given_whole_unless_it_holds_something(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (clone / "ours-1.dist-info").mkdir()
    (clone / "space").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(clone))
    assert imports(str(clone), private_places()).folders == ()
    assert imports(str(clone), ()).folders == (str(clone),)
    assert str(clone / "notes.txt") not in tried(tmp_path, [clone / "notes.txt"])


def test_a_place_that_a_grant_leads_to_all_the_same_is_a_missing_part(tmp_path: Path) -> None:
    """Found by trying, whatever gave it."""
    key = tmp_path / "signing.pem"
    key.write_text("secret")
    policy = tmp_path / "policy"
    for grants, missing in (((), False), (((str(tmp_path), "read"),), True)):
        policy.write_bytes(Policy((*toolchain(), *grants), kept_out=(str(key),)).to_json())
        done = subprocess.run([*LAUNCH, str(policy)], capture_output=True, text=True, timeout=60, check=True)
        found = Standing.from_dict(json.loads(done.stdout)).missing
        if standing().holds(BoundaryPart.FILES):
            assert (str(key) in found.get(BoundaryPart.FILES, "")) is missing


@needs_files
def test_an_installation_whose_home_is_this_python_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INGOT_HOME", sys.prefix)
    assert all(not held(path, [os.path.realpath(sys.prefix)]) for path, _ in toolchain())
    assert any(sys.prefix in sentence for sentence in narrowed())
    assert sys.prefix in standing.__wrapped__().missing[BoundaryPart.FILES]


def test_what_is_given_in_part_is_said_at_the_start(
    clone: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(clone))
    with caplog.at_level(logging.INFO):
        say_standing(logging.getLogger("test"))
    (said,) = (record for record in caplog.records if str(clone) in record.getMessage())
    assert said.levelno == logging.WARNING
    assert "production/home" in said.getMessage()


def test_every_setting_that_names_a_place_is_kept_out() -> None:
    """Also those that come later: what looks like a path is one."""
    not_secret = {"compiler_host", "tls_certificate", "tls_client_ca"}
    for own in fields(CompilerSettings):
        if own.type in ("str", "Path") and own.name not in not_secret:
            assert "/some/place" in private_places({variable(own.name): "/some/place"}), own.name
    assert "/some/redis" in private_places({"INGOT_REDIS_URL": "unix:///some/redis/redis.sock?db=1"})
    assert "/some/a b" in private_places({"INGOT_STORE_URL": "file:///some/a%20b"})
    assert "/some/key" in private_places({"AWS_SHARED_CREDENTIALS_FILE": "/some/key"})
    assert os.path.abspath("home") in private_places({"INGOT_HOME": "home"})
    assert "/dev/null" not in private_places({"INGOT_LIVENESS_FILE": "/dev/null"})


def test_the_store_whose_address_lies_in_a_file_is_kept_out(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("file:///some/store\n")
    places = private_places({"INGOT_STORE_URL_FILE": str(tmp_path / "url")})
    assert {"/some/store", str(tmp_path / "url")} <= set(places)


def test_a_folder_without_what_lies_in_it(tmp_path: Path) -> None:
    for name in ("a/b/key", "a/b/other", "a/c", "d"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "all").symlink_to("/")
    key = str(tmp_path / "a/b/key")
    assert set(without(str(tmp_path), [key])) == {str(tmp_path / name) for name in ("a/b/other", "a/c", "d")}
    assert list(without(str(tmp_path), ["/elsewhere", f"{tmp_path}-too"])) == [str(tmp_path)]
    assert list(without(key, [key])) == []
    assert list(without(f"{key}/below", [key])) == [f"{key}/below"]


def test_libraries_alone_are_given_of_the_path_of_libraries(tmp_path: Path) -> None:
    for name in ("liba.so", "libb.so.1.2", "key.pem", "glibc-hwcaps/x86-64-v3/liba.so", "below/libc.so"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = {os.path.relpath(path, tmp_path) for path in libraries(f"relative:{tmp_path}")}
    assert found == {"liba.so", "libb.so.1.2", "glibc-hwcaps/x86-64-v3/liba.so"}


def test_beside_a_model_nothing_private_is_given(clone: Path) -> None:
    production = clone / "production"
    assert {Path(path).name for path, _ in _beside(production)} == {"logs"}
    assert list(_beside(production / "home")) == []
    for folder in (clone, production / "home"):
        with pytest.raises(IngotError, match="DUMP"):
            _refuse_private(folder)
    _refuse_private(production / "logs")
