"""Models of other frameworks are known by what they are, and answered with the lines that export them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest

import ingot
from ingot.frontends import FRONTENDS
from shared_ir.errors import ErrorCode, IngotError
from tests.ingot.small_models import scale

PATHS = {suffix: f.what for f in FRONTENDS for suffix in f.suffixes}


@pytest.mark.parametrize("suffix", sorted(PATHS))
def test_files_of_others(tmp_path: Path, suffix: str) -> None:
    for path in (tmp_path / f"model{suffix}", str(tmp_path / f"MODEL{suffix.upper()}")):
        with pytest.raises(IngotError, match="is no ONNX model") as caught:
            ingot.compile(path)
        assert caught.value.code is ErrorCode.INVALID_MODEL
        assert caught.value.message.startswith(PATHS[suffix])
        assert len(caught.value.remedy.splitlines()) == 3


def test_a_folder_of_tensorflow(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(IngotError, match="a TensorFlow model is no ONNX model"):
        ingot.compile(tmp_path)


def test_a_model_may_be_in_a_file_of_another_name(tmp_path: Path) -> None:
    for name in ("model.pb", "model.pt"):
        onnx.save(scale(), tmp_path / name)
        ingot.compile(tmp_path / name, in_process=True)
    (tmp_path / "graph.pb").write_bytes(b"\x0a\x05hello")
    for name in ("graph.pb", "saved_model.pb"):
        with pytest.raises(IngotError, match="a TensorFlow model is no ONNX model"):
            ingot.compile(tmp_path / name)


def other_class(package: str, name: str) -> type:
    return type(name, (), {"__module__": f"{package}.deep.inside"})


@pytest.mark.parametrize(("package", "name"), [c for f in FRONTENDS for c in f.classes])
def test_objects_of_others(package: str, name: str) -> None:
    own = type("Own", (other_class(package, name),), {})
    was_there = package in sys.modules  # another test may have imported it
    with pytest.raises(IngotError, match="is no ONNX model") as caught:
        ingot.compile(own())
    assert caught.value.received == "Own"
    assert package not in sys.modules or package == "torch" or was_there


def test_what_nobody_knows_is_no_model() -> None:
    with pytest.raises(IngotError, match="not a model"):
        ingot.compile(object())


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """As much of torch as an export takes."""
    fake = ModuleType("torch")

    def export(module: Any, args: tuple[Any, ...], path: str, *, dynamo: bool, verbose: bool) -> None:
        assert (module.training, len(args), dynamo, verbose) == (False, 1, True, False)
        if module.fails:
            raise module.fails
        onnx.save(scale(3.0), path)

    fake.onnx = ModuleType("torch.onnx")  # type: ignore[attr-defined]
    fake.onnx.export = export
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


class Module:
    """``torch.nn.Module``, as far as it matters."""

    fails: Exception | None = None

    def __init__(self) -> None:
        self.training = True

    def modules(self) -> list[Module]:
        return [self]

    def eval(self) -> Module:
        self.training = False
        return self


Module.__module__ = "torch.nn.modules.module"


def test_a_torch_module_with_examples_is_exported(torch: ModuleType) -> None:
    module, x = Module(), np.ones((2, 4), np.float32)
    for artifact in (ingot.compile(module, (x,)), ingot.compile(module, example_inputs=x, opt_level=1)):
        np.testing.assert_array_equal(ingot.load(artifact).run({"x": x})["y"], np.full((2, 4), 3))
        assert module.training


@pytest.mark.parametrize(
    ("fault", "code"),
    [(ImportError("no onnxscript"), ErrorCode.UNAVAILABLE), (ValueError("a loop"), ErrorCode.INVALID_MODEL)],
)
def test_what_torch_cannot_export_is_told_in_its_words(torch: ModuleType, fault: Exception, code: ErrorCode) -> None:
    module = Module()
    module.fails = fault
    with pytest.raises(IngotError, match=str(fault)) as caught:
        ingot.compile(module, (1,))
    assert caught.value.code is code
    assert module.training


def test_examples_are_for_torch_modules() -> None:
    with pytest.raises(IngotError, match="torch module"):
        ingot.compile(scale(), example_inputs=(1,))
