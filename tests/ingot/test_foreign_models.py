"""Files and bytes are read in a child inside the boundary: its answers, its errors, what it sees, and how it ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ingot
from compiler_service.boundary import state
from compiler_service.boundary.parts import BoundaryPart, Standing
from compiler_service.boundary.state import standing
from compiler_service.stages import kept
from shared_ir.errors import ErrorCode
from shared_ir.plan.json_form import write_plan
from tests.ingot.small_models import classifier, scale, unsupported

linux = pytest.mark.skipif(sys.platform != "linux", reason="the boundary is made of what Linux has")
pytestmark = linux
whole = pytest.mark.skipif(
    sys.platform == "linux" and not standing().holds(BoundaryPart.FILES),
    reason=f"this kernel has no file view: {standing()}",
)


def with_external_data(folder: Path, location: str) -> Path:
    """A model whose weight lies in the file ``location`` beside it."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_the_child_gives_what_this_process_would() -> None:
    data = classifier().SerializeToString()
    here, there = ingot.compile(data, workers=0, in_process=True), ingot.compile(data, workers=0)
    assert there.library == here.library
    assert bytes(memoryview(there.weights)) == bytes(memoryview(here.weights))  # type: ignore[arg-type]
    assert write_plan(there.plan) == write_plan(here.plan)
    assert there.manifest == here.manifest


@pytest.mark.parametrize("data", [b"", b"nonsense", unsupported().SerializeToString()])
def test_errors_come_through_unchanged(data: bytes) -> None:
    errors = []
    for in_process in (False, True):
        with pytest.raises(ingot.IngotError) as caught:
            ingot.compile(data, workers=0, in_process=in_process)
        errors.append(caught.value.to_dict())
    assert errors[0] == errors[1]


def test_what_the_caller_built_stays_in_his_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "start_child", lambda *_: pytest.fail("a child was started"))
    monkeypatch.setattr(kept, "warm_up", lambda: pytest.fail("a child was started"))
    ingot.compile(scale(), workers=0)
    ingot.compile(scale().SerializeToString(), workers=0, in_process=True)


def test_data_beside_a_model_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    np.full(4, 3, np.float32).tofile(tmp_path / "data" / "w.bin")
    path = with_external_data(tmp_path, "data/w.bin")
    monkeypatch.chdir(tmp_path)
    for model in (path, Path("model.onnx")):
        with ingot.load(ingot.compile(model, workers=0)) as loaded:
            assert loaded.run({"x": np.ones(4, np.float32)})["y"].tolist() == [3, 3, 3, 3]


@whole
def test_hidden_files_beside_a_model_are_not(tmp_path: Path) -> None:
    """A key in the folder does not become a weight."""
    (tmp_path / ".ingot").mkdir()
    (tmp_path / ".ingot" / "signing.pem").write_bytes(b"0123456789abcdef")
    path = with_external_data(tmp_path, ".ingot/signing.pem")
    with pytest.raises(ingot.IngotError) as caught:
        ingot.compile(path, workers=0)
    assert caught.value.code is ErrorCode.EXTERNAL_DATA
    assert ingot.compile(path, workers=0, in_process=True).weights is not None


def test_a_missing_file_is_named_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ingot.IngotError) as caught:
        ingot.compile("missing.onnx", workers=0)
    assert caught.value.code is ErrorCode.NOT_FOUND
    assert caught.value.field == "missing.onnx"


def test_who_compiles_at_the_same_time_gets_his_own() -> None:
    found: dict[int, int] = {}

    def compile_own(width: int) -> None:
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [width]) for name in "xy")
        graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        found[width] = int(ingot.compile(model.SerializeToString(), workers=0).plan.inputs[0].shape[0])  # type: ignore[arg-type]

    threads = [threading.Thread(target=compile_own, args=(width,)) for width in (3, 5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {3: 3, 5: 5, 7: 7}


def test_a_nursery_that_died_is_replaced() -> None:
    data = scale().SerializeToString()
    ingot.compile(data, workers=0)
    (nursery,) = kept._KEPT
    os.killpg(nursery._process.pid, signal.SIGKILL)
    nursery._process.wait()
    assert ingot.compile(data, workers=0).library
    assert [nursery] != kept._KEPT


def test_a_nursery_whose_user_has_gone_ends_without_a_word() -> None:
    """SIGTERM to a command that has just begun: the nursery still imports the compiler."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.close()
    with theirs:
        command = [sys.executable, "-m", "compiler_service.stages.nursery", str(theirs.fileno())]
        done = subprocess.run(command, pass_fds=(theirs.fileno(),), capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_forked_process_has_a_nursery_of_its_own() -> None:
    data = scale().SerializeToString()
    ingot.compile(data, workers=0)
    before = kept._KEPT[0]
    child = multiprocessing.get_context("fork").Process(target=ingot.compile, args=(data,), kwargs={"workers": 0})
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert ingot.compile(data, workers=0).library
    assert [before] == kept._KEPT


def test_a_part_that_is_required_and_missing_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGOT_SANDBOX", "require")
    monkeypatch.setattr(state, "standing", lambda: Standing({BoundaryPart.FILES: "no Landlock"}))
    with pytest.raises(ingot.IngotError, match="no Landlock") as caught:
        ingot.compile(scale().SerializeToString(), workers=0)
    assert caught.value.code is ErrorCode.UNAVAILABLE


@pytest.mark.slow
def test_ctrl_c_ends_the_child(tmp_path: Path) -> None:
    """Also what it has started; the process that waited for it goes on."""
    size = 400
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in ("x0", f"x{size}"))
    nodes = [helper.make_node(("Sin", "Exp", "Neg")[i % 3], [f"x{i}"], [f"x{i + 1}"]) for i in range(size)]
    onnx.save(
        helper.make_model(
            helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ),
        tmp_path / "long.onnx",
    )
    script = (
        "import ingot, sys, os\n"
        "told = lambda *_: print('compiling', flush=True)\n"
        "try:\n"
        "    ingot.compile('long.onnx', progress=told)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', os.listdir(os.environ['TMPDIR']), flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    (tmp_path / "tmp").mkdir()
    environment = dict(os.environ, TMPDIR=str(tmp_path / "tmp"))
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"compiling\n"
        assert within(30, lambda: len(list(compilers_in(tmp_path))) > 1)
        process.send_signal(signal.SIGINT)
        said = next(line for line in process.stdout if line.startswith(b"interrupted"))
        assert said == b"interrupted []\n"
        assert within(10, lambda: len(list(compilers_in(tmp_path))) == 1)
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.wait()


def compilers_in(folder: Path) -> Iterator[bytes]:
    """Command lines of the processes there that belong to the compiler: the nursery, which stays, and those at work."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command, where = (path / "cmdline").read_bytes(), (path / "cwd").readlink()
        except OSError:
            continue
        if where == folder and b"compiler_service" in command and b"launch.py" not in command:
            yield command


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.05)
    return False
