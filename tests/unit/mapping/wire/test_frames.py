"""Frames and commands of Pulsar's protocol, without a broker."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka_mapping.wire.commands import MalformedCommand, Type, command, message_class, parsed
from pulsar_on_kafka_mapping.wire.frames import MAX_FRAME_BYTES, Frame, FrameCutter, MalformedFrame, frame

FRAMES = st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=60)), max_size=8)


@given(FRAMES, st.randoms(use_true_random=False))
def test_frames_are_cut_out_wherever_the_stream_was_cut(frames: list[tuple[bytes, bytes]], dice: random.Random) -> None:
    stream = b"".join(frame(*each) for each in frames)
    cutter, found, at = FrameCutter(), [], 0
    while at < len(stream):
        step = dice.randint(1, 30)
        found += cutter.feed(stream[at : at + step])
        at += step
    assert found == [Frame(*each) for each in frames]


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_a_clear_error(data: bytes) -> None:
    with suppress(MalformedFrame):
        FrameCutter().feed(data)


def test_a_frame_that_is_too_large_is_refused_before_it_is_there() -> None:
    whole = frame(b"command")
    with pytest.raises(MalformedFrame, match=f"a frame has {MAX_FRAME_BYTES + 1} bytes") as refused:
        FrameCutter().feed(whole + (MAX_FRAME_BYTES + 1).to_bytes(4, "big"))
    assert refused.value.before == [Frame(b"command", b"")]


def test_a_command_larger_than_its_frame_is_refused() -> None:
    with pytest.raises(MalformedFrame, match="a command has 100 bytes in a frame of 8"):
        FrameCutter().feed((8).to_bytes(4, "big") + (100).to_bytes(4, "big") + b"1234")


def test_a_command_is_what_was_said() -> None:
    kind, said = parsed(command(Type.FLOW, consumer_id=2**64 - 1, messagePermits=1000))
    assert (kind, said.consumer_id, said.messagePermits) == (Type.FLOW, 2**64 - 1, 1000)
    kind, said = parsed(command(Type.SUBSCRIBE, topic="t", subscription="s", subType=1, consumer_id=1, request_id=2))
    assert (said.durable, said.force_topic_creation, said.HasField("schema")) == (True, True, False)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xff", "is no command"),
        (b"", "is of type 0"),
        (b"\x08\x63", "is of type 99"),
        (b"\x08\x05", "PRODUCER lacks its message"),
        (b"\x08\x17\xba\x01\x00", "LOOKUP_TOPIC lacks topic, request_id"),
        (b"\x08\x17\xba\x01\x08\n\x04ab\xffd\x10\x01", "is no command of Pulsar's protocol: .*bad UTF-8"),
    ],
)
def test_what_is_no_command_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedCommand, match=reason):
        parsed(data)


@given(st.binary(max_size=120))
def test_any_bytes_are_a_command_or_a_clear_error(data: bytes) -> None:
    with suppress(MalformedCommand):
        parsed(data)


def test_every_command_has_its_message() -> None:
    for kind in Type:
        assert message_class(kind.message).DESCRIPTOR.name == kind.message
