"""The wheel without any extra: runs compiled models, talks to services, and says which extra brings the rest."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ingot
from compiler_service.compiler.tune.measuring.device import DeviceMeasurer
from compiler_service.compiler.tune.measuring.trial import OutcomeKind
from ingot.devices import DeviceConnection
from shared_ir.artifact.signature import SigningKey, public_pem
from shared_ir.extras import install_command
from shared_ir.versions import VERSION
from tests.ingot.device.boards import INPUT, candidate, floats
from tests.ingot.small_models import scale
from tests.packaging.clean_environment import CleanEnvironment, wait_until
from tests.packaging.extras import BASE, importable

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

IMPORT_ALL = """
import importlib, json, sys
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
    assert "site-packages" in sys.modules[name].__file__, name
"""
TYPED = """
import ingot
client: int = ingot.Client("host:1")
model: int = ingot.load("folder")
"""


@pytest.fixture(scope="module")
def base(install: Callable[[str], CleanEnvironment]) -> CleanEnvironment:
    return install(BASE)


@pytest.fixture(scope="module")
def model(base: CleanEnvironment) -> Path:
    path = base.home / "scale.onnx"
    path.write_bytes(scale().SerializeToString())
    return path


def test_modules_of_the_base_can_be_imported(base: CleanEnvironment) -> None:
    base.check("python", "-c", IMPORT_ALL, json.dumps(importable(BASE)))
    base.check("python", "-c", "import ingot; ingot.Client, ingot.Endpoint, ingot.Model")


def test_help_and_version(base: CleanEnvironment) -> None:
    assert "Exit status" in base.check("ingot", "--help")
    assert base.check("ingot", "--version") == f"ingot {VERSION}\n"


def test_a_compiled_model_is_inspected_and_run(base: CleanEnvironment) -> None:
    ingot.compile(scale(), workers=0).save(base.home / "scale.ingot", home=base.home / ".ingot")
    assert "float32[n, 4]" in base.check("ingot", "inspect", "scale.ingot")
    for command in ("run", "profile"):
        assert base.check("ingot", command, "scale.ingot", "--input", "x=random:3x4", "--json")


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("check --local scale.onnx", "compiler"),
        ("inspect scale.onnx", "compiler"),
        ("inspect --graph scale.onnx", "compiler"),
        ("compile --local scale.onnx", "compiler"),
        ("up", "embedded"),
    ],
)
@pytest.mark.usefixtures("model")
def test_what_is_missing_is_said_in_a_sentence(base: CleanEnvironment, command: str, extra: str) -> None:
    done = base.run("ingot", *command.split())
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert install_command(extra) in done.stderr
    done = base.run("ingot", *command.split(), "--json")
    assert (done.returncode, done.stdout) == (3, "")
    assert install_command(extra) in json.loads(done.stderr)["error"]["remedy"]


@pytest.mark.parametrize(
    ("call", "extra"),
    [
        ("ingot.compile(b'')", "compiler"),
        (
            "__import__('importlib').import_module('shared_ir.storage.store').open_store('s3://bucket/prefix')",
            "runtime",
        ),
    ],
)
def test_what_is_missing_is_an_ingot_error(base: CleanEnvironment, call: str, extra: str) -> None:
    code = f"import ingot\ntry: {call}\nexcept ingot.IngotError as error: print(error.code, error.remedy)"
    output = base.check("python", "-c", code)
    assert output.startswith("UNAVAILABLE")
    assert install_command(extra) in output


def test_a_service_that_is_away_is_said(base: CleanEnvironment) -> None:
    done = base.run("ingot", "models", more={"INGOT_COMPILER_ADDRESS": "127.0.0.1:9"})
    assert done.returncode == 3
    assert "cannot be reached" in done.stderr


def test_type_checkers_see_our_types(base: CleanEnvironment) -> None:
    (base.home / "typed.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--python-executable", str(base.python), "--config-file=", "typed.py"]
    done = subprocess.run(command, cwd=base.home, capture_output=True, text=True)
    assert 'has type "Client"' in done.stdout, done.stdout
    assert 'has type "Model"' in done.stdout


def test_a_device_with_the_base_alone_measures(base: CleanEnvironment) -> None:
    """The tuner is here, with the compiler; there is neither a compiler nor an `ingot` of this tree."""
    key, log = SigningKey.generate(), base.home / "device.log"
    (base.home / "tuner.pub").write_bytes(public_pem(key.public))
    command = ["ingot", "device", "serve", "--json", "--trust", "tuner.pub", "--listen", "127.0.0.1:0"]
    with base.service(command, log) as process:
        wait_until(lambda: "address" in log.read_text(), process, log, 60.0)
        address = json.loads(next(line for line in log.read_text().splitlines() if "address" in line))["address"]
        assert key.key_id in base.check("ingot", "device", "status", address)
        measurer = DeviceMeasurer(DeviceConnection(address), key)
        (outcome,) = measurer.run([candidate()], 0.05)
        measurer.close()
        assert outcome.kind is OutcomeKind.MEASURED
        np.testing.assert_array_equal(floats(outcome.results), 2 * INPUT)
        process.terminate()
        assert process.wait(60) == 0, log.read_text()
