"""Which models are measured, on what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from bench import peers, results, roofline
from bench.inputs import InputSpec, choose_shapes, default_shape, find_models, make_inputs, parse_shape, read_inputs

F32, I64 = np.dtype(np.float32), np.dtype(np.int64)


@pytest.mark.parametrize(
    ("model", "spec", "shape"),
    [
        ("net", InputSpec("x", F32, (None, 3, 224, 224)), (1, 3, 224, 224)),
        ("det", InputSpec("x", F32, (None, 3, None, None)), (1, 3, 640, 640)),
        ("v4_rec_infer", InputSpec("x", F32, (None, 3, None, None)), (1, 3, 48, 320)),
        ("v2.0_cls_infer", InputSpec("x", F32, (None, 3, None, None)), (1, 3, 48, 192)),
        ("net", InputSpec("x", F32, (None, 3, 48, None)), (1, 3, 48, 320)),
        ("net", InputSpec("input_ids", I64, (None, None)), (1, 128)),
        ("net", InputSpec("audio", F32, (None, None)), (1, 576)),
        ("net", InputSpec("state", F32, (2, None, 128)), (2, 1, 128)),
        ("net", InputSpec("sr", I64, ()), ()),
    ],
)
def test_open_dims_follow_the_rules(model: str, spec: InputSpec, shape: tuple[int, ...]) -> None:
    assert default_shape(model, spec) == shape


def test_given_shapes_count_where_they_fit() -> None:
    specs = (InputSpec("x", F32, (None, 3, None, None)), InputSpec("y", F32, (1, 5)))
    given = {"x": (1, 3, 32, 32), "other:x": (1, 3, 8, 8), "y": (1, 6)}
    assert choose_shapes("net", specs, given) == {"x": (1, 3, 32, 32), "y": (1, 5)}
    assert choose_shapes("other", specs, given)["x"] == (1, 3, 8, 8)


def test_shape_option() -> None:
    assert parse_shape("x=1,3,640,640") == ("x", (1, 3, 640, 640))
    assert parse_shape("net:a=b=2") == ("net:a=b", (2,))
    assert parse_shape("sr=") == ("sr", ())
    for text in ("x", "x=0,1", "x=a", "=1"):
        with pytest.raises(ValueError, match=r".+"):
            parse_shape(text)


def test_inputs_are_the_same_in_every_process_and_fit_their_meaning() -> None:
    specs = (
        InputSpec("x", F32, (2, 3)),
        InputSpec("attention_mask", I64, (1, 4)),
        InputSpec("token_type_ids", I64, (1, 4)),
        InputSpec("input_ids", I64, (1, 400)),
        InputSpec("sr", I64, ()),
        InputSpec("level", F32, (1,)),
    )
    shapes = choose_shapes("net", specs, {})
    feeds, again = (make_inputs(specs, shapes, {"level": 0.5}) for _ in range(2))
    assert all(np.array_equal(feeds[n], again[n]) for n in feeds)
    assert all(feeds[s.name].dtype == s.dtype and feeds[s.name].shape == shapes[s.name] for s in specs)
    assert feeds["attention_mask"].all()
    assert not feeds["token_type_ids"].any()
    assert feeds["input_ids"].min() >= 0
    assert feeds["input_ids"].max() < 100
    assert feeds["sr"] == 16000
    assert feeds["level"] == 0.5


def test_inputs_of_a_file(tmp_path: Path) -> None:
    weight = helper.make_tensor("w", TensorProto.FLOAT, (2,), [1.0, 2.0])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x, w], [y], [weight])
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    assert read_inputs(tmp_path / "m.onnx") == (InputSpec("x", F32, (None, 2)),)


def test_models_of_files_and_folders(tmp_path: Path) -> None:
    for name in ("b.onnx", "a.onnx", "notes.txt"):
        (tmp_path / name).touch()
    assert [p.name for p in find_models([tmp_path, tmp_path / "a.onnx"])] == ["a.onnx", "b.onnx"]
    with pytest.raises(FileNotFoundError):
        find_models([tmp_path / "missing.onnx"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError):
        find_models([tmp_path / "empty"])


@pytest.mark.parametrize("main", [peers.main, results.main, roofline.main])
def test_a_path_without_a_model_is_a_usage_error(
    main: Callable[[Sequence[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--models", str(tmp_path / "missing.onnx")])
    assert "argument --models: no ONNX model at" in capsys.readouterr().err
