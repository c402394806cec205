"""Records of Kafka's topic of commits, as brokers of several versions write them."""

from __future__ import annotations

import struct

import pytest

from pulsar_on_kafka.kafka.groups.offsets_topic import (
    CommitPlace,
    GroupCommit,
    MembersOf,
    decode_commit,
    decode_group_key,
    decode_members,
)
from pulsar_on_kafka.kafka.records import GroupMember

# Read from brokers: 4.4.0 writes version 4 of a commit and version 3 of a group.
COMMIT_KEY = bytes.fromhex("0001") + b"\x00\x12public.default.t/s\x00\x10public.default.t\x00\x00\x00\x00"
COMMIT_OF_4_4 = (
    b"\x00\x04\x00\x00\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff\x07pok1:\x00\x00\x00\x01\xa2\x14\x91*\xcf"
    b"\x01\x00\x10\xd1\xd9\xfdB\xc1eI\xb0\x8a\xb6{\x93\xfc\x18\xe0M"
)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def test_keys() -> None:
    assert decode_group_key(COMMIT_KEY) == CommitPlace("public.default.t/s", "public.default.t", 0)
    assert decode_group_key(b"\x00\x02" + text("public.default.t/s")) == MembersOf("public.default.t/s")
    assert decode_group_key(b"\x00\x03" + text("of another kind")) is None


def test_a_commit_of_kafka_4_4_ends_without_the_zero_byte_that_confluent_kafka_sends() -> None:
    assert decode_commit(COMMIT_OF_4_4) == GroupCommit(1, "pok1:", 0x1A214912ACF)


def test_commits_of_former_versions() -> None:
    body = text("pok1:x") + struct.pack(">q", 77)
    assert decode_commit(b"\x00\x03" + struct.pack(">qi", 5, -1) + body) == GroupCommit(5, "pok1:x", 77)
    assert decode_commit(b"\x00\x01" + struct.pack(">q", 5) + body + struct.pack(">q", 99)) == GroupCommit(
        5, "pok1:x", 77
    )
    assert decode_commit(b"\x00\x09" + struct.pack(">q", 5)) is None


def test_members_and_what_is_assigned_to_them() -> None:
    assignment = struct.pack(">hi", 1, 1) + text("public.default.t") + struct.pack(">iii", 2, 0, 3) + blob(b"")
    member = text("m-1") + struct.pack(">h", -1) + text("pok-a") + text("/10.0.0.1") + struct.pack(">ii", 300, 6_000)
    value = (
        b"\x00\x03" + text("consumer") + struct.pack(">i", 4) + text("cooperative-sticky") + text("m-1")
        + struct.pack(">qi", 1, 1) + member + blob(b"whatever") + blob(assignment)
    )  # fmt: skip
    assigned = (("public.default.t", 0), ("public.default.t", 3))
    assert decode_members(value) == (GroupMember("m-1", "pok-a", "/10.0.0.1", assigned),)
    empty = b"\x00\x03" + text("") + struct.pack(">i", 0) + struct.pack(">hh", -1, -1) + struct.pack(">qi", 1, 0)
    assert decode_members(empty) == ()


@pytest.mark.parametrize("size", range(1, len(COMMIT_OF_4_4) - 19))
def test_what_is_cut_off_is_told(size: int) -> None:
    with pytest.raises(ValueError, match=r"cut off|bytes at"):
        decode_commit(COMMIT_OF_4_4[:size])
