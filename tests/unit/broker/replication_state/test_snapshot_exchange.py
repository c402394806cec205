"""One cluster's part in the snapshots of one partition."""

from __future__ import annotations

from collections.abc import Iterable

from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.replication_state.snapshot_exchange import EVERY_MS, SnapshotExchange, Wished
from pulsar_on_kafka.service.replication.subscriptions.snapshot_sync import hear
from pulsar_on_kafka_mapping.records.epoch_fences import take_over_marker
from pulsar_on_kafka_mapping.records.message_record import Headers, MessageMetadata, encode_headers
from pulsar_on_kafka_mapping.records.original_position import OriginalPosition, encode_original
from pulsar_on_kafka_mapping.records.record_headers import ORIGINAL_ID, REPLICATED_FROM
from pulsar_on_kafka_mapping.records.subscription_markers import (
    Snapshot,
    SnapshotRequest,
    SnapshotResponse,
    SubscriptionMarker,
    SubscriptionUpdate,
    encode_marker,
)
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import Origin

WEST, EAST = Origin("west", 5), Origin("east", 6)
LIFE = (6, 9)


class Record:
    """A record in confluent-kafka's form."""

    def __init__(self, offset: int, headers: Headers | None = None, value: bytes | None = b"") -> None:
        self._offset, self._headers, self._value = offset, headers, value

    def offset(self) -> int:
        return self._offset

    def headers(self) -> Headers | None:
        return self._headers

    def value(self) -> bytes | None:
        return self._value


def copied(offset: int, marker: SubscriptionMarker, epoch: int = 1) -> Record:
    """From the east."""
    headers, value = encode_marker(marker)
    position = encode_original(OriginalPosition(offset, 0, EAST.incarnation, epoch))
    return Record(offset, [*headers, (REPLICATED_FROM, b"east"), (ORIGINAL_ID, position)], value)


def own(offset: int, marker: SubscriptionMarker) -> Record:
    headers, value = encode_marker(marker)
    return Record(offset, headers, value)


def exchange(records: Iterable[Record] = (), first: int = 0) -> SnapshotExchange:
    made = SnapshotExchange(WEST, first, 0)
    made.follow({"s"})
    read(made, records)
    return made


def read(made: SnapshotExchange, records: Iterable[Record], fences: Fences | None = None) -> None:
    found = list(records)
    hear(made, Fences() if fences is None else fences, found)
    end = found[-1].offset() + 1 if found else made.position
    made.reached(end, end)


def markers(made: SnapshotExchange, now_ms: int, new_id: str = "new") -> list[SubscriptionMarker]:
    return made.markers(now_ms, {"east"}, new_id)


def response(snapshot_id: str, upto: int = 40) -> SnapshotResponse:
    return SnapshotResponse(snapshot_id, "west", 1, EAST, upto)


def test_a_snapshot_is_asked_for_every_second_while_messages_come() -> None:
    made = exchange([Record(0)])
    assert markers(made, 0, "a") == [SnapshotRequest("a", "west", 1)]
    assert markers(made, EVERY_MS - 1, "b") == []
    assert markers(made, EVERY_MS, "b") == [SnapshotRequest("b", "west", 1)]
    read(made, [copied(3, response("b"))])
    assert markers(made, EVERY_MS) == [Snapshot("b", "west", 3, {EAST: 40})]
    assert markers(made, 10 * EVERY_MS) == []  # nothing was published since
    read(made, [own(4, Snapshot("b", "west", 3, {EAST: 40})), Record(5)])
    assert markers(made, 10 * EVERY_MS, "c") == [SnapshotRequest("c", "west", 1)]


def test_a_message_that_came_while_a_snapshot_was_made_needs_another_one() -> None:
    made = exchange([Record(0)])
    markers(made, 0, "a")
    read(made, [own(1, SnapshotRequest("a", "west", 1)), Record(2), copied(3, response("a"))])
    assert markers(made, EVERY_MS, "b") == [Snapshot("a", "west", 3, {EAST: 40}), SnapshotRequest("b", "west", 1)]


def test_nothing_is_asked_while_a_cluster_is_away_or_the_log_was_not_read() -> None:
    made = exchange([Record(0)])
    assert made.markers(0, frozenset(), "a") == []
    behind = SnapshotExchange(WEST, 0, 0)
    behind.reached(10, 20)
    assert markers(behind, 0) == []


def test_what_was_perhaps_not_written_is_made_up_for() -> None:
    made = exchange([Record(0)])
    markers(made, 0, "a")
    read(made, [copied(3, response("a"))])
    assert len(markers(made, 1)) == 1
    made.lost()
    assert markers(made, EVERY_MS, "b") == [SnapshotRequest("b", "west", 1)]


def test_an_answer_says_how_far_the_log_was_when_it_was_asked() -> None:
    made = exchange([Record(0), copied(1, SnapshotRequest("x", "east", 1)), Record(2)])
    made.lost()
    answer, *_ = made.markers(0, frozenset(), "a")
    assert answer == SnapshotResponse("x", "east", 1, WEST, 2)
    assert made.markers(0, frozenset(), "a") == []
    read(made, [copied(3, SnapshotRequest("y", "east", 1)), copied(4, SnapshotRequest("z", "east", 1))])
    assert [each.snapshot_id for each in made.markers(0, frozenset(), "a") if isinstance(each, SnapshotResponse)] == [
        "y", "z",
    ]  # fmt: skip


def test_of_what_was_asked_long_ago_the_last_is_answered() -> None:
    made = SnapshotExchange(WEST, 0, 0)
    asked = [copied(number, SnapshotRequest(str(number), "east", 1 + number % 2)) for number in range(10)]
    hear(made, Fences(), asked)
    made.reached(10, 10)
    assert made.markers(0, frozenset(), "a") == [
        SnapshotResponse("8", "east", 1, WEST, 9), SnapshotResponse("9", "east", 2, WEST, 9),
    ]  # fmt: skip


def test_an_answer_that_was_copied_behind_a_later_replicators_fence_is_void() -> None:
    """What was published before it may not have been copied yet."""
    made = exchange([Record(0)])
    markers(made, 0, "a")
    fence = Record(1, take_over_marker("east", 2), None)
    fences = Fences()
    read(made, [fence, copied(2, response("a", 40), epoch=1)], fences)
    assert markers(made, 1) == []
    read(made, [copied(3, response("a", 41), epoch=2)], fences)
    assert markers(made, 1) == [Snapshot("a", "west", 3, {EAST: 41})]


def test_a_mark_delete_that_passes_a_snapshot_is_told_once() -> None:
    found = Snapshot("a", "west", 3, {EAST: 40})
    made = exchange([own(4, found)])
    assert made.passed("s", 3) is None
    assert made.passed("s", 4) == found
    made.told("s", found)
    assert made.passed("s", 4) is None
    assert made.passed("other", 4) is None


def test_of_several_updates_the_furthest_counts_and_only_those_of_this_life_of_the_topic() -> None:
    def update(upto: int, origin: Origin = WEST, subscription: str = "s") -> SubscriptionUpdate:
        return SubscriptionUpdate(subscription, "east", LIFE, {origin: upto, EAST: 7})

    made = exchange(
        [
            copied(1, update(10)), copied(2, update(30)), copied(3, update(20)),
            copied(4, update(99, Origin("west", 4))), own(5, update(99)), copied(6, update(3, subscription="t")),
        ]
    )  # fmt: skip
    assert sorted(made.updates()) == [(Wished("s", "east", LIFE), 30), (Wished("t", "east", LIFE), 3)]
    made.applied(Wished("s", "east", LIFE), 29)
    assert len(made.updates()) == 2
    made.applied(Wished("s", "east", LIFE), 30)
    assert len(made.updates()) == 1


def test_what_a_cluster_never_got_its_word_does_not_acknowledge() -> None:
    kept = encode_headers(MessageMetadata(replicate_to=("south",)))
    named = encode_headers(MessageMetadata(replicate_to=("east", "south")))
    position = encode_original(OriginalPosition(9, 0, EAST.incarnation, 1))
    of_east = [
        *encode_headers(MessageMetadata(replicate_to=("west",))),
        (REPLICATED_FROM, b"east"),
        (ORIGINAL_ID, position),
    ]
    made = exchange([Record(0), Record(1, kept), Record(2, named), Record(3, of_east), Record(4)])

    def news(cluster: str, upto: int, next_unacked: int, known: int) -> list[int]:
        start, found = made.news(cluster, upto, next_unacked, known)
        return [start + offset for offset in found]

    assert news("east", 4, 0, 0) == [0, 2, 3, 4]
    assert news("south", 4, 0, 0) == [0, 1, 2, 4]
    assert news("east", 3, 1, 0) == [2, 3]
    assert news("east", 4, 0, 3) == [3, 4]  # a seek went back behind what took effect before
    assert news("east", 4, 9, 0) == []


def test_where_only_markers_are_left_nobody_has_a_message() -> None:
    made = exchange([Record(0), own(1, Snapshot("a", "west", 0, {}))])
    assert [made.only_markers_from(next_unacked) for next_unacked in (0, 1, 2)] == [False, True, False]
    assert not SnapshotExchange(WEST, 5, 5).only_markers_from(4)


def test_a_marker_that_cannot_be_read_holds_nothing_up() -> None:
    headers, _ = encode_marker(SnapshotRequest("x", "east", 1))
    made = exchange([Record(0, headers, b"{"), Record(1)])
    assert made.position == 2
