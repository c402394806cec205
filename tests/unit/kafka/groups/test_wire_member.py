"""Races of a membership between its owner's calls and what the loop brings, each in one order of the two."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, cast

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.kafka.groups.group_client import GroupClient, MembershipCallbacks
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks
from pulsar_on_kafka.kafka.groups.membership_machine import NO_MEMBER, MemberGeneration
from pulsar_on_kafka.kafka.groups.wire_member import WireMember
from pulsar_on_kafka.kafka.reading.events import KafkaPartition, Records
from pulsar_on_kafka.kafka.reading.fetch_client import FetchClient
from pulsar_on_kafka.kafka.reading.fetch_sessions import Fetched, FetchEvent
from pulsar_on_kafka.kafka.records import CommittedOffset
from tests.kafka_batches import batch

TOPIC = "orders"
FIRST = MemberGeneration("m", 1)


def batch_of(*offsets: int) -> bytes:
    return batch([(0, None, b"a record", [])] * len(offsets), offsets[0])


class Watch:
    """A watched partition: what it was told, and the bytes that it holds."""

    def __init__(self, where: KafkaPartition, position: int, take: Callable[[FetchEvent], None]) -> None:
        self.where = where
        self.position = position
        self.generation = 0
        self.held = 0
        self.window = 0
        self.is_forgotten = False
        self.at_seek: Callable[[], None] = lambda: None
        self._take = take

    def fetch(self, *offsets: int, generation: int | None = None, data: bytes | None = None) -> None:
        data = batch_of(*offsets) if data is None else data
        self.held += len(data)
        generation = self.generation if generation is None else generation
        self._take(Fetched(1, generation, self.where, offsets[0], data, ()))

    def seek(self, position: int) -> None:
        self.position = position
        self.generation += 1
        self.at_seek()

    def set_window(self, window_bytes: int) -> None:
        self.window = window_bytes

    def hand_out(self, size: int) -> None:
        if not self.is_forgotten:
            self.held -= size
        assert self.held >= 0

    def forget(self) -> None:
        self.is_forgotten = True
        self.held = 0


class Reader:
    def __init__(self) -> None:
        self.watches: dict[int, Watch] = {}

    def watch(
        self,
        where: KafkaPartition,
        position: int,
        window: int,
        take: Callable[[FetchEvent], None],
        isolation: int,
        topic_id: bytes | None,
    ) -> Watch:
        watch = self.watches[where.partition] = Watch(where, position, take)
        watch.window = window
        return watch


class Member:
    """A membership of the group client, and the commits that its owner sent."""

    def __init__(self, callbacks: MembershipCallbacks) -> None:
        self.callbacks = callbacks
        self.commits: list[tuple[Mapping[int, CommittedOffset], MemberGeneration, Future[None]]] = []
        self.confirmed: list[tuple[int, ...]] = []
        self.left: Future[None] = Future()

    def commit(self, commits: Mapping[int, CommittedOffset], prepared: MemberGeneration) -> Future[None]:
        self.commits.append((commits, prepared, Future()))
        return self.commits[-1][2]

    def committed(self, partitions: list[int], timeout_s: float) -> Future[dict[int, CommittedOffset]]:
        found: Future[dict[int, CommittedOffset]] = Future()
        found.set_result({})
        return found

    def confirm_revoked(self, partitions: tuple[int, ...], generation: MemberGeneration) -> None:
        self.confirmed.append(partitions)

    def step_due(self) -> None: ...

    def step_ended(self, *, is_due: bool) -> None: ...

    def leave(self) -> Future[None]:
        self.left.set_result(None)
        return self.left


class Groups:
    member: Member

    def join(self, group: str, topic: str, callbacks: MembershipCallbacks, **_: Any) -> Member:
        self.member = Member(callbacks)
        return self.member


class Played:
    def __init__(self) -> None:
        self.groups, self.reader = Groups(), Reader()
        self.lost: list[int] = []
        self.revoked: list[int] = []
        self.outcomes: list[errors.LayerError | None] = []
        self.held: dict[int, int] = {}
        callbacks = GroupCallbacks(
            lambda given: dict.fromkeys(given, 0), self.revoked.extend, self.lost.extend, self.outcomes.append
        )
        self.consumer = WireMember(
            cast("GroupClient", self.groups), cast("FetchClient", self.reader), "g", "c", TOPIC, callbacks,
            held_bytes=lambda partition: self.held.get(partition, 0),
        )  # fmt: skip
        self.member = self.groups.member

    def assigned(self, *partitions: int) -> list[Watch]:
        self.member.callbacks.assigned(partitions, FIRST)
        assert self.poll() == []
        return [self.reader.watches[each] for each in partitions]

    def poll(self, limit: int = 1000) -> list[int]:
        events = self.consumer.poll(limit, 0.0)
        assert all(isinstance(event, Records) for event in events)
        return [record.offset() for event in events if isinstance(event, Records) for record in event.records]


@pytest.fixture
def played() -> Played:
    return Played()


def test_records_that_come_at_once_behind_a_seek_are_kept(played: Played) -> None:
    """The loop may fetch behind the seek before the owner's call of `seek` has returned."""
    (watch,) = played.assigned(0)
    watch.fetch(0, 1, 2)
    watch.at_seek = lambda: watch.fetch(7, 8)
    played.consumer.seek(0, 7)
    assert played.poll() == [7, 8]


def test_the_rest_of_a_former_batch_drops_nothing_behind_a_seek(played: Played) -> None:
    """The owner seeks while it has taken a part of a batch; records behind the seek wait while the rest is dropped."""
    (watch,) = played.assigned(0)
    watch.fetch(0, 1, 2)
    assert played.poll(1) == [0]
    played.consumer.seek(0, 7)
    watch.fetch(7, 8)
    assert played.poll() == [7, 8]
    played.poll()
    assert watch.held == 0


def test_records_of_a_former_generation_are_handed_out_and_not_returned(played: Played) -> None:
    (watch,) = played.assigned(0)
    played.consumer.seek(0, 7)
    watch.fetch(0, 1, generation=0)
    watch.fetch(7)
    assert played.poll() == [7]
    played.poll()
    assert watch.held == 0


def test_a_paused_partition_keeps_its_records_until_it_is_resumed(played: Played) -> None:
    (watch,) = played.assigned(0)
    watch.fetch(0, 1)
    played.consumer.pause([0])
    watch.fetch(2, 3)
    assert played.poll() == []
    assert watch.window == 0
    played.consumer.resume([0])
    assert played.poll() == [0, 1, 2, 3]
    assert watch.window > 0


def test_partitions_take_turns(played: Played) -> None:
    one, two = played.assigned(0, 1)
    for first in (0, 10, 20):
        one.fetch(*range(first, first + 10))
    two.fetch(100)
    assert played.poll(11) == [*range(10), 100]


def test_bytes_are_handed_out_when_the_owner_holds_them_no_more(played: Played) -> None:
    (watch,) = played.assigned(0)
    watch.fetch(0, 1, 2)
    size = watch.held
    played.held[0] = size - 10
    assert played.poll() == [0, 1, 2]
    assert watch.held == size
    played.poll()
    assert watch.held == size - 10
    played.held[0] = 0
    played.consumer.step_ended()
    assert watch.held == 0


def test_bytes_that_cannot_be_decoded_are_fetched_again_later(
    played: Played, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The batches before them are returned; other partitions continue."""
    one, two = played.assigned(0, 1)
    bad = bytearray(batch_of(2))
    bad[57] = 0x7F  # the number of records
    one.fetch(0, 1, data=batch_of(0, 1) + bytes(bad))
    two.fetch(5)
    assert played.poll() == [0, 1, 5]
    assert "again in 10 s" in caplog.text
    assert one.window == 0
    now_s = time.monotonic()
    monkeypatch.setattr("pulsar_on_kafka.kafka.groups.wire_member.time.monotonic", lambda: now_s + 11)
    assert played.poll() == []
    assert (one.position, one.held) == (2, 0)
    assert one.window > 0


def test_a_save_belongs_to_the_newest_generation_that_took_nothing_away(played: Played) -> None:
    """A rebalance that only gives partitions, or none, lets the owner save before it knows of it."""
    played.assigned(0)
    second = MemberGeneration("m", 2)
    played.member.callbacks.assigned((), second)
    played.consumer.commit_async({0: CommittedOffset(1, "")})
    assert played.member.commits[-1][1] == second


def test_no_save_leaves_the_owner_between_a_loss_and_its_report(played: Played) -> None:
    """The membership may have joined anew already: the owner prepared its save as the former member."""
    played.assigned(0)
    played.member.callbacks.lost((0,))
    played.member.callbacks.assigned((0,), MemberGeneration("other", 3))
    played.consumer.commit_async({0: CommittedOffset(1, "")})
    assert played.member.commits[-1][1] == NO_MEMBER
    played.poll()
    assert played.lost == [0]
    played.consumer.commit_async({0: CommittedOffset(1, "")})
    assert played.member.commits[-1][1] == MemberGeneration("other", 3)


def test_two_losses_in_a_row_are_two_reports(played: Played) -> None:
    played.assigned(0)
    for number in (2, 3):
        played.member.callbacks.lost((0,))
        played.member.callbacks.assigned((0,), MemberGeneration("other", number))
    played.member.callbacks.lost((0,))
    played.poll()
    assert played.lost == [0, 0, 0]
    played.consumer.commit_async({0: CommittedOffset(1, "")})
    assert played.member.commits[-1][1] == NO_MEMBER


def test_revoked_partitions_are_confirmed_after_the_owner_gave_them_up(played: Played) -> None:
    (watch,) = played.assigned(0)
    watch.fetch(0)
    played.member.callbacks.revoked((0,), FIRST)
    assert played.member.confirmed == []
    assert played.poll() == []
    assert (played.revoked, played.member.confirmed, watch.is_forgotten) == ([0], [(0,)], True)


def test_closing_gives_up_everything_once(played: Played) -> None:
    (watch,) = played.assigned(0)
    watch.fetch(0)
    played.consumer.close()
    played.member.callbacks.revoked((0,), FIRST)
    played.consumer.close()
    assert (played.revoked, watch.is_forgotten, played.member.left.done()) == ([0], True, True)


def test_an_owner_that_fails_to_give_up_leaves_all_the_same(played: Played) -> None:
    (watch,) = played.assigned(0)
    played.consumer._callbacks = GroupCallbacks(lambda given: {}, _refuse, _refuse, played.outcomes.append)
    with pytest.raises(errors.NoSuchTopic, match="gone"):
        played.consumer.close()
    assert watch.is_forgotten
    assert played.member.left.done()


def _refuse(_: list[int]) -> None:
    raise errors.NoSuchTopic("the topic is gone")
