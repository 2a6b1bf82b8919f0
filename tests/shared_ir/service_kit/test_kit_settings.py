"""Settings of both services from the environment, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compiler_service import settings as compiler
from ingot.cli.main import main
from runtime_service import settings as runtime
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.settings import ELSEWHERE, without_service_links
from tests.shared_ir.service_kit.both_settings import settings_of

ROOT = Path(__file__).parents[3]
LINKS = {
    "INGOT_RUNTIME_SERVICE_HOST": "10.0.0.1",
    "INGOT_RUNTIME_SERVICE_PORT": "8000",
    "INGOT_RUNTIME_SERVICE_PORT_GRPC": "8001",
    "INGOT_RUNTIME_PORT": "tcp://10.0.0.1:8000",
    "INGOT_RUNTIME_PORT_8000_TCP": "tcp://10.0.0.1:8000",
    "INGOT_RUNTIME_PORT_8000_TCP_ADDR": "10.0.0.1",
    "INGOT_RUNTIME_PORT_8000_TCP_PORT": "8000",
    "INGOT_RUNTIME_PORT_8000_TCP_PROTO": "tcp",
    "INGOT_COMPILER_PORT": "tcp://10.0.0.2:8500",
    "INGOT_COMPILER_SERVICE_HOST": "10.0.0.2",
    "INGOT_PORT": "udp://10.0.0.3:53",
}
"""What Kubernetes says of services named ``ingot-runtime``, ``ingot-compiler`` and ``ingot``."""


@pytest.mark.parametrize("module", [compiler, runtime])
@pytest.mark.parametrize("text", ["", "many", "nan", "inf", "1,5", "x" * 1000])
def test_the_malformed_variable_is_named(module: Any, text: str) -> None:
    defaults = settings_of(module)()
    for name in settings_of(module).__dataclass_fields__:
        if type(getattr(defaults, name)) not in (int, float):
            continue
        with pytest.raises(IngotError, match="wrong kind of value") as caught:
            settings_of(module).from_environment({module.variable(name): text})
        assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, module.variable(name))
        assert caught.value.expected in ("an integer", "a number")
        assert len(caught.value.received) <= 100


@pytest.mark.parametrize(
    ("module", "name", "text"),
    [
        (compiler, "workers", "0"),
        (compiler, "workers", "100000"),
        (compiler, "job_threads", "100000"),
        (compiler, "visibility_seconds", "1"),
        (compiler, "max_jobs", "-1"),
        (compiler, "job_seconds", "-1"),
        (compiler, "tls_key", "/key.pem"),
        (runtime, "instances", "-1"),
        (runtime, "tls_key", "/key.pem"),
        (compiler, "tls_client_ca", "/ca.pem"),
        (runtime, "tls_client_ca", "/ca.pem"),
        (runtime, "tls_certificate", "/crt.pem"),
        (runtime, "model_control", "explicit"),
    ],
)
def test_what_is_out_of_range_is_named(module: Any, name: str, text: str) -> None:
    with pytest.raises(IngotError, match="out of range") as caught:
        settings_of(module).from_environment({module.variable(name): text})
    assert caught.value.field == module.variable(name)


@pytest.mark.parametrize(
    ("module", "name", "nearest"),
    [
        (runtime, "INGOT_RUNTIME_TLS_CERT", "INGOT_RUNTIME_TLS_CERTIFICATE"),
        (runtime, "INGOT_RUNTIME_TOKENS_FILE", "INGOT_RUNTIME_TOKEN_FILE"),
        (runtime, "INGOT_RUNTIME_TRUST", ""),
        (runtime, "INGOT_RUNTIME_PORT", ""),
        (runtime, "INGOT_TRUSTED", "INGOT_TRUST"),
        (runtime, "INGOT_STORE_URI", "INGOT_STORE_URL"),
        (compiler, "INGOT_TOKENS", "INGOT_TOKEN"),
        (compiler, "INGOT_API_TOKEN", "INGOT_API_TOKENS"),
        (compiler, "INGOT_TLS_CERT", "INGOT_TLS_CERTIFICATE"),
        (compiler, "INGOT_SANBOX", "INGOT_SANDBOX"),
        (compiler, "INGOT_XYZ", ""),
    ],
)
def test_a_misspelt_setting_is_refused(module: Any, name: str, nearest: str) -> None:
    """Ignored, it would leave the service without its certificate, its token or its boundary."""
    with pytest.raises(IngotError, match="no such setting") as caught:
        settings_of(module).from_environment({name: "secret"})
    assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, name)
    assert (f"Perhaps {nearest} is meant" in caught.value.remedy) == bool(nearest)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("module", [compiler, runtime])
def test_what_others_read_is_not_refused(module: Any) -> None:
    """One environment may be that of both services and of clients, beside others in a cluster."""
    values = {name for name in ELSEWHERE if not name.endswith("_FILE")}
    others = {name: "127.0.0.1:9" if name.endswith("_ADDRESS") else "require" for name in values}
    given = others | LINKS | {"OTHER_TOKEN": "x", "INGOT_TRITON_METRICS": "1"}
    settings = settings_of(module).from_environment(given)
    assert getattr(settings, "compiler_port", 8500) == 8500
    assert without_service_links(LINKS) == {}
    assert without_service_links({"INGOT_COMPILER_PORT": "8500"}) == {"INGOT_COMPILER_PORT": "8500"}


@pytest.mark.parametrize(("text", "value"), [("1", True), ("true", True), ("0", False), (" False ", False)])
def test_truth_is_read(text: str, value: bool) -> None:
    assert runtime.RuntimeSettings.from_environment({"INGOT_TRITON_METRICS": text}).triton_metrics is value


def test_the_settings_of_each_service_are_let_pass_by_the_other() -> None:
    alone = set(compiler.variables()) - set(runtime.variables())
    runtime.RuntimeSettings.from_environment(dict.fromkeys(alone, "x"))
    compiler.CompilerSettings.from_environment(
        {name: "x" for name in runtime.variables() if "RUNTIME" in name and not name.endswith("TOKEN_FILE")}
    )


@pytest.mark.parametrize("module", [compiler, runtime])
@pytest.mark.parametrize("field", ["token", "token_file", "api_tokens", "tls_certificate", "tls_key", "tls_client_ca"])
@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_an_empty_guard_is_refused(module: Any, field: str, text: str) -> None:
    """A template whose variable is unset leaves one; it would start the service without what it asks for."""
    if not hasattr(settings_of(module)(), field.removesuffix("_file")):
        return
    with pytest.raises(IngotError, match="there and empty") as caught:
        settings_of(module).from_environment({module.variable(field): text})
    assert caught.value.field == module.variable(field)
    assert "Unset it" in caught.value.remedy


@pytest.mark.parametrize("command", ["runtime_service.server", "compiler_service.server", "compiler_service.worker"])
def test_no_service_starts_with_a_misspelt_setting(command: str, tmp_path: Path) -> None:
    name = "INGOT_RUNTIME_TLS_CERT" if command.startswith("runtime") else "INGOT_TLS_CERT"
    environment = {"INGOT_HOME": str(tmp_path), name: "/crt.pem", "PATH": "/usr/bin", "HOME": str(tmp_path)}
    environment["INGOT_LOG_FORMAT"] = "text"
    started = [sys.executable, "-m", command]
    done = subprocess.run(started, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2)
    (said,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert name in said
    assert "TLS_CERTIFICATE is meant" in said


def test_no_command_runs_with_a_misspelt_setting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the certificate of its authority a client speaks in the clear."""
    monkeypatch.setenv("INGOT_CA_CERT", "/ca.pem")
    assert main(["jobs", "--address", "127.0.0.1:1"]) == 1
    assert "no such setting" in capsys.readouterr().err


def test_every_variable_that_is_read_is_known() -> None:
    known = {*compiler.variables(), *runtime.variables(), *ELSEWHERE}
    files = [
        path for folder in ("ingot", "compiler_service", "runtime_service") for path in (ROOT / folder).rglob("*.py")
    ]
    files += [ROOT / "deploy" / "compose.yaml", ROOT / "deploy" / "Dockerfile", *(ROOT / "helm").rglob("*.yaml")]
    read = {name for path in files for name in re.findall(r"\bINGOT_[A-Z_]*[A-Z]\b", path.read_text())}
    assert {name for name in read if name not in known} <= {"INGOT_POISON"}  # of the C compiler


@pytest.mark.parametrize("module", [compiler, runtime])
@pytest.mark.parametrize("field", ["token", "store_url"])
def test_a_secret_may_stand_in_a_file(module: Any, field: str, tmp_path: Path) -> None:
    name, file = module.variable(field), tmp_path / "secret"
    file.write_text("  s3cret\n")
    assert getattr(settings_of(module).from_environment({f"{name}_FILE": str(file)}), field) == "s3cret"
    with pytest.raises(IngotError, match="given twice") as caught:
        settings_of(module).from_environment({f"{name}_FILE": str(file), name: "other"})
    assert caught.value.field == f"{name}_FILE"


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two\nlines", b"\xff\xfe", b"x" * 100_000])
def test_a_file_that_holds_no_secret_is_named_without_its_content(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(IngotError, match="cannot be used") as caught:
        compiler.CompilerSettings.from_environment({"INGOT_REDIS_URL_FILE": str(file)})
    assert caught.value.field == str(file)
    assert "INGOT_REDIS_URL_FILE" in str(caught.value)
    assert "two" not in str(caught.value)
