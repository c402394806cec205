"""librdkafka's errors are translated once; commits are cut; settings let options through or refuse them."""

from __future__ import annotations

from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.kafka.errors import has_no_leader_now, is_no_such_topic, translate
from pulsar_on_kafka.kafka.groups.membership import MAX_COMMIT_BYTES, GroupCallbacks, GroupConsumer, split_commits
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.kafka.settings import KafkaSettings


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._ALL_BROKERS_DOWN, errors.ConnectFailed),
        (KafkaError._TRANSPORT, errors.ConnectFailed),
        (KafkaError.SASL_AUTHENTICATION_FAILED, errors.NotAuthenticated),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, errors.NotAuthorized),
        (KafkaError.MSG_SIZE_TOO_LARGE, errors.RecordTooLarge),
        (KafkaError._MSG_TIMED_OUT, errors.AppendOutcomeUnknown),
        (KafkaError._TIMED_OUT, errors.DeadlineExceeded),
        (KafkaError._TIMED_OUT_QUEUE, errors.DeadlineExceeded),
        (KafkaError.ILLEGAL_GENERATION, errors.Fenced),
        (KafkaError.UNKNOWN_MEMBER_ID, errors.Fenced),
        (KafkaError._AUTO_OFFSET_RESET, errors.OffsetOutOfRange),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, errors.NoSuchTopic),
        (KafkaError.NOT_LEADER_FOR_PARTITION, errors.NoLeaderNow),
        (KafkaError.LEADER_NOT_AVAILABLE, errors.NoLeaderNow),
        (KafkaError.UNKNOWN_LEADER_EPOCH, errors.NoLeaderNow),
        (KafkaError.FENCED_LEADER_EPOCH, errors.NoLeaderNow),
        (KafkaError.UNKNOWN, errors.StoreError),
    ],
)
def test_a_kafka_error_becomes_ours_and_says_what_was_done(code: int, expected: type[Exception]) -> None:
    for given in (KafkaError(code), KafkaException(KafkaError(code))):
        found = translate(given, "append to t-0")
        assert type(found) is expected
        assert str(found).startswith("append to t-0: ")
        assert KafkaError(code).name() in str(found)


def test_a_commit_that_is_refused_because_the_group_is_gone_can_be_tried_again() -> None:
    settings = KafkaSettings("127.0.0.1:1")
    config = settings.group_member(group_id="g", client_id="c", fetch_queue_kbytes=64, partitioned=False)
    member = GroupConsumer(config, "t", cast("GroupCallbacks", None))
    try:
        found = member._commit_error(KafkaError(KafkaError.GROUP_ID_NOT_FOUND))
        assert isinstance(found, errors.StoreError)
        assert str(found).startswith("commit of group g: ")
    finally:
        member.close()


def test_what_passes_by_itself_is_told_from_what_does_not() -> None:
    assert has_no_leader_now(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
    assert has_no_leader_now(KafkaError(KafkaError._NOENT))
    assert not has_no_leader_now(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    assert is_no_such_topic(KafkaError(KafkaError._UNKNOWN_PARTITION))


def test_commits_are_cut_so_that_each_fits_one_batch_of_the_offsets_topic() -> None:
    commits = {partition: CommittedOffset(partition, "x" * 4095) for partition in range(1000)}
    parts = split_commits(commits)
    assert len(parts) > 1
    assert {partition: commit for part in parts for partition, commit in part.items()} == commits
    assert all(sum(len(commit.metadata) for commit in part.values()) < MAX_COMMIT_BYTES for part in parts)


def test_a_small_commit_stays_whole() -> None:
    commits = {partition: CommittedOffset(partition, "") for partition in range(100)}
    assert split_commits(commits) == [commits]
    assert split_commits({}) == []


def test_one_commit_larger_than_the_limit_is_a_part_of_its_own() -> None:
    commits = {0: CommittedOffset(0, "x" * (MAX_COMMIT_BYTES + 1)), 1: CommittedOffset(1, "")}
    assert [sorted(part) for part in split_commits(commits)] == [[0], [1]]


def test_the_users_options_come_last_but_not_over_ours() -> None:
    settings = KafkaSettings("host:9092", {"sasl.password": "hunter2", "client.rack": "r1"})
    assert settings.common()["client.rack"] == "r1"
    assert "hunter2" not in repr(settings)
    settings.check()
    with pytest.raises(errors.InvalidOption, match=r"auto\.offset\.reset, group\.id"):
        KafkaSettings("h:1", {"group.id": "g", "auto.offset.reset": "earliest"}).check()


def test_clients_with_the_same_settings_share_a_node() -> None:
    first = KafkaSettings("h:1", {"a": "1", "b": "2"})
    second = KafkaSettings("h:1", {"b": "2", "a": "1"})
    assert first.identity == second.identity
    assert first.identity != KafkaSettings("h:1", {"a": "1"}).identity


def test_nothing_is_ever_reset_or_committed_behind_the_cursors_back() -> None:
    settings = KafkaSettings("h:1")
    for config in (
        settings.group_member(group_id="g", client_id="c", fetch_queue_kbytes=10, partitioned=False),
        settings.reader(fetch_queue_kbytes=10),
    ):
        assert config["auto.offset.reset"] == "error"
        assert config["enable.auto.commit"] is False
        assert config["enable.auto.offset.store"] is False
