"""A process that is asked, that dies of it, hangs over it, or is another's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from compiler_service.compiler.codegen.toolchain import asking, support
from compiler_service.compiler.codegen.toolchain.asking import Answered, AskedProcess
from compiler_service.compiler.codegen.toolchain.support import require_llvm
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import parse_target

_ANSWERS = """
import os, signal, sys, time
from compiler_service.compiler.codegen.toolchain.asking import answer_lines

def answer(line):
    if line == "die":
        os.kill(os.getpid(), signal.SIGABRT)
    if line == "leave":
        os.write(2, b"farewell")
        os._exit(3)
    if line == "hang":
        time.sleep(60)
    print(os.getpid(), line)
    os.write(2, b"aside\\n")

answer_lines(answer)
"""


@pytest.fixture(name="asked")
def fixture_asked() -> AskedProcess:
    return AskedProcess((sys.executable, "-c", _ANSWERS), 5.0)


def _pid(answered: Answered) -> int:
    return int(answered.said.split()[0])


def test_one_process_answers_all_until_it_ends(asked: AskedProcess) -> None:
    first = asked.ask("one")
    assert (first.status, first.said) == (None, f"{_pid(first)} one\naside\n")
    assert _pid(asked.ask("two")) == _pid(first)
    assert asked.ask("die") == (-signal.SIGABRT, "")
    assert asked.ask("leave") == (3, "farewell")
    assert _pid(asked.ask("three")) != _pid(first)


def test_who_hangs_is_ended_and_the_next_one_answers() -> None:
    asked = AskedProcess((sys.executable, "-c", _ANSWERS), 2.0)
    first = _pid(asked.ask("one"))
    with pytest.raises(TimeoutError):
        asked.ask("hang")
    assert not Path(f"/proc/{first}").exists()
    assert asked.ask("two").said.endswith(" two\naside\n")


def test_answers_are_of_their_questions(asked: AskedProcess) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(asked.ask, map(str, range(100))))
    assert [each.said.split()[1] for each in found] == list(map(str, range(100)))


def test_a_copy_of_this_process_has_one_of_its_own(asked: AskedProcess) -> None:
    own = _pid(asked.ask("one"))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(_pid(asked.ask("two"))).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    other = int(os.read(reading, 100))
    assert other != own
    assert _pid(asked.ask("three")) == own


def test_who_is_not_asked_ends(monkeypatch: pytest.MonkeyPatch, asked: AskedProcess) -> None:
    monkeypatch.setattr(asking, "_IDLE_SECONDS", 0.2)
    first = _pid(asked.ask("one"))
    until = time.monotonic() + 10
    while Path(f"/proc/{first}").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    assert asked.ask("two").status is None


def test_several_lines_are_no_question(asked: AskedProcess) -> None:
    with pytest.raises(ValueError, match="one line"):
        asked.ask("one\ntwo")


def test_llvm_is_asked_of_many_targets_by_few_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []

    class Counted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            started.append(arguments)
            super().__init__(*arguments, **settings)

    monkeypatch.setattr(subprocess, "Popen", Counted)
    support._ask.cache_clear()
    for number in range(20):
        with pytest.raises(IngotError, match=f"LLVM knows no processor 'many{number}'") as caught:
            require_llvm(parse_target(f"llvm -mtriple=aarch64-linux-gnu -mcpu=many{number}"))
        assert caught.value.code is ErrorCode.INVALID_TARGET
    assert len(started) <= 1
