"""Weights that are read once for several processes."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime_service.processes.lending import Borrower, Lender
from shared_ir.digest import tree_digest
from shared_ir.errors import ErrorCode, IngotError
from tests.runtime_service.toy_models import wait_until

DATA = bytes(range(256)) * 9000


@contextmanager
def borrower(lender: Lender, number: int) -> Iterator[Borrower]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        thread = threading.Thread(target=lender.serve, args=(ours, number), daemon=True)
        thread.start()
        yield Borrower(theirs)
        theirs.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(DATA)
    return path


def test_two_processes_have_the_same_bytes_and_the_digest_of_just_these(file: Path) -> None:
    lender = Lender()
    with borrower(lender, 0) as one, borrower(lender, 1) as other:
        first, digest = one.read(file, len(DATA))
        file.write_bytes(b"\0" * len(DATA))  # what was read stays
        second, again = other.read(file, len(DATA))
        assert first == second == DATA
        assert digest == again == tree_digest(memoryview(DATA))
        assert lender.bytes == len(DATA)
        with pytest.raises(TypeError):
            first[0] = 1


def test_what_nobody_has_any_more_is_forgotten_and_read_anew(file: Path) -> None:
    lender = Lender()
    with borrower(lender, 0) as one, borrower(lender, 1) as other:
        first, _ = one.read(file, len(DATA))
        second, _ = other.read(file, len(DATA))
        del first
        gc.collect()
        assert bytes(second[:3]) == DATA[:3]
        assert lender.bytes == len(DATA)
        del second
        gc.collect()
        wait_until(lambda: lender.bytes == 0)
        file.write_bytes(DATA[::-1])
        assert one.read(file, len(DATA))[0] == DATA[::-1]


def test_a_process_that_ends_has_given_all_back(file: Path) -> None:
    lender = Lender()
    with borrower(lender, 0) as one:
        kept, _ = one.read(file, len(DATA))
        assert lender.bytes == len(DATA)
    assert lender.bytes == 0
    assert kept == DATA


def test_a_file_that_is_shorter_is_corrupt_and_none_is_no_such_file(file: Path) -> None:
    with borrower(Lender(), 0) as one:
        with pytest.raises(IngotError) as caught:
            one.read(file, len(DATA) + 1)
        assert caught.value.code is ErrorCode.ARTIFACT_CORRUPT
        with pytest.raises(FileNotFoundError, match="nothing"):
            one.read(file.with_name("nothing"), 3)
        assert one.read(file, len(DATA))[0] == DATA  # and it goes on


def test_a_lender_that_is_gone_is_said(file: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.close()
    with theirs, pytest.raises(IngotError) as caught:
        Borrower(theirs).read(file, len(DATA))
    assert caught.value.code is ErrorCode.UNAVAILABLE
