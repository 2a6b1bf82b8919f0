"""Tensors in shared memory, by Triton's clients and against a folder of our own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from runtime_service.batching.messages import InferRequest, RegionSlice, SharedTensor, TensorData
from runtime_service.extensions.shared_memory import MOST_REGIONS, SharedMemory
from runtime_service.server import RuntimeServer
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from tests.runtime_service.api.clients import CLIENTS, Triton
from tests.runtime_service.toy_models import ToySource, running_server, scale_model, tensor, typed_model

pytestmark = pytest.mark.services
PREFIX = f"ingot-test-{secrets.token_hex(4)}-"
X = np.arange(8, dtype=np.float32).reshape(2, 4)
MOST = 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[RuntimeServer]:
    source = ToySource()
    source.publish("scale", 1, scale_model, "stable")
    source.publish("text", 1, partial(typed_model, DType.STRING), "stable")
    with running_server(source, models="*", shared_memory=PREFIX, max_request_bytes=MOST) as running:
        yield running


@pytest.fixture(params=CLIENTS)
def triton(request: pytest.FixtureRequest, server: RuntimeServer) -> Iterator[Triton]:
    client = Triton(request.param, server)
    yield client
    client.unregister_system_shared_memory()
    client.close()


@pytest.fixture
def region(triton: Triton) -> Iterator[Any]:
    """96 bytes, of which the first 32 are X; registered as ``r`` from byte 16 on."""
    handle = shm.create_shared_memory_region("r", PREFIX + "r", 96, create_only=True)
    shm.set_shared_memory_region(handle, [X], 16)
    triton.register_system_shared_memory("r", "/" + PREFIX + "r", 80, 16)
    yield handle
    shm.destroy_shared_memory_region(handle)


def shared_input(triton: Triton, size: int = 32, offset: int = 0, region: str = "r", shape: Any = X.shape) -> Any:
    found = triton.module.InferInput("x", list(shape), "FP32")
    found.set_shared_memory(region, size, offset)
    return found


def shared_output(triton: Triton, size: int = 32, offset: int = 32, region: str = "r") -> Any:
    found = triton.module.InferRequestedOutput("y")
    found.set_shared_memory(region, size, offset)
    return found


def test_inputs_and_outputs(triton: Triton, region: Any) -> None:
    result = triton.infer("scale", [shared_input(triton)], outputs=[shared_output(triton, 48)])
    np.testing.assert_array_equal(shm.get_contents_as_numpy(region, np.float32, X.shape, 48), X * 2)
    (said,) = result.get_response(**triton.as_json())["outputs"]
    assert said["parameters"]["shared_memory_region"] in ("r", {"string_param": "r"})
    assert "data" not in said
    assert "contents" not in said
    np.testing.assert_array_equal(triton.infer("scale", [shared_input(triton)]).as_numpy("y"), X * 2)
    sent = tensor(triton.module, "x", X + 1, "FP32")
    triton.infer("scale", [sent], outputs=[shared_output(triton)])
    np.testing.assert_array_equal(shm.get_contents_as_numpy(region, np.float32, X.shape, 48), X * 2 + 2)


def test_strings(triton: Triton, region: Any) -> None:
    words = np.array([[b"one", "zwölf".encode()]], object)
    data = serialize_byte_tensor(words).item()
    region._mpsm_handle.buf[16 : 16 + len(data)] = data
    x = triton.module.InferInput("x", [1, 2], "BYTES")
    x.set_shared_memory("r", len(data))
    triton.infer("text", [x], outputs=[shared_output(triton, 40)])
    assert bytes(region._mpsm_handle.buf[48 : 48 + len(data)]) == data
    assert triton.infer("text", [x]).as_numpy("y").tolist() == words.tolist()


def test_status_and_names(triton: Triton, region: Any) -> None:
    def regions(name: str = "") -> dict[str, Any]:
        found = triton.get_system_shared_memory_status(name, **triton.as_json())
        return found.get("regions", {}) if isinstance(found, dict) else {each["name"]: each for each in found}

    (one,) = regions().values()
    assert (one["name"], one["key"], int(one["offset"]), int(one["byte_size"])) == ("r", "/" + PREFIX + "r", 16, 80)
    assert regions("r").keys() == {"r"}
    with pytest.raises(InferenceServerException, match="no region"):
        regions("other")
    with pytest.raises(InferenceServerException, match="of this name is registered"):
        triton.register_system_shared_memory("r", PREFIX + "r", 8)
    triton.unregister_system_shared_memory("r")
    triton.unregister_system_shared_memory("r")
    assert regions() == {}
    assert "system_shared_memory" in triton.get_server_metadata(**triton.as_json())["extensions"]


BAD_PLACES: dict[str, tuple[dict[str, Any], str]] = {
    "not registered": ({"region": "other"}, "no region .* of this name is registered"),
    "beyond the end": ({"offset": 60}, "outside of its region"),
    "far beyond the end": ({"offset": (1 << 62) - 1}, "outside of its region"),
    "negative": ({"offset": -8}, "malformed"),
    "another size": ({"size": 24}, "does not fit its shape"),
    "no size": ({"size": 0}, "does not fit its shape"),
    "more than a request may have": ({"size": MOST + 1}, "at most 1048576 bytes"),
}


@pytest.mark.parametrize("what", BAD_PLACES)
def test_places_of_inputs_that_are_none(triton: Triton, region: Any, what: str) -> None:
    place, message = BAD_PLACES[what]
    with pytest.raises(InferenceServerException, match=message) as caught:
        triton.infer("scale", [shared_input(triton, **place)])
    assert "INVALID_ARGUMENT" in str(caught.value.status()) or "400" in str(caught.value.status())


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"region": "other"}, "no region .* of this name is registered"),
        ({"size": 31}, "too small"),
        ({"offset": 60}, "outside of its region"),
    ],
)
def test_places_of_outputs_that_are_none(triton: Triton, region: Any, place: dict[str, Any], message: str) -> None:
    before = bytes(region._mpsm_handle.buf)
    with pytest.raises(InferenceServerException, match=message):
        triton.infer("scale", [tensor(triton.module, "x", X, "FP32")], outputs=[shared_output(triton, **place)])
    assert bytes(region._mpsm_handle.buf) == before


@pytest.mark.parametrize("size", [0, 16, 47])
def test_an_object_that_was_cut_short_after_it_was_registered(triton: Triton, region: Any, size: int) -> None:
    """A mapping of it would end the server."""
    os.truncate(Path("/dev/shm", PREFIX + "r"), size)
    sent = [tensor(triton.module, "x", X, "FP32")]
    with pytest.raises(InferenceServerException, match="has become smaller"):
        triton.infer("scale", [shared_input(triton)])
    with pytest.raises(InferenceServerException, match="has become smaller"):
        triton.infer("scale", sent, outputs=[shared_output(triton)])
    assert os.stat(Path("/dev/shm", PREFIX + "r")).st_size == size
    np.testing.assert_array_equal(triton.infer("scale", sent).as_numpy("y"), X * 2)


@pytest.mark.parametrize("key", ["other", "", "/", "../PREFIX", "PREFIX/../x", "//PREFIXr", "PREFIX\0"])
def test_keys_that_are_not_the_operators(triton: Triton, key: str) -> None:
    with pytest.raises(InferenceServerException, match="an object that begins with"):
        triton.register_system_shared_memory("k", key.replace("PREFIX", PREFIX), 8)


def test_memory_of_a_gpu_is_refused(triton: Triton) -> None:
    with pytest.raises(InferenceServerException, match="computes on processors"):
        triton.register_cuda_shared_memory("c", b"aGFuZGxl", 0, 8)
    triton.unregister_cuda_shared_memory()
    assert not triton.get_cuda_shared_memory_status(**triton.as_json())
    assert "cuda_shared_memory" not in triton.get_server_metadata(**triton.as_json())["extensions"]


@pytest.mark.parametrize("kind", CLIENTS)
def test_without_the_setting_there_is_none(kind: str) -> None:
    source = ToySource()
    source.publish("scale", 1, scale_model, "stable")
    with running_server(source, models="*") as server:
        triton = Triton(kind, server)
        calls: tuple[Callable[[], Any], ...] = (
            lambda: triton.register_system_shared_memory("r", PREFIX + "r", 8),
            triton.unregister_system_shared_memory,
            triton.get_system_shared_memory_status,
            lambda: triton.infer("scale", [shared_input(triton)]),
        )
        for call in calls:
            with pytest.raises(InferenceServerException, match="INGOT_RUNTIME_SHARED_MEMORY"):
                call()
        assert "system_shared_memory" not in triton.get_server_metadata(**triton.as_json())["extensions"]
        triton.close()


def test_room_is_asked_for_before_inputs_are_copied(tmp_path: Path) -> None:
    memory, held = one_region(tmp_path), []

    def hold(size: int) -> None:
        held.append(size)
        raise IngotError(ErrorCode.RESOURCE_EXHAUSTED, "no room")

    inputs = (SharedTensor("x", DType.FLOAT32, (2,), RegionSlice("r", 8)), TensorData("z", DType.FLOAT32, X))
    with pytest.raises(IngotError, match="no room"):
        memory.filled(inputs, InferRequest("m", inputs, hold=hold))
    assert held == [8]


def one_region(folder: Path, size: int = 64) -> SharedMemory:
    (folder / "r").write_bytes(bytes(size))
    memory = SharedMemory("*", folder=folder)
    memory.register("r", "r", 0, size)
    return memory


def test_what_is_no_object_is_not_opened(tmp_path: Path) -> None:
    memory = SharedMemory("*", folder=tmp_path)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "target").write_bytes(bytes(8))
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "private").write_bytes(bytes(8))
    os.link(tmp_path / "private", tmp_path / "another name")
    for key in ("folder", "fifo", "link", "another name", ".", "..", "absent"):
        with pytest.raises(IngotError):
            memory.register("r", key, 0, 8)
    memory.register("r", "target", 0, 8)
    memory.close()


@pytest.mark.parametrize(("offset", "size"), [(0, 65), (60, 5), (-1, 1), (0, 0), (1 << 63, 1), (1, (1 << 64) - 1)])
def test_regions_outside_of_their_object(tmp_path: Path, offset: int, size: int) -> None:
    memory = one_region(tmp_path)
    with pytest.raises(IngotError) as caught:
        memory.register("s", "r", offset, size)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert [each.name for each in memory.status()] == ["r"]


def test_descriptors_are_bounded_and_given_back(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    memory = one_region(tmp_path)
    for at in range(MOST_REGIONS - 1):
        memory.register(str(at), "r", 0, 8)
    with pytest.raises(IngotError, match="too many regions"):
        memory.register("more", "r", 0, 8)
    memory.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_region_that_is_unregistered_while_it_is_used(tmp_path: Path) -> None:
    """What is read is of the region, or refused: never of a file that got its descriptor."""
    (tmp_path / "r").write_bytes(bytes([7]) * 64)
    (tmp_path / "other").write_bytes(bytes([9]) * 64)
    memory = SharedMemory("*", folder=tmp_path)
    tensor = SharedTensor("x", DType.UINT8, (64,), RegionSlice("r", 64))

    def read(_: int) -> set[int]:
        try:
            (found,) = memory.filled((tensor,), InferRequest("m", (tensor,)))
        except IngotError:
            return set()
        return set(found.array.tolist())

    def change() -> None:
        for name in ("r", "other") * 1000:
            memory.register(name, name, 0, 64)
            memory.unregister(name)

    with ThreadPoolExecutor(2) as pool:
        changing = pool.submit(change)
        found = [read(i) for i in range(2000)]
        changing.result()
    assert set().union(*found) <= {7}
