"""check_model lists every obstacle once, in words."""

from __future__ import annotations

import json

import onnx
import pytest
from onnx import helper

from compiler_service.compiler.frontend.options import ImportOptions
from compiler_service.compiler.frontend.report import ObstacleReport, check_model
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.compiler.frontend.onnx_models import (
    BOOL,
    INFERENCE,
    LIGHT,
    constant,
    graph,
    model,
    node,
    tensor,
)

X = tensor("x", ["n", 4])


def check(proto: onnx.ModelProto) -> ObstacleReport:
    return check_model(proto.SerializeToString(), ImportOptions(), INFERENCE)


def test_a_supported_model() -> None:
    report = check_model(LIGHT / "light_squeezenet.onnx", ImportOptions(), INFERENCE)
    assert report.is_supported
    assert report.opsets == {"ai.onnx": 9}
    assert report.operators["Conv"] == 26
    assert report.inputs == {"data_0": "float32[1, 3, 224, 224]"}
    assert report.outputs == {"softmaxout_1": "float32[1, 1000, 1, 1]"}


def obstructed() -> onnx.ModelProto:
    inner = graph([node("Optional", ["a"], ["t"], name="in branch")], [], ["t"])
    other = graph([node("Relu", ["a"], ["o"])], [], ["o"])
    nodes = [
        node("Relu", ["x"], ["a"], name="fine"),
        node("ImageDecoder", ["x"], ["b"], name="pictures"),
        node("Add", ["a", "b"], ["c"], name="after unknown"),
        node("FusedGelu", ["c"], ["d"], name="fused", domain="com.acme"),
        node("Softmax", ["d"], ["e"], name="adapted after unknown", axis=0),
        node("Frobnicate", ["e"], ["f"], name="no such operator"),
        node("Relu", ["a"], ["g"], name="odd attribute", slope=2.0),
        node("If", ["flag"], ["h"], name="branches", then_branch=inner, else_branch=other),
        node("Clip", ["a"], ["low"], name="clip", min=0.0),
        node("ImageDecoder", ["x"], ["i"], name="another"),
        node("FusedGelu", ["a"], ["j"], name="fused too", domain="com.acme"),
        node("Scatter2", ["a"], ["k"], name="vendor", domain="org.vendor"),
    ]
    inputs = [X, tensor("flag", [], BOOL)]
    return model(nodes, inputs, ["f", "h", "low"], domains={"com.acme": 1, "org.vendor": 3}, opset=12)


def test_every_obstacle_is_listed_once() -> None:
    report = check(obstructed())
    assert [(o.node, o.operator, o.domain, o.opset, o.code) for o in report.obstacles] == [
        ("pictures", "ImageDecoder", "ai.onnx", 12, ErrorCode.UNSUPPORTED_OPERATOR),
        ("fused", "FusedGelu", "com.acme", 1, ErrorCode.UNSUPPORTED_DOMAIN),
        ("no such operator", "Frobnicate", "ai.onnx", 12, ErrorCode.UNSUPPORTED_OPERATOR),
        ("odd attribute", "Relu", "ai.onnx", 12, ErrorCode.UNSUPPORTED_ATTRIBUTE),
        ("in branch", "Optional", "ai.onnx", 12, ErrorCode.UNSUPPORTED_OPERATOR),
        ("clip", "Clip", "ai.onnx", 12, ErrorCode.UNSUPPORTED_ATTRIBUTE),
        ("another", "ImageDecoder", "ai.onnx", 12, ErrorCode.UNSUPPORTED_OPERATOR),
        ("fused too", "FusedGelu", "com.acme", 1, ErrorCode.UNSUPPORTED_DOMAIN),
        ("vendor", "Scatter2", "org.vendor", 3, ErrorCode.UNSUPPORTED_DOMAIN),
    ]
    assert report.foreign_domains == {"com.acme": ("FusedGelu",), "org.vendor": ("Scatter2",)}
    assert not report.is_supported
    assert report.outputs == {}


def test_obstacles_are_sentences_with_a_remedy() -> None:
    for obstacle in check(obstructed()).obstacles:
        assert obstacle.reason[0].isupper()
        assert obstacle.reason.endswith(".")
        assert obstacle.remedy.endswith(".")
        assert str(obstacle).startswith(f"{obstacle.node} ({obstacle.operator}, {obstacle.domain} {obstacle.opset}): ")
    odd = check(obstructed()).obstacles[3]
    assert odd.field == "slope"
    assert odd.reason == "Relu of opset 12 has no attribute 'slope': expected no attributes, received slope."


def test_the_report_is_json() -> None:
    data = json.loads(json.dumps(check(obstructed()).to_dict()))
    assert data["supported"] is False
    assert data["obstacles"][0]["code"] == "UNSUPPORTED_OPERATOR"
    assert data["foreign_domains"]["com.acme"] == ["FusedGelu"]


def test_obstacles_outside_nodes() -> None:
    report = check(model([node("Relu", ["x"], ["y"])], [tensor("x", None)], ["y"]))
    (obstacle,) = report.obstacles
    assert (obstacle.node, obstacle.tensor) == ("", "x")
    assert str(obstacle).startswith("An input of the model has no shape")


def test_loops_are_looked_into() -> None:
    inner = graph(
        [node("ImageDecoder", ["s"], ["s2"], name="inside")],
        [tensor("i", [], onnx.TensorProto.INT64), tensor("go", [], BOOL), tensor("s", None)],
        ["go", "s2"],
    )
    nodes = [
        node("SequenceLength", ["x"], ["start"], name="before"),
        helper.make_node("Loop", ["m", "", "start"], ["y"], name="loop", body=inner),
    ]
    report = check(model(nodes, [X], ["y"], [constant("m", 3)], opset=20))
    assert [o.node for o in report.obstacles] == ["before", "inside"]


def test_files_that_are_no_model_raise() -> None:
    with pytest.raises(IngotError, match="no protobuf"):
        check_model(b"\xff" * 20, ImportOptions(), INFERENCE)


def test_a_cycle_is_an_obstacle_of_the_graph() -> None:
    nodes = [node("Add", ["x", "b"], ["a"], name="first"), node("Relu", ["a"], ["b"], name="second")]
    (obstacle,) = check(model(nodes, [X], ["b"])).obstacles
    assert (obstacle.node, obstacle.code) == ("first (Add)", ErrorCode.INVALID_MODEL)
    assert "first (Add) -> second (Relu) -> first (Add)" in str(obstacle)


def test_a_branch_that_cannot_run_is_no_obstacle_but_what_is_unsupported_in_it_is() -> None:
    w = constant("w", [[1.0, 2.0]], "float32")
    misfit = node("MatMul", ["x", "w"], ["m"], name="misfit")
    able = graph([node("Relu", ["x"], ["o"])], [], ["o"])

    def choice(*nodes: onnx.NodeProto) -> ObstacleReport:
        unable = graph([misfit, *nodes], [], [nodes[-1].output[0] if nodes else "m"])
        chosen = node("If", ["flag"], ["y"], name="choose", then_branch=unable, else_branch=able)
        return check(model([chosen], [X, tensor("flag", [], BOOL)], ["y"], [w]))

    report = choice()
    assert report.is_supported
    assert report.outputs == {"y": "float32[n, 4]"}
    report = choice(node("Frobnicate", ["m"], ["f"], name="odd"))
    assert [(o.node, o.code) for o in report.obstacles] == [("odd", ErrorCode.UNSUPPORTED_OPERATOR)]
