"""Models of other kinds, which are known by what they are, and how each of them becomes an ONNX model.

Nothing of another framework is imported to find out: objects are known by the names of their classes, files by their suffixes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.faults import told


@dataclass(frozen=True)
class Frontend:
    """A kind of model that is no ONNX model.

    Attributes:
        what: it, as the subject of a sentence.
        lines: two lines of Python or of a shell that make an ONNX model of it.
        classes: package and name of a class that objects of this kind have among theirs.
        suffixes: of its files and folders.
    """

    what: str
    lines: tuple[str, str]
    classes: tuple[tuple[str, str], ...] = ()
    suffixes: tuple[str, ...] = ()


_KERAS = ("import keras", 'model.export("model.onnx", format="onnx")  # keras 3, with tf2onnx or onnxscript')
FRONTENDS = (
    Frontend(
        "a torch module",
        ("import torch", 'torch.onnx.export(module.eval(), (example,), "model.onnx", dynamo=True)'),
        classes=(("torch", "Module"), ("torch", "ExportedProgram")),
    ),
    Frontend(
        "a PyTorch checkpoint",
        (
            "module = MyModule(); module.load_state_dict(torch.load(path, weights_only=True))",
            'torch.onnx.export(module.eval(), (example,), "model.onnx", dynamo=True)',
        ),
        suffixes=(".pt", ".pth", ".ckpt"),
    ),
    Frontend("a Keras model", _KERAS, classes=(("keras", "Model"), ("tensorflow", "Model"))),
    Frontend(
        "a Keras file",
        ("import keras; model = keras.saving.load_model(path)", 'model.export("model.onnx", format="onnx")'),
        suffixes=(".h5", ".hdf5", ".keras"),
    ),
    Frontend(
        "a TensorFlow Lite model",
        ("pip install tf2onnx", "python -m tf2onnx.convert --tflite model.tflite --output model.onnx --opset 18"),
        suffixes=(".tflite",),
    ),
    Frontend(
        "a TensorFlow model",
        ("pip install tf2onnx", "python -m tf2onnx.convert --saved-model FOLDER --output model.onnx --opset 18"),
        suffixes=(".pb", ".savedmodel"),
    ),
    Frontend(
        "a file of weights without a graph (safetensors)",
        ("pip install 'optimum[onnx]'", "optimum-cli export onnx --model FOLDER_OR_NAME onnx/"),
        suffixes=(".safetensors",),
    ),
    Frontend(
        "a file of weights without a graph (GGUF)",
        (
            "pip install 'optimum[onnx]'  # from the model that the weights were quantized from",
            "optimum-cli export onnx --model NAME onnx/",
        ),
        suffixes=(".gguf", ".ggml"),
    ),
    Frontend(
        "a scikit-learn estimator",
        ("from skl2onnx import to_onnx", "model = to_onnx(estimator, example[:1])"),
        classes=(("sklearn", "BaseEstimator"),),
    ),
    Frontend(
        "a gradient-boosted model",
        (
            "from onnxmltools import convert_lightgbm, convert_xgboost",
            'model = convert_lightgbm(booster, initial_types=[("x", FloatTensorType([None, features]))])',
        ),
        classes=(("lightgbm", "Booster"), ("xgboost", "Booster"), ("xgboost", "XGBModel")),
    ),
)


_VERSION_FIELD = b"\x08"


def refuse_others(model: Any) -> None:
    """Raises IngotError: INVALID_MODEL, ``model`` is of another kind; the remedy is the two lines that make an ONNX model of it."""
    found = _of_path(Path(model)) if isinstance(model, str | Path) else _of_object(model)
    if found is None:
        return
    first, second = found.lines
    raise IngotError(
        ErrorCode.INVALID_MODEL,
        f"{found.what} is no ONNX model",
        field="model",
        expected="an ONNX model",
        received=str(model) if isinstance(model, str | Path) else type(model).__qualname__,
        remedy=f"Export it, and compile what comes out:\n    {first}\n    {second}",
    )


def is_torch_module(model: Any) -> bool:
    return ("torch", "Module") in _classes(model)


@contextmanager
def exported(module: Any, example_inputs: Any) -> Iterator[Path]:
    """The ONNX file that torch makes of ``module``, for as long as this lasts.

    Args:
        example_inputs: a tensor, or a tuple of what the module is called with.

    Raises:
        IngotError: INVALID_ARGUMENT, ``module`` is none of torch; UNAVAILABLE, torch cannot export here; INVALID_MODEL, it cannot export
            this module, in its words.
    """
    if not is_torch_module(module):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "examples are what a torch module is called with, and the model is none",
            field="example_inputs",
            received=type(module).__qualname__,
            remedy="Leave example_inputs out.",
        )
    examples = tuple(example_inputs) if isinstance(example_inputs, tuple | list) else (example_inputs,)
    training = [(part, part.training) for part in module.modules()]
    with tempfile.TemporaryDirectory(prefix="ingot-export-") as folder:
        path = Path(folder) / "model.onnx"
        try:
            sys.modules["torch"].onnx.export(module.eval(), examples, str(path), dynamo=True, verbose=False)
        except ImportError as error:
            message, remedy = "torch cannot export here", "Install what it needs: `pip install onnx onnxscript`."
            raise IngotError(ErrorCode.UNAVAILABLE, message, received=str(error), remedy=remedy) from error
        except Exception as error:
            raise IngotError(
                ErrorCode.INVALID_MODEL,
                "torch cannot export the module",
                field="model",
                received=f"{type(error).__name__}: {error}"[:2000],
                remedy="Change the module as torch says, or export it yourself and compile the file.",
            ) from error
        finally:
            for part, was_training in training:
                part.training = was_training
        yield path


def _of_path(path: Path) -> Frontend | None:
    """NOTE: some write ONNX models into files called ``model.pb``."""
    suffix = path.suffix.lower()
    if path.name == "saved_model.pb" or (path / "saved_model.pb").exists():
        suffix = ".savedmodel"
    found = next((f for f in FRONTENDS if suffix in f.suffixes), None)
    return None if found is None or _may_be_onnx(path) else found


def _may_be_onnx(path: Path) -> bool:
    """Whether it begins with the version of the format, the first field of an ONNX model."""
    if path.name == "saved_model.pb" or not path.is_file():
        return False
    with told("the model cannot be read", path), path.open("rb") as file:
        return file.read(1) == _VERSION_FIELD


def _of_object(model: Any) -> Frontend | None:
    classes = _classes(model)
    return next((f for f in FRONTENDS if classes.intersection(f.classes)), None)


def _classes(model: Any) -> frozenset[tuple[str, str]]:
    """Package and name of every class that ``model`` is of."""
    return frozenset((kind.__module__.partition(".")[0], kind.__name__) for kind in type(model).__mro__)
