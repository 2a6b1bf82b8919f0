"""What hostile code inside a stage's process reaches: a probe tries it all, under the boundary and without."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from compiler_service.boundary.parts import BoundaryPart
from compiler_service.boundary.state import standing
from compiler_service.stages.runner import StageLimits, StageRunner
from shared_ir.machine.target import Target, parse_target, target_to_dict

ROOT = Path(__file__).parents[3]
PROBE = Path(__file__).with_name("probe.py")
PROCESSES = 60
FS_IOC_GETFLAGS = 0x80086601

NEEDS: Mapping[str, BoundaryPart] = {
    "signal the worker": BoundaryPart.SIGNALS,
    "change the worker's limits": BoundaryPart.SYSTEM_CALLS,
    "move the worker to another core": BoundaryPart.SYSTEM_CALLS,
    "set the worker's turn aside": BoundaryPart.SYSTEM_CALLS,
    "connect to an abstract socket": BoundaryPart.SYSTEM_CALLS,
    "send to an abstract socket from a pair": BoundaryPart.SYSTEM_CALLS,
    "see a network": BoundaryPart.NETWORK,
    "very many processes": BoundaryPart.LIMITS,
    "have capabilities": BoundaryPart.PRIVILEGES,
    "become someone": BoundaryPart.SYSTEM_CALLS,
    "gain privileges": BoundaryPart.PRIVILEGES,
}
"""Parts of the boundary that attempts are stopped by, where that is not the file view or the filter of system calls."""


@pytest.fixture
def aims(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """An installation with something to steal, and servers to talk to."""
    files = {name: tmp_path / "home" / place for name, place in PLACES.items()}
    for path in files.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    (tmp_path / "home" / "cache" / "native").mkdir(parents=True)
    with ExitStack() as servers:
        unix, abstract = (servers.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        unix.bind(str(tmp_path / "redis.sock"))
        abstract.bind(f"\0ingot-{os.getpid()}")
        for place in (str(tmp_path / "datagrams.sock"), f"\0ingot-{os.getpid()}-datagrams"):
            servers.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)).bind(place)
        port = servers.enter_context(socket.create_server(("127.0.0.1", 0)))
        for server in (unix, abstract):
            server.listen()
        yield {name: str(path) for name, path in files.items()} | {
            "artifact": str(files["weights"].parent),
            "trust": str(files["key"].parent / "trust"),
            "cache": str(tmp_path / "home" / "cache"),
            "socket": str(tmp_path / "redis.sock"),
            "datagrams": str(tmp_path / "datagrams.sock"),
            "abstract": f"ingot-{os.getpid()}",
            "port": port.getsockname()[1],
            "worker": os.getpid(),
            "processes": PROCESSES + 400,
        }


PLACES = {
    "key": "signing.pem",
    "foreign": "store/sources/foreign",
    "model": "store/sources/own",
    "weights": "given/artifact/weights.bin",
}


def probe(tmp_path: Path, aims: dict[str, Any]) -> Mapping[str, str]:
    """What the probe got inside the boundary, by the name of the attempt."""
    (tmp_path / "work").mkdir()
    request = {"stage": "build", "source": {"model": aims["model"], "blobs": {}}, "options": aims}
    request["artifact"] = aims["artifact"]
    limits = StageLimits(memory=4 * 1024**3, seconds=60, processes=PROCESSES)
    runner = StageRunner((sys.executable, str(PROBE)), limits, Path(aims["cache"]))
    got: Mapping[str, str] = runner.run(tmp_path / "work", request, lambda _: None, lambda: False)["got"]
    return got


def test_hostile_code_gets_nothing(tmp_path: Path, aims: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker holds credentials, a key, a store, sockets and open files: none can be used from inside."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("INGOT_REDIS_URL", "redis://secret")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    left_open = os.open(aims["key"], os.O_RDONLY)
    os.set_inheritable(left_open, True)
    try:
        got = probe(tmp_path, aims)
    finally:
        os.close(left_open)
    missing = standing().missing
    excused = {name for name in got if NEEDS.get(name, BoundaryPart.FILES) in missing}
    assert {name: what for name, what in got.items() if what and name not in excused} == {}
    if excused:
        pytest.skip(f"this kernel lacks a part of the boundary: {standing()}; not tried: {', '.join(sorted(excused))}")


def test_the_probe_would_get_it_without_the_boundary(tmp_path: Path, aims: dict[str, Any]) -> None:
    """The attempts are real: outside, most of them succeed."""
    (tmp_path / "request.json").write_text(json.dumps({"options": aims | {"processes": 80}}))
    command = [sys.executable, str(PROBE), str(tmp_path), "99"]
    subprocess.run(command, check=True, timeout=60, start_new_session=True, capture_output=True)
    got = json.loads((tmp_path / "result.json").read_bytes())["got"]
    succeeded = {name for name, what in got.items() if what}
    assert succeeded >= {
        "read the signing key",
        "point the worker at the key",
        "make the key readable for all",
        "read another model in the store",
        "write into the store",
        "write into the cache",
        "signal the worker",
        "move the worker to another core",
        "set the worker's turn aside",
        "connect to a Unix socket",
        "connect to an abstract socket",
        "connect to a port of this machine",
        "send a datagram to a Unix socket",
        "send to a Unix socket from a raw pair",
        "send to an abstract socket from a pair",
        "hand a descriptor to a Unix socket",
        "hand a descriptor over a pair",
        "ask a pair for the machine's interfaces",
        "have the worker signalled",
        "have the worker signalled by a socket",
        "lock its model",
        "lock a part of its model",
        "lease its model",
        "watch a folder",
        "leave a hint with its model",
        "the machine's requests for reading and writing",
        "the user's room for watched descriptors",
        "list the attributes of the key",
        "run what it wrote without a name",
        "run what it wrote into memory",
        "a pair for packets",
        "run a shell",
        "run what it wrote",
        "very many processes",
        "gain privileges",
    }
    if has_marks(Path(aims["model"])):
        assert succeeded >= {"mark its model", "mark its model with a longer number"}


def has_marks(path: Path) -> bool:
    """Whether the file system keeps what ``chattr`` sets."""
    with path.open("rb") as file:
        try:
            fcntl.ioctl(file, FS_IOC_GETFLAGS, bytes(8))
        except OSError:
            return False
    return True


TRIES = """
import json, pathlib, subprocess, sys
work = pathlib.Path(sys.argv[1])
got = {}
for program in json.loads((work / "request.json").read_bytes())["options"]["programs"]:
    try:
        got[program] = subprocess.run([program], check=False).returncode
    except OSError as error:
        got[program] = error.strerror
(work / "result.json").write_text(json.dumps({"got": got}))
"""


@pytest.mark.skipif(BoundaryPart.FILES in standing().missing, reason="this kernel has no Landlock")
@pytest.mark.parametrize(
    ("stage", "target", "may"),
    [
        ("verify", "raspberry-pi/4b", True),
        ("verify", "raspberry-pi/2b", False),
        ("build", "raspberry-pi/4b", False),
        ("tune", "raspberry-pi/4b", False),
    ],
)
def test_the_emulator_of_its_target_is_for_the_stage_that_verifies_alone(
    stage: str, target: str, may: bool, tmp_path: Path
) -> None:
    """A program stands for the emulator; another one, beside it, is executed by no stage."""
    emulator, other = (Path(os.path.realpath(str(shutil.which(name)))) for name in ("true", "false"))
    (tmp_path / "tries.py").write_text(TRIES)
    (tmp_path / "work").mkdir()
    request = {
        "stage": stage,
        "source": {"model": str(tmp_path / "tries.py"), "blobs": {}},
        "target": target_to_dict(parse_target(target)),
        "options": {"programs": [str(emulator), str(other)]},
    }
    limits = StageLimits(memory=4 * 1024**3, seconds=60)

    def found(asked: Target) -> Path | None:
        return emulator if asked == parse_target("raspberry-pi/4b") else None

    runner = StageRunner((sys.executable, str(tmp_path / "tries.py")), limits, tmp_path / "cache", emulator=found)
    got = runner.run(tmp_path / "work", request, lambda _: None, lambda: False)["got"]
    assert got == {str(emulator): 0 if may else "Permission denied", str(other): "Permission denied"}
