"""Every code of an error is raised, and says what was wrong, where, and what to do; docs/errors.md says whose it is."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ingot
from compiler_service.compiler.reference.comparison import compare
from compiler_service.compiler.reference.verification import require_verified
from compiler_service.compiler.tune.measuring.device import device_timeout
from compiler_service.jobs.reconciler import lost_too_often
from compiler_service.jobs.records import JobStage
from compiler_service.jobs.watching import _too_many
from compiler_service.stages.outcome import exceeded, how_it_died
from compiler_service.store.sources import SourceStore, UploadAnnouncement
from compiler_service.worker.faults import PATIENCE, disk_full, explain
from runtime_service.batching.messages import Cancellation
from runtime_service.batching.work import why_unwanted
from shared_ir.artifact.host import best_for_host
from shared_ir.artifact.repository import ArtifactRepository, blob_key
from shared_ir.artifact.signature import SigningKey, TrustStore
from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import PRESETS, resolve_target
from shared_ir.service_kit.access.gate import unauthenticated
from shared_ir.service_kit.access.principal import Principal, TokenScope
from shared_ir.service_kit.status import STATUS, internal
from shared_ir.storage.local import FileStore
from tests.services.artifacts import toy_artifact

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "errors.md"


def model(
    operator: str = "Relu",
    domain: str = "",
    opset: int = 17,
    dtype: int = TensorProto.FLOAT,
    inputs: Mapping[str, tuple[int, ...]] = {"x": (2,)},
    **attributes: object,
) -> onnx.ModelProto:
    """One node named ``n``."""
    node = helper.make_node(operator, list(inputs), ["y"], name="n", domain=domain, **attributes)
    given = [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", dtype, None)])
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def compiled(given: onnx.ModelProto | bytes, **options: object) -> object:
    return ingot.compile(given, in_process=True, **options)  # type: ignore[arg-type]


def late() -> IngotError:
    found = why_unwanted(0.0, None, 1.0)
    assert found is not None
    return found


def cancelled() -> IngotError:
    gone = Cancellation()
    gone.cancel()
    found = why_unwanted(None, gone, 0.0)
    assert found is not None
    return found


def with_data_elsewhere() -> onnx.ModelProto:
    made = model("Add", inputs={"x": (4,), "w": (4,)})
    weight = made.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[4])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    return made


def bomb() -> onnx.ModelProto:
    made = model("ConstantOfShape", inputs={"shape": (2,)})
    made.graph.input.pop()
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1 << 20, 1 << 20]), "shape"))
    return made


def wrong_answer() -> object:
    plan = compiled(model()).plan  # type: ignore[attr-defined]
    return compare(plan.outputs, [np.array([1, 2], np.float32)], [np.array([1, 3], np.float32)])


def other_bytes(folder: Path) -> object:
    data = b"a model"
    return SourceStore(FileStore(folder), 99).receive(
        UploadAnnouncement("m.onnx", len(data), sha256_hex(data)), [b"a modem"]
    )


def published(folder: Path) -> ArtifactRepository:
    signer = SigningKey.load_or_create(folder / "key.pem")
    made = ArtifactRepository(FileStore(folder / "store"), TrustStore.of([signer.public]), signer)
    made.put_artifact(toy_artifact("m"))
    made.publish("m", [toy_artifact("m").manifest.key])
    return made


def moved_meanwhile(folder: Path) -> None:
    key = SigningKey.generate()
    repository = ArtifactRepository(FileStore(folder), TrustStore.of([key.public]), key)
    repository.put_artifact(toy_artifact(key="ab" * 32))
    repository.publish("resnet", ["ab" * 32], "job1", ["stable"])
    repository.set_label("resnet", "stable", 1, etag="0")


def without_its_blobs(folder: Path) -> object:
    made = published(folder)
    version = made.resolve("m")
    for blob in made.store.list("blobs/sha256"):
        if blob.key not in blob_key(version.index.digest):
            made.store.delete(blob.key)
    return made.open_version(version)


def of_a_stranger(folder: Path) -> object:
    published(folder)
    return ArtifactRepository(FileStore(folder / "store"), TrustStore.of([])).open("m")


def of_another_machine() -> object:
    manifest = replace(toy_artifact("m").manifest, triple="riscv64-linux-gnu", cpu="sifive-u74", features=())
    other = replace(manifest, cpu="generic-rv64")
    return best_for_host([manifest, other])


def up_twice(folder: Path) -> object:
    """As its user sees it, in a process of its own."""
    from ingot.embedded.installation import _locked

    with _locked(folder), _locked(folder):
        return None


def raised(error: Exception) -> object:
    raise error


CASES: Mapping[ErrorCode, Callable[[Path], object]] = {
    ErrorCode.INVALID_MODEL: lambda _: compiled(b"junk"),
    ErrorCode.UNSUPPORTED_OPSET: lambda _: compiled(model(opset=99)),
    ErrorCode.UNSUPPORTED_OPERATOR: lambda _: compiled(model("Frobnicate")),
    ErrorCode.UNSUPPORTED_DOMAIN: lambda _: compiled(model("Thing", domain="com.acme")),
    ErrorCode.UNSUPPORTED_ATTRIBUTE: lambda _: compiled(model("Gelu", domain="com.microsoft", fast=1)),
    ErrorCode.UNSUPPORTED_DTYPE: lambda _: compiled(model(dtype=TensorProto.COMPLEX64, operator="Identity")),
    ErrorCode.TYPE_MISMATCH: lambda _: compiled(model("MatMul", inputs={"x": (2, 3), "w": (4, 5)})),
    ErrorCode.EXTERNAL_DATA: lambda _: compiled(with_data_elsewhere()),
    ErrorCode.LIMIT_EXCEEDED: lambda _: compiled(bomb()),
    ErrorCode.INVALID_ARGUMENT: lambda _: compiled(model(), optlevel=3),
    ErrorCode.INVALID_TARGET: lambda _: resolve_target("pentium-9", lambda: PRESETS["x86-64-v3"][0]),
    ErrorCode.UNAUTHENTICATED: lambda _: raised(unauthenticated()),
    ErrorCode.PERMISSION_DENIED: lambda _: Principal("ci", scopes=frozenset({TokenScope.READ})).require(
        TokenScope.LABEL
    ),
    ErrorCode.NOT_FOUND: lambda folder: ArtifactRepository(FileStore(folder), TrustStore.of([])).resolve("m"),
    ErrorCode.ALREADY_EXISTS: up_twice,
    ErrorCode.CONFLICT: moved_meanwhile,
    ErrorCode.CHECKSUM_MISMATCH: other_bytes,
    ErrorCode.CANCELLED: lambda _: raised(cancelled()),
    ErrorCode.DEADLINE_EXCEEDED: lambda _: raised(late()),
    ErrorCode.ARTIFACT_CORRUPT: without_its_blobs,
    ErrorCode.ARTIFACT_UNTRUSTED: of_a_stranger,
    ErrorCode.ARTIFACT_INCOMPATIBLE: lambda _: of_another_machine(),
    ErrorCode.NUMERIC_MISMATCH: lambda _: wrong_answer(),
    ErrorCode.NOT_VERIFIED: lambda _: require_verified(
        {"state": "not run", "reason": "the model draws random numbers"}
    ),
    ErrorCode.RESOURCE_EXHAUSTED: lambda _: raised(_too_many(48)),
    ErrorCode.UNAVAILABLE: lambda _: raised(how_it_died(96, 1, 1)),
    ErrorCode.RESOURCE_LIMIT: lambda _: raised(exceeded("time", "60 seconds")),
    ErrorCode.OUT_OF_MEMORY: lambda folder: raised(explain(MemoryError(), folder)),
    ErrorCode.DISK_FULL: lambda _: raised(disk_full("work")),
    ErrorCode.STAGE_KILLED: lambda _: raised(how_it_died(-signal.SIGKILL, 1, 1, -1)),
    ErrorCode.WORKER_LOST: lambda _: raised(lost_too_often(JobStage.BUILD, 3)),
    ErrorCode.DEVICE_TIMEOUT: lambda _: raised(device_timeout("board:50070", "it does not answer")),
    ErrorCode.COMPILER_FAULT: lambda _: raised(how_it_died(-signal.SIGSEGV, 1, 1)),
    ErrorCode.INTERNAL: lambda _: raised(internal(KeyError("lost"))),
}


@pytest.mark.parametrize("code", ErrorCode, ids=str)
def test_a_text(code: ErrorCode, tmp_path: Path, golden: Callable[..., None]) -> None:
    with pytest.raises(IngotError) as caught:
        CASES[code](tmp_path)
    assert caught.value.code is code
    text = str(caught.value).replace(str(tmp_path), "FOLDER")
    if code is ErrorCode.UNSUPPORTED_OPSET:
        text = text.replace(str(onnx.defs.onnx_opset_version()), "NEWEST")
    golden(re.sub(r"[0-9a-f]{16,}", "DIGEST", text))


def test_the_page_says_whose_each_is() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (\w+) \| (\d+) \| (\w*) ?\|", PAGE.read_text(), re.MULTILINE)
    told = {code: (blame, grpc, int(http), again == "yes") for code, blame, grpc, http, again in rows}
    real = {
        code.value: (
            IngotError(code, "").blame.value,
            STATUS[code][0].name,
            int(STATUS[code][1]),
            code in PATIENCE or code is ErrorCode.WORKER_LOST,
        )
        for code in ErrorCode
    }
    assert told == real
    assert len(real) >= 30
