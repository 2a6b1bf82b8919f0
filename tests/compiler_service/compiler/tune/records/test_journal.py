"""A journal that several processes write to: nothing that ended is lost, nothing is measured twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from compiler_service.compiler.tune.records import claims
from compiler_service.compiler.tune.records.book import prune
from compiler_service.compiler.tune.records.claims import ELSEWHERE_SECONDS, Claimant
from compiler_service.compiler.tune.records.journal import Journal
from compiler_service.compiler.tune.records.lines import read_lines, write_line
from compiler_service.compiler.tune.records.record import TrialRecord
from shared_ir.errors import IngotError
from tests.compiler_service.compiler.tune.records.trials import TARGET, trial, workload

W, T = workload().digest, str(TARGET)


def numbered(number: int, machine: str = "") -> TrialRecord:
    return trial(rule="numbered", values={"n": number}, machine=machine)


def test_records_come_back_in_their_order_and_once(tmp_path: Path) -> None:
    journal, reader = Journal(tmp_path / "j" / "records.jsonl"), Journal(tmp_path / "j" / "records.jsonl")
    assert reader.read_new() == ()
    journal.append([numbered(1), numbered(2)])
    assert reader.read_new() == (numbered(1), numbered(2))
    journal.append([numbered(3)])
    assert reader.read_new() == (numbered(3),)
    assert reader.read_new() == ()


@pytest.mark.parametrize("left", range(0, len(write_line(numbered(1))), 97))
def test_a_torn_line_harms_no_other(tmp_path: Path, left: int) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(write_line(numbered(0)) + write_line(numbered(1))[:left])
    reader = Journal(path)
    assert reader.read_new() == (numbered(0),)
    Journal(path).append([numbered(2)])
    assert reader.read_new() == (numbered(2),)
    assert reader.unreadable.count == (1 if left else 0)
    assert read_lines(path.read_bytes())[0] == (numbered(0), numbered(2))


def test_what_is_claimed_or_measured_is_not_given_again(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    journal = Journal(path)
    names = [numbered(n).candidate for n in range(4)]
    journal.append([numbered(0)])
    assert journal.claim(W, T, names[:3]) == (names[1], names[2])
    assert Journal(path).claim(W, T, [*names, names[3]]) == (names[3],)
    assert journal.claim(W, T, names) == ()
    assert journal.claim("another", T, names[:1]) == (names[0],)
    assert Journal(path).claim(W, T, names[:1], ["strassen"]) == (names[0],), "beside another default schedule"
    assert Journal(path).claim(W, T, names[:1], ["strassen"]) == ()
    assert journal.claim(W, "elsewhere", names[:1]) == (names[0],)


def test_what_another_compiler_measured_is_measured_again(tmp_path: Path) -> None:
    journal, old = Journal(tmp_path / "j"), trial(compiler="old")
    journal.append([old])
    assert journal.claim(W, T, [old.candidate]) == (old.candidate,)


def test_what_is_given_back_is_free(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    journal = Journal(path)
    assert journal.claim(W, T, ["a", "b"]) == ("a", "b")
    journal.give_back(W, T, ["b"])
    assert Journal(path).claim(W, T, ["a", "b"]) == ("b",)


def test_claims_of_the_dead_count_no_more(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    child = os.fork()
    if not child:
        Journal(path).claim(W, T, ["a"])
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert Journal(path).claim(W, T, ["a"]) == ("a",), "nobody has waited for it yet"
    os.waitpid(child, 0)


def test_a_process_that_has_the_number_of_another_is_not_that_one() -> None:
    own = Claimant.this_process()
    assert own.is_alive(time.time())
    assert not Claimant(own.pid, own.began - 1, own.place).is_alive(time.time())


def test_a_process_that_cannot_be_seen_has_its_claim_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Claimant(1, 1, "elsewhere")
    monkeypatch.setattr(claims, "time", SimpleNamespace(time=lambda: 5000.0))
    assert there.is_alive(5000.0 - ELSEWHERE_SECONDS / 2)
    assert not there.is_alive(5000.0 - 2 * ELSEWHERE_SECONDS)
    assert not there.is_alive(6000.0), "clocks differ, or somebody wrote what is not so"


def test_rewriting_keeps_what_is_claimed_and_who_waits_writes_on(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    journal, other = Journal(path), Journal(path)
    journal.append([numbered(n) for n in range(5)])
    path.write_bytes(path.read_bytes() + b"rubbish\n")
    journal.claim(W, T, ["a"])
    assert journal.rewrite(lambda records: prune(records, keep=2)).count == 1
    other.append([numbered(9)])
    assert len(read_lines(path.read_bytes())[0]) == 3
    assert other.claim(W, T, ["a"]) == ()
    assert len(journal.read_new()) == 3


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(IngotError, match="tuning records cannot be kept"):
        Journal(tmp_path / "link").append([numbered(1)])
    assert not (tmp_path / "target").exists()


# ---- many processes, killed at any moment

_KILLS = 50
_STEP = 3
"""Candidates that are claimed together."""


def measure(path: Path, log: int, stop: Path, names: list[str]) -> None:
    """A tuner: claims candidates, tells ``log`` before it measures one, and writes what came of it."""
    journal, own = Journal(path), str(os.getpid())
    for start in range(0, len(names), _STEP):
        if stop.exists():
            return
        for name in journal.claim(W, T, names[start : start + _STEP]):
            os.write(log, f"{own} {name}\n".encode())
            time.sleep(0.0005)
            journal.append([numbered(names.index(name), own)])


def start(path: Path, log: int, stop: Path, names: list[str]) -> int:
    child = os.fork()
    if not child:
        status = 1
        with suppress(BaseException):
            measure(path, log, stop, names)
            status = 0
        os._exit(status)
    return child


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 8])
def test_a_kill_costs_one_trial_and_no_trial_is_repeated(tmp_path: Path, workers: int) -> None:
    path, told, stop = tmp_path / "records.jsonl", tmp_path / "log", tmp_path / "stop"
    names = [numbered(n).candidate for n in range(6000)]
    log = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    chance, killed = random.Random(workers), set[int]()
    children = [start(path, log, stop, names) for _ in range(workers)]
    for _ in range(_KILLS):
        time.sleep(chance.uniform(0, 0.03))
        child = children.pop(chance.randrange(workers))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        killed.add(child)
        children.append(start(path, log, stop, names))
    stop.touch()
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * workers
    os.close(log)

    records, unreadable = read_lines(path.read_bytes())
    began: dict[str, list[int]] = defaultdict(list)
    for line in told.read_text().splitlines():
        pid, name = line.split()
        began[name].append(int(pid))
    kept = {(int(r.machine), r.candidate) for r in records}
    assert max(Counter(r.candidate for r in records).values()) == 1, "a trial was repeated"
    lost = Counter(pid for name, pids in began.items() for pid in pids if (pid, name) not in kept)
    assert set(lost) <= killed, "a tuner that lives loses nothing"
    assert max(lost.values(), default=0) <= 1, "a kill costs more than the trial under way"
    again = [
        name
        for name, pids in began.items()
        if sum((pid, name) in kept for pid in pids) + sum(p in killed for p in pids) < len(pids)
    ]
    assert again == [], "begun twice, though nobody had been killed at it"
    assert unreadable.count <= len(killed)
    assert len(records) > _KILLS
