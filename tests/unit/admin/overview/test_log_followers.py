"""What is kept of Kafka's topic of commits."""

from __future__ import annotations

import struct

import pytest

from pulsar_on_kafka.admin.overview.log_followers import FollowedGroups
from pulsar_on_kafka.kafka.groups.offsets_topic import CommitPlace
from pulsar_on_kafka.statelog.api import LogRecord


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def commit_key(group: str, topic: str) -> bytes:
    return b"\x00\x01" + text(group) + text(topic) + struct.pack(">i", 0)


def commit(offset: int) -> bytes:
    return b"\x00\x03" + struct.pack(">qi", offset, -1) + text("") + struct.pack(">q", 5)


def apply(groups: FollowedGroups, key: bytes, value: bytes | None) -> None:
    groups.apply(LogRecord(0, key, value, 0))


def test_the_last_commit_of_a_subscription_counts_until_it_is_gone() -> None:
    groups, key = FollowedGroups(), commit_key("public.default.t/s", "public.default.t")
    place = CommitPlace("public.default.t/s", "public.default.t", 0)
    apply(groups, key, commit(3))
    apply(groups, key, commit(7))
    assert groups.commits[place].kafka_offset == 7
    apply(groups, key, None)
    assert groups.commits == {}


@pytest.mark.parametrize("group", ["somebody-elses", "other.topic/s", "public.default.tt/s"])
def test_groups_of_other_programs_are_passed_over(group: str) -> None:
    groups = FollowedGroups()
    apply(groups, commit_key(group, "public.default.t"), commit(3))
    assert groups.commits == {}


def test_what_cannot_be_read_changes_nothing() -> None:
    groups, key = FollowedGroups(), commit_key("public.default.t/s", "public.default.t")
    apply(groups, key, commit(3))
    with pytest.raises(ValueError, match="cut off"):
        apply(groups, key, b"\x00\x03\x00")
    assert len(groups.commits) == 1


def test_a_group_that_lost_its_members_has_none() -> None:
    groups, key = FollowedGroups(), b"\x00\x02" + text("public.default.t/s")
    groups.members["public.default.t/s"] = ()
    empty = b"\x00\x03" + text("") + struct.pack(">i", 0) + struct.pack(">hh", -1, -1) + struct.pack(">qi", 1, 0)
    apply(groups, key, empty)
    assert groups.members == {}
