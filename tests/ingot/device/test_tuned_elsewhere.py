"""A model tuned through measuring servers: the command, two of them that share the work, and what is left where one is lost."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import ingot
from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.tune.measuring.trial import OutcomeKind
from compiler_service.compiler.tune.records.lines import read_lines
from compiler_service.compiler.tune.records.record import TrialRecord
from ingot.cli.main import main
from ingot.devices import DeviceConnection, connect, tuner_key
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.compiler.tune.test_tuned_models import small_model
from tests.ingot.device.boards import LocalBoard, board

pytestmark = [
    pytest.mark.services,
    pytest.mark.timeout(900),
]  # the first static program for a target builds its C library


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    return path


def start(folder: Path, home: Path) -> AbstractContextManager[LocalBoard]:
    """A server that trusts the tuner at ``home``."""
    folder.mkdir()
    return board(folder, tuner_key(home))


def trials_of(records: Path) -> list[TrialRecord]:
    found = read_lines(records.read_bytes())[0]
    return [r for r in found if not r.confirmed and not r.settled]


def test_a_model_is_tuned_by_two_devices_of_which_one_is_lost(model: Path, tmp_path: Path) -> None:
    home, records = tmp_path / "home", tmp_path / "records.jsonl"
    with start(tmp_path / "one", home) as one, start(tmp_path / "other", home) as other:
        devices = connect([one.address, other.address], host_target(), tuner_key(home))
        try:
            known: list[int] = []

            def progress(stage: str, done: int, total: int, message: str) -> None:
                if "trials" in message and not known:
                    known.append(len(trials_of(records)))
                    other.kill()

            result = ingot.tune(model, seconds=45, records=records, measurer=devices, progress=progress)
        finally:
            devices.close()
    trials = trials_of(records)
    (before,) = known
    assert result.trials == len(trials) > before > 0
    assert {r.outcome for r in trials} <= {OutcomeKind.MEASURED, OutcomeKind.REFUSED}
    assert all(one.address in r.machine and other.address in r.machine for r in trials)
    assert ingot.compile(model, records=records).report["kernels"] > 0


def test_when_all_are_lost_what_was_learned_is_kept(model: Path, tmp_path: Path) -> None:
    home, records = tmp_path / "home", tmp_path / "records.jsonl"
    with start(tmp_path / "one", home) as one:
        devices = connect([one.address], host_target(), tuner_key(home))

        def progress(stage: str, done: int, total: int, message: str) -> None:
            if "trials" in message:
                one.kill()

        try:
            with pytest.raises(IngotError) as caught:
                ingot.tune(model, seconds=25, records=records, measurer=devices, progress=progress)
        finally:
            devices.close()
    assert caught.value.code is ErrorCode.DEVICE_TIMEOUT
    assert [r for r in read_lines(records.read_bytes())[0] if r.outcome is OutcomeKind.MEASURED]


def test_the_command_measures_on_a_device(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home, records = tmp_path / "home", tmp_path / "records.jsonl"
    with start(tmp_path / "one", home) as one:
        words = ["tune", str(model), "--seconds", "12", "--records", str(records), "--home", str(home)]
        assert main([*words, "--device", one.address]) == 0
    assert "tasks faster" in capsys.readouterr().out
    assert read_lines(records.read_bytes())[0]


def test_a_device_that_another_tuner_has_is_said_within_the_seconds(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is measured, and nothing written."""
    home, records = tmp_path / "home", tmp_path / "records.jsonl"
    with start(tmp_path / "one", home) as one:
        DeviceConnection(one.address).take_lease(600.0)
        words = ["tune", str(model), "--seconds", "2", "--records", str(records), "--home", str(home)]
        assert main([*words, "--device", one.address]) == 3
    said = capsys.readouterr().err
    assert "is busy with another tuner; expected one that is free within 2 s" in said
    assert not records.exists()
