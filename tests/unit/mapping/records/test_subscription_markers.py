"""Markers by which clusters exchange snapshots of subscriptions, as records."""

from __future__ import annotations

import orjson
import pytest

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.records.message_record import MessageMetadata, encode_headers, is_plain
from pulsar_on_kafka_mapping.records.record_headers import MARKER, REPLICATE_TO, MarkerType
from pulsar_on_kafka_mapping.records.subscription_markers import (
    Snapshot,
    SnapshotRequest,
    SnapshotResponse,
    SubscriptionMarker,
    SubscriptionUpdate,
    decode_marker,
    encode_marker,
    is_carried,
)
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import Origin

EAST, SOUTH = Origin("east", 17), Origin("süd, 50%", 0)
MARKERS: list[SubscriptionMarker] = [
    SnapshotRequest("ab" * 16, "west", 2),
    SnapshotResponse("ab" * 16, SOUTH.cluster, 1, EAST, 120),
    SnapshotResponse("ab" * 16, "west", 1, EAST, -1),
    Snapshot("ab" * 16, "west", 118, {EAST: 120, SOUTH: 1 << 62}),
    SubscriptionUpdate('s "quoted" ü', "west", (17, 42), {EAST: 120}),
]


@pytest.mark.parametrize("marker", MARKERS)
def test_what_goes_in_comes_out(marker: SubscriptionMarker) -> None:
    headers, value = encode_marker(marker)
    assert decode_marker(headers, value) == marker
    assert not is_plain(headers)


def test_an_answer_goes_to_who_asked_and_a_snapshot_to_nobody() -> None:
    request, response, _, snapshot, update = (encode_marker(marker)[0] for marker in MARKERS)
    assert [is_carried(each) for each in (request, response, snapshot, update)] == [True, True, False, True]
    assert dict(response)[REPLICATE_TO] == "süd%2C 50%25".encode()
    assert [REPLICATE_TO in dict(each) for each in (request, snapshot, update)] == [False] * 3


@pytest.mark.parametrize("kind", [MarkerType.TXN_ABORT, MarkerType.REPLICATOR])
def test_other_markers_are_none_of_these(kind: MarkerType) -> None:
    headers = encode_headers(MessageMetadata(marker=kind))
    assert decode_marker(headers, None) is None
    assert not is_carried(headers)
    assert decode_marker([], b"{}") is None


def test_one_of_a_later_version_says_nothing() -> None:
    headers, value = encode_marker(MARKERS[0])
    assert decode_marker(headers, orjson.dumps({**orjson.loads(value), "v": 2})) is None


@pytest.mark.parametrize("marker", MARKERS)
def test_what_cannot_be_read_is_corrupt(marker: SubscriptionMarker) -> None:
    headers, value = encode_marker(marker)
    said = orjson.loads(value)
    for name, found in said.items():
        without = {key: each for key, each in said.items() if key != name}
        for wrong in (without, {**said, name: None}, {**said, name: [found]}):
            if wrong.get("v", 1) != 1:
                continue
            with pytest.raises(CorruptRecord, match=r"snapshot|subscription update"):
                decode_marker(headers, orjson.dumps(wrong))
    for broken in (None, b"", b"{", b"[]", b"7"):
        with pytest.raises(CorruptRecord):
            decode_marker(headers, broken)


def test_a_cluster_without_a_name_cannot_be_answered() -> None:
    with pytest.raises(MappingError):
        encode_marker(SnapshotResponse("ab" * 16, "", 1, EAST, 120))
    assert dict(encode_marker(MARKERS[0])[0])[MARKER] == b"snapshot_request"
