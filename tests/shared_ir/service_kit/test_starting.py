"""What keeps a service from starting is one sentence, whatever it is, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compiler_service import server
from compiler_service import settings as compiler
from compiler_service.wiring import make_parts
from runtime_service import settings as runtime
from runtime_service.server import store_source
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.http.hosts import Hosts
from shared_ir.service_kit.starting import at_start, require_place
from tests.services.toy_compiler import ToyCompiler
from tests.shared_ir.service_kit.both_settings import settings_of

ROOT = Path(__file__).parents[3]
NOWHERE = "/proc/nowhere"
"""The kernel's own folder: nobody may make files in it, whoever he is."""


_NO_SOCKETS = ("", " ", "/", "/run/", ".", "/" + "x" * 107)
"""Paths of which no socket can have one."""


@pytest.mark.parametrize(
    ("module", "name", "text"),
    [
        *((compiler, "compiler_port", text) for text in ("65536", "70000", "-1", "9" * 20)),
        *((compiler, "compiler_metrics_port", text) for text in ("65536", "-2")),
        *((compiler, "redis_url", text) for text in ("", "nonsense", "http://x", "redis://", "unix://")),
        *((compiler, "redis_url", text) for text in ("redis://h:70000/0", "redis://h:x/0", "redis://h/zero")),
        *((compiler, name, "9" * 30) for name in ("job_seconds", "lease_seconds", "keep_jobs_seconds")),
        *((compiler, name, "9" * 30) for name in ("drain_seconds", "visibility_seconds", "max_model_bytes")),
        *((compiler, name, "9" * 30) for name in ("job_memory", "max_jobs", "max_watchers", "workers", "job_threads")),
        (compiler, "home", ""),
        (compiler, "job_memory", "1"),
        (compiler, "job_seconds", "0"),
        *((module, "token", text) for module in (compiler, runtime) for text in ("a\nb", "é")),
        *((runtime, "grpc_address", text) for text in ("nonsense", "127.0.0.1")),
        *((runtime, "grpc_address", f"127.0.0.1:{port}") for port in (65536, -1, "x")),
        *((runtime, name, "9" * 30) for name in ("max_in_flight", "instances", "cores", "drain_timeout")),
        *((runtime, name, "9" * 30) for name in ("poll_interval", "max_request_bytes", "run_memory_bytes")),
        (runtime, "home", " "),
        *((runtime, "poll_interval", text) for text in ("0", "1e-9", "0.09")),
        *((runtime, name, "30000") for name in ("instances", "cores")),
        (runtime, "max_in_flight", "1000000"),
        (runtime, "max_queue_delay_microseconds", str(10**10)),
        *((runtime, f"{name}_address", f"unix:{path}") for name in ("http", "metrics") for path in _NO_SOCKETS),
        *((runtime, "hosts", text) for text in ("http://a", "a b", "a:80")),
        *((compiler, "compiler_hosts", text) for text in ("http://a", "a b", "a:80")),
    ],
)
def test_values_that_nothing_can_be_made_of_are_refused_by_name(module: Any, name: str, text: str) -> None:
    with pytest.raises(IngotError) as caught:
        settings_of(module).from_environment({module.variable(name): text})
    assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, module.variable(name))


@pytest.mark.parametrize("module", [compiler, runtime])
@pytest.mark.parametrize("text", ["9" * 30, "-2"])
def test_every_number_has_limits(module: Any, text: str) -> None:
    defaults = settings_of(module)()
    numbers = [
        name for name in settings_of(module).__dataclass_fields__ if type(getattr(defaults, name)) in (int, float)
    ]
    assert len(numbers) > 10
    for name in numbers:
        with pytest.raises(IngotError, match="out of range") as caught:
            settings_of(module).from_environment({module.variable(name): text})
        assert caught.value.field == module.variable(name)


def test_what_is_within_the_limits_is_taken() -> None:
    given = {
        "poll_interval": 0.1,
        "instances": 64,
        "max_in_flight": 10_000,
        "http_address": "unix:/run/ingot.sock",
        "hosts": "models.example.com,.example.org",
    }
    found = runtime.RuntimeSettings.from_environment(
        {runtime.variable(name): str(each) for name, each in given.items()}
    )
    assert {name: getattr(found, name) for name in given} == given


@pytest.mark.parametrize("port", ["70000", "-2"])
@pytest.mark.parametrize("option", ["--port", "--metrics-port"])
def test_options_have_the_ranges_of_settings(
    option: str, port: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They stand for settings; gRPC takes port 70000, and listens on another."""
    for step in ("prepare_process", "start_log", "start_tracing"):  # of a process of its own
        monkeypatch.setattr(server, step, lambda *_, **__: None)
    monkeypatch.setattr(server, "serve", lambda *_: 0)
    for name in [name for name in os.environ if name.startswith("INGOT_")]:
        monkeypatch.delenv(name)
    assert server.main([option, "0"]) == 0
    assert server.main([option, port]) == 1
    assert f"out of range; at field 'INGOT_COMPILER{option.upper()[1:].replace('-', '_')}'" in capsys.readouterr().err


def test_every_number_has_a_largest_value() -> None:
    """A new setting too: what no clock, table or disk holds fails later, elsewhere, and by another name."""
    for module in (compiler, runtime):
        for name in settings_of(module).__dataclass_fields__:
            if type(getattr(settings_of(module)(), name)) in (int, float):
                with pytest.raises(IngotError, match="out of range"):
                    settings_of(module).from_environment({module.variable(name): "9" * 30})


def test_the_password_of_a_redis_is_not_shown() -> None:
    with pytest.raises(IngotError) as caught:
        compiler.CompilerSettings.from_environment({"INGOT_REDIS_URL": "redis://:hunter2@h:70000/0"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("place", [NOWHERE, "file", "file/below"])
@pytest.mark.parametrize("name", ["home", "cache_dir", "trust", "signing_key", "store_url", "liveness_file"])
def test_places_that_cannot_be_used_are_said(
    name: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch(mode=0o600)
    named = Path(place).absolute()
    wrong: Any = named if name == "home" else named.as_uri() if name == "store_url" else str(named)
    if (name, place) == ("liveness_file", "file"):
        wrong = str(tmp_path)  # a file is what it should be
    settings = replace(
        compiler.CompilerSettings(home=tmp_path / "home", cache_dir=str(tmp_path / "cache")), **{name: wrong}
    )
    with pytest.raises(IngotError) as caught:
        make_parts(settings, ToyCompiler(), None)  # type: ignore[arg-type]
    assert caught.value.code is not ErrorCode.INTERNAL


@pytest.mark.parametrize("place", [NOWHERE, "file"])
def test_a_runtime_says_the_same(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(IngotError) as caught:
        store_source(runtime.RuntimeSettings(home=Path(place)))
    assert caught.value.code is not ErrorCode.INTERNAL
    with pytest.raises(IngotError):
        require_place(tmp_path, "INGOT_RUNTIME_ADDRESS_FILE")


@pytest.mark.parametrize("text", ["http://a.example", "a.example:8000", "*.example.com", "a b", "a,://x", "ä.example"])
def test_names_that_no_request_could_have_are_refused(text: str) -> None:
    with pytest.raises(IngotError, match="not the name of a server") as caught:
        Hosts.parse(text, "INGOT_RUNTIME_HOSTS")
    assert caught.value.field == "INGOT_RUNTIME_HOSTS"
    assert Hosts.parse(" a.example, .b.example ,*,", "X").names == {"a.example", ".b.example", "*"}


def test_what_nobody_thought_of_is_a_sentence_too() -> None:
    @at_start
    def start() -> None:
        raise KeyError("lost")

    with pytest.raises(IngotError, match=r"cannot start: KeyError: 'lost'"):
        start()


@pytest.mark.parametrize("module", ["compiler_service.server", "compiler_service.worker", "runtime_service.server"])
def test_the_processes_themselves_print_one_sentence(module: str, tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("INGOT_")}
    environment = clean | {"PYTHONPATH": str(ROOT), "INGOT_HOME": NOWHERE, "INGOT_LOG_FORMAT": "text"}
    done = subprocess.run([sys.executable, "-m", module], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")
