"""The connection against h2 as its client: heads, bodies, windows, turns, ends."""

from __future__ import annotations

import itertools
import random

import pytest
from h2.events import PingAckReceived, StreamEnded, StreamReset
from h2.settings import SettingCodes
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_ir.service_kit.http2.connection import Http2Connection, Limits
from shared_ir.service_kit.http2.frames import PREFACE, Code, goaway, literal, ping, reset, window_update
from shared_ir.service_kit.http2.frames import settings as settings_frame
from shared_ir.service_kit.http2.patience import WasteAllowance
from shared_ir.service_kit.http2.sending import MOST_OUT
from tests.shared_ir.service_kit.http2.peer import POST, Peer, Seen

HEAD = b"\x88" + literal(b"content-type", b"application/grpc")
END = literal(b"grpc-status", b"0")


def test_a_request_and_its_answer() -> None:
    peer = Peer()
    stream = peer.call(b"hello")
    assert (peer.seen.heads[stream].path, bytes(peer.seen.data[stream]), peer.seen.ended) == (
        b"/s/m",
        b"hello",
        [stream],
    )
    peer.server.answer(stream, HEAD, b"world", END)
    peer.exchange()
    head, body, trailers = peer.answer(stream)
    assert (head[":status"], body, trailers) == ("200", b"world", {"grpc-status": "0"})
    assert peer.has(StreamEnded, stream)
    assert not peer.server.open
    assert peer.seen.drains == [stream]


_MOST_WINDOWS = 100
"""That a body fills: the client widens one of a byte by a byte, and would never come to the end of a large one."""


@given(
    st.lists(st.integers(0, 200_000), min_size=1, max_size=5),
    st.integers(0, 70_000),
    st.sampled_from([16_384, 20_000, 1 << 20]),
    st.sampled_from([0, 1, 7, 1000]),
    st.integers(0, 1 << 32),
)
@settings(max_examples=60, deadline=None)
def test_bodies_come_whole_whatever_the_windows(
    sizes: list[int], window: int, frame: int, step: int, seed: int
) -> None:
    """Both ways, cut anywhere, several streams at once."""
    sizes = [min(size, _MOST_WINDOWS * window) if window else size for size in sizes]
    seconds = itertools.count()  # windows of a few bytes would else exhaust its patience, as they should
    peer, rng = Peer(patience=WasteAllowance(lambda: next(seconds))), random.Random(seed)
    peer.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window, SettingCodes.MAX_FRAME_SIZE: frame})
    peer.exchange(step)
    sent = {peer.call(rng.randbytes(size) or b"x"): rng.randbytes(size) for size in sizes}
    for stream, data in sent.items():
        if rng.random() < 0.5:
            peer.server.answer(stream, HEAD, data, END)
        else:
            cut = rng.randint(0, len(data))
            peer.server.send_head(stream, HEAD)
            peer.server.send(stream, data[:cut])
            peer.server.send(stream, data[cut:])
            peer.server.send_last(stream, END)
    peer.exchange(step)
    for _ in range(2 + sum(sizes) // max(1, window)):
        if not peer.server.open:
            break
        if window == 0:
            for stream in sent:
                if not peer.has(StreamEnded, stream):
                    peer.client.increment_flow_control_window(50_000, stream)
        peer.acknowledge()
    for stream, data in sent.items():
        assert peer.answer(stream)[1] == data
        assert peer.has(StreamEnded, stream)
    assert sorted(peer.seen.drains)[-1] == max(sent)


def test_heads_in_parts_and_tables_that_change() -> None:
    """Blocks of which h2 writes an index the second time are looked up, and mean the same."""
    peer = Peer()
    long = [*POST, ("x-long", "v" * 14_000)]
    streams = [peer.call(b"1", fields) for fields in (long, long, POST, long, POST, [*POST, ("a", "b")], POST)]
    heads = [peer.seen.heads[stream] for stream in streams]
    assert heads[0] == heads[1] == heads[3]
    assert heads[2] == heads[4] == heads[6]
    assert dict(heads[0].fields)[b"x-long"] == b"v" * 14_000
    assert dict(heads[5].fields)[b"a"] == b"b"


def test_of_streams_that_share_a_window_each_gets_its_turn() -> None:
    peer = Peer()
    peer.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20})
    peer.exchange()
    streams = [peer.call(b"x") for _ in range(4)]
    for stream in streams:
        peer.server.send_head(stream, HEAD)
        peer.server.send(stream, bytes(60_000))
    for _ in range(6):
        peer.exchange()
        peer.client.increment_flow_control_window(40_000)
    peer.exchange()
    assert [len(peer.answer(stream)[1]) for stream in streams] == [60_000] * 4


def test_a_transport_that_takes_nothing_is_given_a_bounded_number_of_bytes() -> None:
    peer = Peer()
    peer.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 24})
    peer.client.increment_flow_control_window(1 << 24)
    peer.exchange()
    stream = peer.call(b"x")
    peer.server.answer(stream, HEAD, bytes(5 * MOST_OUT), END)
    first = b"".join(peer.server.take())
    assert len(first) < 1.01 * MOST_OUT
    peer.server.is_choked = True
    assert peer.server.take() == []
    assert peer.server.is_open(stream)
    peer.server.unchoke()
    peer.events += peer.client.receive_data(first)
    peer.exchange()
    assert len(peer.answer(stream)[1]) == 5 * MOST_OUT


def test_a_client_that_goes_on_after_its_answer_harms_nobody() -> None:
    peer = Peer()
    stream = peer.client.get_next_available_stream_id()
    peer.client.send_headers(stream, POST)
    peer.exchange()
    peer.server.refuse(stream, HEAD + END)
    late = peer.client.data_to_send()
    peer.client.send_data(stream, b"x" * 1000)
    late += peer.client.data_to_send()
    peer.server.receive(late)
    peer.exchange()
    assert peer.has(StreamEnded, stream)
    assert bytes(peer.seen.data[stream]) == b""
    other = peer.call(b"y")
    peer.server.answer(other, HEAD, b"z", END)
    peer.exchange()
    assert peer.answer(other)[1] == b"z"


def test_who_leaves_ends_what_it_began_and_takes_nothing_new() -> None:
    peer = Peer()
    stream = peer.call(b"x")
    peer.server.leave()
    assert peer.server.take() == [goaway(stream, Code.NO_ERROR)]
    later = peer.client.get_next_available_stream_id()
    peer.client.send_headers(later, POST, end_stream=True)
    peer.server.receive(peer.client.data_to_send())
    assert peer.server.take() == [reset(later, Code.REFUSED_STREAM)]
    assert later not in peer.seen.heads
    peer.server.answer(stream, HEAD, b"y", END)
    peer.exchange()
    assert peer.answer(stream)[1] == b"y"


def test_streams_beyond_the_limit_are_refused_for_another_try() -> None:
    peer = Peer(limits=Limits(streams=2))
    streams = []
    for _ in range(3):
        streams.append(peer.client.get_next_available_stream_id())
        peer.client.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 100
        peer.client.remote_settings.acknowledge()
        peer.client.send_headers(streams[-1], POST)
        peer.exchange()
    refused = [event for event in peer.events if isinstance(event, StreamReset)]
    assert [(event.stream_id, event.error_code) for event in refused] == [(streams[2], Code.REFUSED_STREAM)]


def test_pings_are_answered() -> None:
    peer = Peer()
    peer.client.ping(b"12345678")
    peer.exchange()
    assert any(isinstance(event, PingAckReceived) and event.ping_data == b"12345678" for event in peer.events)


def test_a_client_that_takes_its_call_back_is_told_of() -> None:
    peer = Peer()
    stream = peer.client.get_next_available_stream_id()
    peer.client.send_headers(stream, POST)
    peer.exchange()
    peer.client.reset_stream(stream)
    peer.exchange()
    assert peer.seen.gone == [stream]
    peer.server.answer(stream, HEAD, b"late", END)
    assert not peer.server.take()


@pytest.mark.parametrize("size", [0, 1, 23, 25])
def test_the_preface_may_come_in_parts(size: int) -> None:
    connection = Http2Connection(Seen())
    data = PREFACE + settings_frame({})
    connection.receive(data[:size])
    connection.receive(data[size:])
    assert connection.is_introduced


def test_a_client_that_widens_its_windows_as_it_reads_is_welcome() -> None:
    """Of 32 MB that are read frame by frame each has two updates: of its stream, and of the connection."""
    peer = Peer(patience=WasteAllowance(lambda: 0.0))
    stream = peer.call()
    peer.server.send_head(stream, HEAD)
    peer.server.send(stream, bytes(32 << 20))
    read = 0
    while out := peer.server.take():
        sizes = [len(each) for each in out if isinstance(each, memoryview)]
        read += sum(sizes)
        peer.server.receive(b"".join(window_update(number, size) for size in sizes for number in (0, stream)))
    assert read == 32 << 20


def test_a_client_that_pings_at_every_message_is_welcome() -> None:
    """As those do that measure how far away a server is."""
    peer = Peer(patience=WasteAllowance(lambda: 0.0))
    stream = peer.call()
    peer.server.send_head(stream, HEAD)
    for _ in range(10_000):
        peer.server.send(stream, b"answer")
        peer.server.receive(ping(bytes(8)) + window_update(0, 6) + window_update(stream, 6))
        peer.server.take()


def test_frames_beyond_a_turn_wait_for_the_next_one() -> None:
    peer = Peer()
    for _ in range(500):
        peer.client.send_headers(peer.client.get_next_available_stream_id(), POST, end_stream=True)
    data = peer.client.data_to_send()
    turns = 1
    is_done = peer.server.receive(data[:-7], 0.0)
    while not is_done:
        assert len(peer.seen.heads) <= 16 * turns
        is_done, turns = peer.server.receive(b"", 0.0), turns + 1
    assert peer.server.receive(data[-7:], 0.0)
    assert len(peer.seen.heads) == 500
    assert turns > 30
