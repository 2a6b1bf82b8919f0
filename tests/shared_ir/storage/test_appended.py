"""Lines that many processes add to a file."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_ir.storage.appended import LinesTail, add_lines, holding_lines


@pytest.fixture(name="path")
def fixture_path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "lines"


def test_lines_are_added_behind_each_other(path: Path) -> None:
    tail = LinesTail(path)
    assert tail.read_new() == b""
    add_lines(path, b"a\n")
    add_lines(path, b"")
    add_lines(path, b"b\nc\n")
    assert tail.read_new() == b"a\nb\nc\n"
    assert tail.read_new() == b""


def test_what_is_not_whole_is_not_read(path: Path) -> None:
    add_lines(path, b"a\n")
    tail = LinesTail(path)
    with path.open("ab") as file:
        file.write(b"to")
    assert tail.read_new() == b"a\n"
    with path.open("ab") as file:
        file.write(b"rn\n")
    assert tail.read_new() == b"torn\n"


def test_a_line_begins_behind_a_torn_one(path: Path) -> None:
    add_lines(path, b"a\n")
    path.write_bytes(path.read_bytes() + b"torn")
    add_lines(path, b"b\n")
    assert path.read_bytes() == b"a\ntorn\nb\n"


def test_who_waits_while_a_file_is_replaced_adds_to_the_new_one(path: Path) -> None:
    add_lines(path, b"old\n")
    tail, waiting = LinesTail(path), threading.Thread(target=add_lines, args=(path, b"later\n"))
    assert tail.read_new() == b"old\n"
    with holding_lines(path) as held:
        waiting.start()
        assert held.read() == b"old\n"
        held.replace(b"new\n")
    waiting.join()
    assert path.read_bytes() == b"new\nlater\n"
    assert tail.read_new() == b"new\nlater\n"


@given(
    st.lists(st.binary(min_size=1, max_size=9).map(lambda b: b.replace(b"\n", b".") + b"\n"), max_size=9),
    st.integers(10, 30),
)
def test_pieces_are_all_of_it(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], most: int) -> None:
    path = tmp_path_factory.mktemp("pieces") / "lines"
    path.write_bytes(b"".join(lines))
    tail = LinesTail(path)
    found = [tail.read_new(most) for _ in range(len(lines) + 1)]
    assert b"".join(found) == b"".join(lines)
    assert all(len(piece) <= most for piece in found)


def test_a_line_without_end_is_passed_over(path: Path) -> None:
    add_lines(path, b"x" * 100 + b"\n" + b"good\n")
    tail = LinesTail(path)
    found = [tail.read_new(30) for _ in range(6)]
    assert b"good\n" in b"".join(found)


def test_neither_links_nor_pipes_are_read_or_written(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="lines"):
        add_lines(path, b"a\n")
    assert LinesTail(path).read_new() == b""
    os.mkfifo(path.with_name("pipe"))
    assert LinesTail(path.with_name("pipe")).read_new() == b""
