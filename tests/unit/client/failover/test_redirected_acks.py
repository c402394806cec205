"""Late acknowledgements name records on the cluster that a tenant is on now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.client.failover.redirected_acks import Extent, Late, Log, Named, named
from pulsar_on_kafka_mapping.records.message_record import ChunkInfo, Headers, MessageMetadata, encode_headers
from pulsar_on_kafka_mapping.records.original_position import OriginalPosition
from tests.kafka_records import ReadRecord

WEST_LIFE, EAST_LIFE = 5, 6


class Reads:
    """The log of the east. A batch of three at a time."""

    def __init__(self, *records: Headers) -> None:
        self.records = [ReadRecord(offset, headers) for offset, headers in enumerate(records)]

    def read(self, _topic: str, _partition: int, start: int, end: int, _deadline: Deadline) -> Iterator[list[Any]]:
        for at in range(start, end, 3):
            yield self.records[at : min(end, at + 3)]


def mine(**said: Any) -> Headers:
    return encode_headers(MessageMetadata(**said))


def copy(original: int, life: int = WEST_LIFE, cluster: str = "west", **said: Any) -> Headers:
    return mine(replicated_from=cluster, original_id=OriginalPosition(original, 0, life, 1), **said)


def log(*records: Headers, low: int = 0, next_unacked: int = 0, cluster: str = "east", life: int = EAST_LIFE) -> Log:
    reads = cast("Any", Reads(*records))
    return Log(reads, "t", cluster, life, low, len(records), next_unacked)


def late(offset: int, extent: Extent, cluster: str = "west", life: int = WEST_LIFE, **more: Any) -> Late:
    return Late("t", 0, cluster, life, offset, extent=extent, read_on="west", **more)


def found(wanted: Late, where: Log) -> list[int]:
    told = named([wanted], where, Deadline.after(5))
    assert told.batches == {}
    return list(told.offsets)


def test_up_to_a_message_are_the_copies_of_what_was_published_before_it() -> None:
    where = log(copy(0), mine(), copy(1), copy(5, cluster="north"), copy(2), copy(4), copy(7))
    assert found(late(4, Extent.UPTO), where) == [0, 2, 4, 5]
    assert found(late(3, Extent.UPTO), where) == [0, 2, 4]
    assert found(late(4, Extent.UPTO), where._replace(next_unacked=3)) == [4, 5]
    assert found(late(4, Extent.UPTO, life=4), where) == []


def test_up_to_a_copy_is_what_was_published_here_before_it_and_went_there() -> None:
    where = log(mine(), copy(0), mine(replicate_to=()), mine(replicate_to=("west",)), mine(), mine())
    assert found(late(4, Extent.UPTO, "east", EAST_LIFE), where) == [0, 3, 4]
    assert found(late(4, Extent.UPTO, "east", 99), where) == []


def test_where_the_tenant_came_back_to_it_is_the_same_log() -> None:
    where = log(mine(), copy(0, cluster="east"), mine(replicate_to=()), mine(), cluster="west", life=WEST_LIFE)
    assert found(late(2, Extent.UPTO), where) == [0, 1, 2]


def test_up_to_a_message_of_a_batch_are_those_before_it_in_the_batch() -> None:
    wanted = late(1, Extent.UPTO, batch_index=2, batch_size=5)
    told = named([wanted], log(copy(0), copy(1), copy(2)), Deadline.after(5))
    assert (list(told.offsets), told.batches) == ([0], {1: (5, 0b111)})


def chunk(number: int, of: int, uuid: str = "u") -> ChunkInfo:
    return ChunkInfo(number, of, 9, uuid)


@pytest.mark.parametrize("between", [0, 5, 2_500])
def test_of_a_message_in_chunks_all_are_found_by_the_last_one(between: int) -> None:
    others = [copy(number + 1, chunk=chunk(0, 2, "other")) for number in range(between)]
    where = log(copy(0, chunk=chunk(0, 2)), *others, copy(between + 1, chunk=chunk(1, 2)), mine())
    assert found(late(between + 1, Extent.CHUNKS), where) == [0, between + 1]


def test_chunks_that_are_not_there_any_more_are_missed_by_nobody() -> None:
    where = log(mine(), copy(8, chunk=chunk(1, 3)), copy(9, chunk=chunk(2, 3)), low=1)
    assert found(late(9, Extent.CHUNKS), where) == [1, 2]
    assert found(late(7, Extent.CHUNKS), where) == []
    assert found(late(0, Extent.CHUNKS, "east", EAST_LIFE), log(mine())) == [0]  # it is no chunk


def test_up_to_a_message_spares_the_chunks_of_one_that_ends_behind_it() -> None:
    where = log(
        copy(0, chunk=chunk(0, 2, "a")), copy(1, chunk=chunk(0, 2, "b")), copy(2, chunk=chunk(1, 2, "a")),
        copy(3), copy(4, chunk=chunk(1, 2, "b")),
    )  # fmt: skip
    assert found(late(3, Extent.UPTO), where) == [0, 2, 3]
    assert found(late(4, Extent.UPTO), where) == [0, 1, 2, 3, 4]


def test_several_are_named_together() -> None:
    where = log(copy(0), mine(), copy(3), copy(4, cluster="north"), copy(6))
    several = [late(6, Extent.RECORD), late(0, Extent.UPTO), late(4, Extent.RECORD, "north"), late(2, Extent.RECORD)]
    several += [late(3, Extent.RECORD, batch_index=n, batch_size=4) for n in (0, 2)]
    told = named(several, where, Deadline.after(5))
    assert (list(told.offsets), told.batches) == ([0, 3, 4], {2: (4, 0b101)})


def test_one_record_is_found_by_its_place() -> None:
    where = log(copy(0), mine(), copy(3))
    assert found(late(3, Extent.RECORD), where) == [2]
    assert found(late(1, Extent.RECORD), where) == []
    assert found(late(1, Extent.RECORD, "east", EAST_LIFE), where) == [1]
    told = named([late(3, Extent.RECORD, batch_index=1, batch_size=4)], where, Deadline.after(5))
    assert told == Named(told.offsets, {2: (4, 0b10)})
