"""The main path: a model goes in through gRPC, answers come out through a client that nobody here wrote."""

from __future__ import annotations

import json
import time
import urllib.request
from functools import partial
from typing import Literal

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

import ingot
from ingot.demo.metrics import moved, scrape
from shared_ir.errors import ErrorCode
from tests.e2e.platform_process import PlatformProcess, wait_until
from tests.ingot.small_models import Array, classifier, expected_scores, scale

pytestmark = pytest.mark.services
SHAPES = ((1, 3, 8, 12), (4, 3, 16, 5), (2, 3, 7, 40))


@pytest.fixture(scope="module")
def served(platform: PlatformProcess) -> PlatformProcess:
    """The platform with version 1 of ``classifier`` published as stable and loaded."""
    with platform.client() as client:
        job = client.wait(client.compile(classifier(), "classifier", labels=["stable"]).id)
        assert job.state == "SUCCEEDED", job.error
        assert (job.version, job.cache_hit) == (1, False)
    wait_until(lambda: is_ready(platform, "classifier", "1"))
    return platform


def is_ready(platform: PlatformProcess, name: str, version: str) -> bool:
    client = triton_grpc.InferenceServerClient(platform.addresses.grpc)
    try:
        return bool(client.is_model_ready(name, version))
    except InferenceServerException:
        return False
    finally:
        client.close()


def infer(platform: PlatformProcess, protocol: str, image: Array, dtype: str = "FP32", name: str = "image") -> Array:
    library = triton_grpc if protocol == "grpc" else triton_http
    client = library.InferenceServerClient(getattr(platform.addresses, protocol))
    tensor = library.InferInput(name, list(image.shape), dtype)
    tensor.set_data_from_numpy(image)
    try:
        return np.asarray(client.infer("classifier", [tensor]).as_numpy("scores"))
    finally:
        client.close()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("shape", SHAPES)
def test_answers_at_many_sizes(served: PlatformProcess, protocol: str, shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    scores = infer(served, protocol, image)
    np.testing.assert_allclose(scores, expected_scores(classifier(), image), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_our_own_client_agrees(served: PlatformProcess, protocol: Literal["grpc", "http"]) -> None:
    image = np.random.default_rng(1).standard_normal((2, 3, 6, 6)).astype(np.float32)
    endpoint = ingot.Endpoint(getattr(served.addresses, protocol), protocol)
    assert [(t.name, t.dtype, len(t.shape)) for t in endpoint.inputs("classifier")] == [("image", "float32", 4)]
    scores = endpoint.infer("classifier", {"image": image})["scores"]
    endpoint.close()
    assert np.array_equal(scores, infer(served, protocol, image))


def test_a_repeated_submission_is_a_cache_hit(served: PlatformProcess) -> None:
    with served.client() as client:
        source, jobs = client.upload(classifier()), len(client.jobs(1000))
        start = time.perf_counter()
        job = client.compile(source, "classifier", labels=["stable"])
        print(f"cache hit in {(time.perf_counter() - start) * 1e3:.1f} ms")
        assert job.is_finished
        assert job.cache_hit
        assert job.version == 1
        assert len(client.jobs(1000)) == jobs + 1
        assert [version.version for version in client.versions("classifier")] == [1]


def test_events_of_a_job_tell_its_story(served: PlatformProcess) -> None:
    with served.client() as client:
        job = client.compile(scale(5.0), "story")
        events = list(client.watch(job.id))
        again = list(client.watch(job.id, after=events[-2].sequence))
    states = [event.job.state for event in events if event.job]
    stages = [event.progress.stage for event in events if event.progress]
    assert states[0] in ("QUEUED", "RUNNING")
    assert states[-1] == "SUCCEEDED"
    assert [s for s in dict.fromkeys(stages) if s in ("import", "passes", "codegen", "link")] == [
        "import",
        "passes",
        "codegen",
        "link",
    ]
    assert all(0 <= event.progress.done <= event.progress.total for event in events if event.progress)
    assert [event.sequence for event in again] == [events[-1].sequence]


def test_a_label_that_moves_changes_what_is_served(served: PlatformProcess) -> None:
    with served.client() as client:
        for factor in (2.0, 3.0):
            assert client.wait(client.compile(scale(factor), "moving").id).state == "SUCCEEDED"
        endpoint, x = ingot.Endpoint(served.addresses.grpc), np.ones((1, 4), np.float32)

        def answers(value: float) -> bool:
            return bool(endpoint.infer("moving", {"x": x})["y"][0, 0] == value)

        for version, factor in ((1, 2.0), (2, 3.0), (1, 2.0)):
            client.set_label("moving", "stable", version)
            wait_until(partial(is_ready, served, "moving", str(version)))
            wait_until(partial(answers, factor))
        endpoint.close()


def test_what_is_downloaded_runs_elsewhere(served: PlatformProcess, tmp_path: object) -> None:
    folder = f"{tmp_path}/model"
    with served.client() as client:
        assert client.download("classifier", folder, "stable") == "1"
        assert client.download("classifier", folder, 1) == "1"
        with pytest.raises(ingot.IngotError) as caught:
            client.download("classifier", folder, 99)
        assert caught.value.code is ErrorCode.NOT_FOUND
    image = np.ones((1, 3, 4, 4), np.float32)
    with ingot.load(folder, home=served.home) as model:
        assert np.allclose(model.run({"image": image})["scores"], infer(served, "grpc", image), atol=1e-6)


def test_one_model_for_several_targets(served: PlatformProcess, tmp_path: object) -> None:
    targets = ("host", "raspberry-pi/4b", "x86-64-v3")
    with served.client() as client:
        job = client.wait(client.compile(scale(7.0), "fleet", targets).id)
        assert job.error is None
        assert [target.target for target in job.targets] == list(targets)
        (version,) = client.versions("fleet")
        assert len({target.key for target in version.targets}) == 3
        client.download("fleet", f"{tmp_path}/fleet")
    with ingot.load(f"{tmp_path}/fleet", home=served.home) as model:  # picks the target that suits this machine
        assert model.run({"x": np.ones((1, 4), np.float32)})["y"].tolist() == [[7.0] * 4]


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize(
    ("image", "dtype", "name", "told"),
    [
        (np.ones((1, 4, 8, 8), np.float32), "FP32", "image", ("image", "3", "4")),
        (np.ones((1, 3, 8), np.float32), "FP32", "image", ("image", "[1, 3, 8]")),
        (np.ones((1, 3, 8, 8), np.int32), "INT32", "image", ("image", "FP32", "INT32")),
        (np.ones((1, 3, 8, 8), np.float32), "FP32", "picture", ("picture", "image")),
    ],
)
def test_mistakes_at_inference_are_named(
    served: PlatformProcess, protocol: str, image: Array, dtype: str, name: str, told: tuple[str, ...]
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        infer(served, protocol, image, dtype, name)
    status, message = str(caught.value.status()), str(caught.value)
    assert "INVALID_ARGUMENT" in status or "400" in status
    assert all(word in message for word in told), message
    assert infer(served, protocol, np.ones((1, 3, 4, 4), np.float32)).shape == (1, 5)


def test_both_metrics_move(served: PlatformProcess) -> None:
    before = scrape(served.addresses.metrics) | scrape(served.addresses.compiler_metrics)
    infer(served, "grpc", np.ones((2, 3, 4, 4), np.float32))
    with served.client() as client:
        client.compile(classifier(), "classifier")
    found = moved(before, scrape(served.addresses.metrics) | scrape(served.addresses.compiler_metrics))
    assert found['ingot_inference_request_success_total{model="classifier",version="1"}'] == 1
    assert found['ingot_inference_rows_total{model="classifier",version="1"}'] == 2
    assert found['ingot_compiler_cache_total{result="hit"}'] == 1


def test_readiness_is_told_over_http(served: PlatformProcess) -> None:
    with urllib.request.urlopen(f"http://{served.addresses.http}/v2/health/ready", timeout=10) as response:
        assert response.status == 200
    with urllib.request.urlopen(f"http://{served.addresses.http}/v2/models/classifier", timeout=10) as response:
        assert json.load(response)["name"] == "classifier"
