"""A tuner and measuring servers: what is measured, what is lost, and what candidates cannot do."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.tune.measuring.device import DeviceMeasurer, DevicePool
from compiler_service.compiler.tune.measuring.trial import Content, OutcomeKind
from ingot.cli.main import main
from ingot.device.trust import trust_at
from ingot.devices import DeviceConnection, connect, tuner_key
from shared_ir.artifact.signature import SigningKey, public_pem
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import PRESETS
from tests.compiler_service.compiler.tune.measuring.at_once import run_at_once
from tests.house.test_imports import ROOT
from tests.ingot.device.boards import (
    ADDS,
    ASKS_FOR_MORE,
    CRASHES,
    DOUBLES,
    EATS,
    FORKS,
    INPUT,
    LOOPS,
    LocalBoard,
    board,
    candidate,
    floats,
)
from tests.services.certificates import pair

pytestmark = [
    pytest.mark.services,
    pytest.mark.timeout(900),
]  # the first static program for a target builds its C library
KEY = SigningKey.generate()
only_x86 = pytest.mark.skipif(host_target().architecture != "x86_64", reason="the candidate is written for x86-64")


@pytest.fixture(scope="module", name="device")
def start_board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBoard]:
    with board(tmp_path_factory.mktemp("board"), KEY) as running:
        yield running


@pytest.fixture(name="measurer")
def make_measurer(device: LocalBoard) -> Iterator[DeviceMeasurer]:
    measurer = DeviceMeasurer(DeviceConnection(device.address), KEY, limit=1.0)
    yield measurer
    measurer.close()


def test_trials_are_measured_and_their_results_are_those_of_the_kernel(measurer: DeviceMeasurer) -> None:
    slower = DOUBLES.replace("y[i] = 2.0f * x[i]", "for (volatile int t = 0; t < 20; t++) y[i] = 2.0f * x[i]")
    quick, slow = measurer.run([candidate(), candidate(slower, copies=3)], 0.2)
    for outcome in (quick, slow):
        assert outcome.kind is OutcomeKind.MEASURED
        assert outcome.timing is not None
        assert len(outcome.timing.rounds) >= 1
        assert min(outcome.timing.rounds) > 0
        np.testing.assert_array_equal(floats(outcome.results), 2 * INPUT)


def test_what_buffers_hold_after_the_first_run(measurer: DeviceMeasurer) -> None:
    """Not after all the rounds of the timing."""
    (outcome,) = measurer.run([candidate(ADDS)], 0.05)
    np.testing.assert_array_equal(floats(outcome.results), np.ones_like(INPUT))


def test_launches_follow_each_other_whatever_they_are_called(measurer: DeviceMeasurer) -> None:
    """Of two libraries that export the same name, and one of them twice."""
    doubles, adds = candidate(), candidate(ADDS)
    code, launches = (*doubles.code, *adds.code, *adds.code), doubles.launches * 3
    (outcome,) = measurer.run([replace(doubles, code=code, launches=launches)], 0.01)
    np.testing.assert_array_equal(floats(outcome.results), 2 * INPUT + np.float32(1) + np.float32(1))


def test_each_content_is_sent_once(device: LocalBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    connection, sent = DeviceConnection(device.address), []
    put = connection._stub.PutContent

    def counted(pieces: Iterator[object], **named: object) -> object:
        held = list(pieces)
        sent.append(held[0].header.digest)  # type: ignore[attr-defined]
        return put(iter(held), **named)

    monkeypatch.setattr(connection._stub, "PutContent", counted)
    measurer, trial = DeviceMeasurer(connection, KEY), candidate(DOUBLES.replace("2.0f", "5.0f"))
    other = replace(
        trial, buffers=(replace(trial.buffers[0], content=Content.of(INPUT[::-1].tobytes())), trial.buffers[1])
    )
    for trials in ([trial], [trial], [trial, other]):
        measurer.run(trials, 0.01)
    measurer.close()
    assert len(sent) == len(set(sent))
    assert other.buffers[0].content is not None
    assert sent[-1] == other.buffers[0].content.digest


HOSTILE = [
    (CRASHES, OutcomeKind.CRASHED, "SIGSEGV"),
    (LOOPS, OutcomeKind.LATE, "limit"),
    (ASKS_FOR_MORE, OutcomeKind.REFUSED, "malloc"),
    pytest.param(EATS, OutcomeKind.CRASHED, "system call", marks=only_x86),
    pytest.param(FORKS, OutcomeKind.CRASHED, "system call", marks=only_x86),
]


@pytest.mark.parametrize(("text", "kind", "reason"), HOSTILE, ids=["crashes", "loops", "asks", "eats", "forks"])
def test_a_candidate_harms_itself_alone(
    measurer: DeviceMeasurer, device: LocalBoard, text: str, kind: OutcomeKind, reason: str
) -> None:
    good, bad = measurer.run([candidate(), candidate(text)], 0.05)
    assert (bad.kind, bad.timing, bad.results) == (kind, None, ())
    assert reason in bad.reason
    assert good.kind is OutcomeKind.MEASURED
    assert device.children() == []


@only_x86
def test_memory_is_limited_where_system_calls_are_not(tmp_path: Path) -> None:
    with board(tmp_path, KEY, "--no-seccomp") as running:
        measurer = DeviceMeasurer(DeviceConnection(running.address), KEY, limit=1.0)
        eater, forker = measurer.run([candidate(EATS), candidate(FORKS)], 0.05)
        assert eater.kind is OutcomeKind.MEASURED
        assert floats(eater.results)[0] < 4, "gigabytes"
        assert forker.kind is OutcomeKind.LATE
        measurer.close()
        assert running.children() == []


def test_more_memory_than_the_device_gives(tmp_path: Path) -> None:
    """Trials that are too many for it are measured one after the other; one that is too large is refused."""
    with board(tmp_path, KEY, "--memory-bytes", str(1 << 20), "--cache-bytes", str(2 << 20)) as running:
        measurer = DeviceMeasurer(DeviceConnection(running.address), KEY)
        trial, data = candidate(), bytes(3 << 20)
        many = replace(trial, buffers=(replace(trial.buffers[0], copies=40), trial.buffers[1]))
        huge = replace(trial, buffers=(trial.buffers[0], replace(trial.buffers[1], size=1 << 40)))
        wide = replace(
            trial, buffers=(replace(trial.buffers[0], size=len(data), content=Content.of(data)), trial.buffers[1])
        )
        *measured, refused, other = measurer.run([many, many, many, huge, wide], 0.01)
        for outcome in measured:
            assert outcome.kind is OutcomeKind.MEASURED
            np.testing.assert_array_equal(floats(outcome.results), 2 * INPUT)
        for outcome in (refused, other):
            assert outcome.kind is OutcomeKind.REFUSED
            assert "no room" in outcome.reason
        measurer.close()


def test_contents_that_do_not_fit_the_device_together(tmp_path: Path) -> None:
    with board(tmp_path, KEY, "--cache-bytes", str(2 << 20)) as running:
        measurer = DeviceMeasurer(DeviceConnection(running.address), KEY)
        trials = []
        for n in range(4):
            own = candidate()
            data = INPUT.tobytes() + bytes([n]) * (600_000 - INPUT.nbytes)
            trials.append(
                replace(
                    own, buffers=(replace(own.buffers[0], size=len(data), content=Content.of(data)), own.buffers[1])
                )
            )
        for outcome in measurer.run(trials, 0.01):
            assert outcome.kind is OutcomeKind.MEASURED
            np.testing.assert_array_equal(floats(outcome.results), 2 * INPUT)
        measurer.close()


def test_a_second_tuner_waits_until_the_first_has_gone(device: LocalBoard, measurer: DeviceMeasurer) -> None:
    measurer.run([candidate()], 0.01)
    impatient = DeviceMeasurer(DeviceConnection(device.address, patience=0.0), KEY)
    with pytest.raises(IngotError) as caught:
        impatient.run([candidate()], 0.01)
    assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
    patient = DeviceMeasurer(DeviceConnection(device.address, patience=60.0), KEY)
    threading.Timer(0.5, measurer.close).start()
    assert patient.run([candidate()], 0.01)[0].kind is OutcomeKind.MEASURED
    for own in (impatient, patient):
        own.close()


def test_a_device_that_another_tuner_has_is_waited_for_before_anything_is_tuned(
    device: LocalBoard, measurer: DeviceMeasurer
) -> None:
    measurer.lease()
    told = list[str]()

    def progress(stage: str, done: int, total: int, message: str) -> None:
        told.append(message)
        measurer.close()  # it has been heard that somebody waits

    with pytest.raises(IngotError, match="is busy with another tuner") as caught:
        connect([device.address], host_target(), KEY, patience=0.0, progress=progress)
    assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
    assert "leased by another tuner" in caught.value.received
    assert not told
    pool = connect([device.address], host_target(), KEY, patience=60.0, progress=progress)
    assert told == [f"waiting until another tuner has gone from {device.address}"]
    assert DeviceConnection(device.address).status().is_leased
    assert pool.run([candidate()], 0.01)[0].kind is OutcomeKind.MEASURED
    pool.close()
    assert not DeviceConnection(device.address).status().is_leased


def test_of_two_devices_the_one_that_is_free_measures(
    tmp_path: Path, device: LocalBoard, measurer: DeviceMeasurer
) -> None:
    measurer.lease()
    with board(tmp_path, KEY) as other:
        pool = connect([device.address, other.address], host_target(), KEY)
        found = run_at_once(pool, [[candidate()]] * 3, 0.01)
        assert [outcome.kind for (outcome,) in found] == [OutcomeKind.MEASURED] * 3
        assert DeviceConnection(other.address).status().runs == 3
        with pytest.raises(IngotError, match=f"the devices {device.address}, {other.address} are busy"):
            connect([device.address, other.address], host_target(), KEY, patience=0.0)
        pool.close()


def test_a_lease_that_is_renewed_outlasts_its_time(device: LocalBoard) -> None:
    measurer = DeviceMeasurer(DeviceConnection(device.address), KEY, limit=7.0, lease_seconds=3.0)
    assert measurer.run([candidate(LOOPS), candidate()], 0.05)[1].kind is OutcomeKind.MEASURED
    measurer.close()


def test_an_expired_lease_frees_the_device_and_ends_what_runs(
    device: LocalBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = DeviceConnection(device.address)
    monkeypatch.setattr(connection, "renew_lease", lambda lease, timeout: time.sleep(0.1))
    measurer = DeviceMeasurer(connection, KEY, limit=60.0, lease_seconds=2.0)
    with pytest.raises(IngotError) as caught:
        measurer.run([candidate(LOOPS)], 0.05)
    assert caught.value.code is ErrorCode.DEVICE_TIMEOUT
    assert "lease" in caught.value.message
    assert device.children() == []
    status = connection.status()
    assert not status.is_leased
    measurer.close()
    other = DeviceMeasurer(DeviceConnection(device.address, patience=0.0), KEY)
    assert other.run([candidate()], 0.01)[0].kind is OutcomeKind.MEASURED
    other.close()


def test_trials_of_a_killed_device_are_done_by_the_other(tmp_path: Path) -> None:
    with board(tmp_path, KEY) as first, board(tmp_path, KEY) as second:
        pool = connect([first.address, second.address], host_target(), KEY, limit=5.0)
        assert isinstance(pool, DevicePool)
        batches = [[candidate(DOUBLES.replace("2.0f", f"{n + 1}.0f"))] for n in range(6)]
        found = run_at_once(pool, batches, 0.05)
        runs = [DeviceConnection(own.address).status().runs for own in (first, second)]
        assert sum(runs) == 6
        assert min(runs) >= 1, "both measure"

        def kill_at_work() -> None:
            first.await_work()
            first.kill()

        killer = threading.Thread(target=kill_at_work)
        killer.start()
        again = run_at_once(pool, batches, 0.3)
        killer.join()
        for outcomes in (found, again):
            for n, (outcome,) in enumerate(outcomes):
                assert outcome.kind is OutcomeKind.MEASURED
                np.testing.assert_array_equal(floats(outcome.results), np.float32(n + 1) * INPUT)
        second.kill()
        with pytest.raises(IngotError) as caught:
            run_at_once(pool, batches, 0.05)
        assert caught.value.code is ErrorCode.DEVICE_TIMEOUT
        pool.close()


def test_a_killed_server_takes_its_trials_with_it(tmp_path: Path) -> None:
    with board(tmp_path, KEY) as running:
        measurer = DeviceMeasurer(DeviceConnection(running.address), KEY, limit=30.0)
        errors: list[IngotError] = []

        def run() -> None:
            try:
                measurer.run([candidate(LOOPS)], 0.05)
            except IngotError as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        running.await_work()
        time.sleep(0.3)
        (child,) = running.children()
        running.kill()
        thread.join(60)
        assert [error.code for error in errors] == [ErrorCode.DEVICE_TIMEOUT]
        until = time.monotonic() + 10
        while is_alive(child) and time.monotonic() < until:
            time.sleep(0.02)
        assert not is_alive(child)
        measurer.close()


def test_a_device_that_answers_no_more_is_lost(tmp_path: Path) -> None:
    """Its connection stays; it could be a cable that was pulled."""
    with board(tmp_path, KEY) as running:
        measurer = DeviceMeasurer(DeviceConnection(running.address), KEY, limit=60.0, lease_seconds=3.0)

        def stop_at_work() -> None:
            running.await_work()
            running.process.send_signal(signal.SIGSTOP)

        stopper = threading.Thread(target=stop_at_work)
        stopper.start()
        try:
            with pytest.raises(IngotError) as caught:
                measurer.run([candidate(LOOPS)], 0.05)
            assert caught.value.code is ErrorCode.DEVICE_TIMEOUT
        finally:
            stopper.join()
            running.process.send_signal(signal.SIGCONT)
        measurer.close()


def test_a_tuner_that_is_gone_leaves_nothing_running(device: LocalBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before its lease has ended."""
    connection = DeviceConnection(device.address)
    lease = connection.take_lease(60.0)
    monkeypatch.setattr(connection, "take_lease", lambda seconds: lease)
    measurer = DeviceMeasurer(connection, KEY, limit=60.0)

    def leave() -> None:
        device.await_work()
        connection.close()

    leaver = threading.Thread(target=leave)
    leaver.start()
    with pytest.raises(IngotError) as caught:
        measurer.run([candidate(LOOPS)], 0.05)
    assert caught.value.code is ErrorCode.DEVICE_TIMEOUT
    leaver.join()
    until = time.monotonic() + 20
    while device.children() and time.monotonic() < until:
        time.sleep(0.02)
    assert device.children() == []
    other = DeviceConnection(device.address)
    assert other.status().is_leased
    other.release_lease(lease)


def test_tls_and_a_token_between_machines(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    server, client = pair(tmp_path, "server"), pair(tmp_path, "client")
    files = {"--tls-certificate": server[0], "--tls-key": server[1], "--tls-client-ca": client[0]}
    options = [word for option, path in files.items() for word in (option, str(path))]
    with board(tmp_path, KEY, "--token-file", str(tmp_path / "token"), *options) as running:
        address = running.address.replace("127.0.0.1", "localhost")
        shown = {"client_certificate": client[0], "client_key": client[1]}
        whole: dict[str, Any] = {"token": "secret", "ca_certificate": server[0], **shown}
        pool = connect([address], host_target(), KEY, **whole)
        assert pool.run([candidate()], 0.01)[0].kind is OutcomeKind.MEASURED
        pool.close()
        for missing in (["token"], list(shown), ["ca_certificate", *shown]):
            with pytest.raises(IngotError) as caught:
                DeviceConnection(address, **{name: v for name, v in whole.items() if name not in missing}).status()
            assert caught.value.code in (ErrorCode.UNAUTHENTICATED, ErrorCode.UNAVAILABLE)


def is_alive(process: int) -> bool:
    status = Path(f"/proc/{process}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_devices_are_looked_at_before_anything_is_tuned(device: LocalBoard) -> None:
    for address, target, signer, code in (
        (device.address, PRESETS["riscv64/generic"][0], KEY, ErrorCode.ARTIFACT_INCOMPATIBLE),
        (device.address, host_target(), SigningKey.generate(), ErrorCode.ARTIFACT_UNTRUSTED),
        ("127.0.0.1:9", host_target(), KEY, ErrorCode.UNAVAILABLE),
    ):
        with pytest.raises(IngotError) as caught:
            connect([address], target, signer)
        assert caught.value.code is code
    pool = connect(["127.0.0.1:9", device.address, device.address], host_target(), KEY)
    assert pool.size == 2, "one may be away, and none counts twice"
    assert pool.run([candidate()], 0.01)[0].kind is OutcomeKind.MEASURED
    pool.close()


def test_a_token_is_asked_for_before_anything_else(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    with board(tmp_path, KEY, "--token-file", str(tmp_path / "token")) as running:
        for token in ("", "wrong", "secret "):
            with pytest.raises(IngotError) as caught:
                DeviceConnection(running.address, token=token).status()
            assert caught.value.code is ErrorCode.UNAUTHENTICATED
        assert DeviceConnection(running.address, token="secret").status().cores >= 1


def test_commands_say_what_a_device_is(device: LocalBoard, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["device", "status", device.address, "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["trusted_keys"] == [KEY.key_id]
    assert status["architecture"] == host_target().architecture
    assert main(["device", "status", device.address]) == 0
    assert "free" in capsys.readouterr().out
    assert main(["device", "status", "127.0.0.1:9"]) == 3
    home = ["--home", str(tmp_path)]
    assert main(["device", "key", "--out", str(tmp_path / "tuner.pub"), *home]) == 0
    assert list(trust_at(tmp_path / "tuner.pub").keys) == [tuner_key(tmp_path).key_id]
    assert main(["device", "key", "--json", *home]) == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2])["public_key"] == (tmp_path / "tuner.pub").read_text()


def test_servers_that_do_not_start_say_why(device: LocalBoard, tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_bytes(public_pem(KEY.public))
    trust = ["--trust", str(tmp_path / "key.pub")]
    for words, status, reason in (
        (["--trust", str(tmp_path / "none")], 1, "device key"),
        ([*trust, "--listen", "0.0.0.0:0"], 1, "--token-file"),
        ([*trust, "--token-file", str(tmp_path / "none")], 1, "--token-file"),
        ([*trust, "--listen", device.address], 3, "cannot listen"),
    ):
        command = [sys.executable, "-m", "ingot", "device", "serve", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
        assert (done.returncode, done.stdout) == (status, "")
        assert reason in done.stderr
        assert "Traceback" not in done.stderr
