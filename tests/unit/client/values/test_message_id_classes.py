"""The two classes of message ids, beside what pulsar-client 3.13.0 does with them (seen on Pulsar 4.0.7)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.client.values.message_id import native
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId, PartitionOrigin, StoredMessageId

LATEST = 9223372036854775807


def stored(offset: int, partition: int = -1) -> StoredMessageId:
    return StoredMessageId(PartitionOrigin(LedgerLayout(3, 10), partition, "persistent://public/default/t"), offset)


def test_earliest_and_latest_are_native() -> None:
    assert str(pulsar.MessageId.earliest) == "(-1,-1,-1,-1)"
    assert str(pulsar.MessageId.latest) == f"({LATEST},{LATEST},-1,-1)"
    assert isinstance(pulsar.MessageId.earliest, NativeMessageId)
    assert not isinstance(pulsar.MessageId(), NativeMessageId)


def test_str_is_ledger_entry_partition_batch() -> None:
    assert str(pulsar.MessageId(1, 2, 3, 4)) == "(2,3,1,4)"
    assert str(NativeMessageId(1, 2, 3, 4)) == "(2,3,1,4)"


def test_defaults_are_minus_one() -> None:
    made = pulsar.MessageId()
    assert (made.partition(), made.ledger_id(), made.entry_id(), made.batch_index()) == (-1, -1, -1, -1)
    assert made == pulsar.MessageId.wrap(pulsar.MessageId.earliest)


def test_an_id_of_a_stored_message_names_ledger_and_entry() -> None:
    found = stored(23)
    assert (found.entry_id(), found.partition(), found.batch_index()) == (3, -1, -1)
    assert found.ledger_id() == stored(20).ledger_id() == stored(13).ledger_id() + 1


@pytest.mark.parametrize("wrap_left", [False, True])
@pytest.mark.parametrize("wrap_right", [False, True])
def test_both_classes_compare_with_each_other(wrap_left: bool, wrap_right: bool) -> None:
    wrap = pulsar.MessageId.wrap
    low, same, high = stored(19), stored(19), stored(20)
    left = wrap(low) if wrap_left else low
    equal = wrap(same) if wrap_right else same
    greater = wrap(high) if wrap_right else high
    holds: list[tuple[Callable[[Any, Any], bool], object, bool]] = [
        (operator.eq, equal, True), (operator.ne, equal, False), (operator.le, equal, True), (operator.ge, equal, True),
        (operator.lt, equal, False), (operator.gt, equal, False), (operator.lt, greater, True),
        (operator.gt, greater, False), (operator.ne, greater, True), (operator.eq, greater, False),
    ]  # fmt: skip
    assert [compare(left, other) for compare, other, _ in holds] == [expected for *_, expected in holds]


def test_batch_indexes_order_after_entries() -> None:
    assert pulsar.MessageId(-1, 1, 1, -1) < pulsar.MessageId(-1, 1, 1, 0) < pulsar.MessageId(-1, 1, 1, 1)
    assert pulsar.MessageId(5, 1, 1, 0) < pulsar.MessageId(0, 1, 1, 1)
    assert pulsar.MessageId(5, 1, 1, 9) < pulsar.MessageId(0, 2, 0, 0)


def test_earliest_is_below_and_latest_above_everything() -> None:
    assert pulsar.MessageId.earliest < stored(0) < pulsar.MessageId.latest


def test_ids_of_different_partitions_are_different() -> None:
    assert NativeMessageId(0, 1, 1, -1) != NativeMessageId(1, 1, 1, -1)


@pytest.mark.parametrize("made", [stored(1), pulsar.MessageId(), pulsar.MessageId.latest])
def test_ids_are_unhashable(made: object) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(made)


@pytest.mark.parametrize("made", [stored(1), pulsar.MessageId()])
def test_ordering_against_anything_else_is_a_type_error(made: Any) -> None:
    assert made != 5
    assert made != None  # noqa: E711 - what a program may write
    with pytest.raises(TypeError):
        operator.lt(made, 5)


def test_an_id_comes_back_from_its_bytes() -> None:
    for made in (stored(23), stored(23, 2), NativeMessageId(1, 2, 3, 4), pulsar.MessageId.latest):
        back = pulsar.MessageId.deserialize(made.serialize())
        assert back == made
        assert isinstance(back, NativeMessageId)
    assert pulsar.MessageId.deserialize(stored(4).serialize(), "t") == stored(4)


def test_serialized_bytes_are_the_official_clients() -> None:
    assert pulsar.MessageId(1, 2, 3, 4).serialize() == b"\x08\x02\x10\x03\x18\x01 \x04"
    official = pytest.importorskip("pulsar")
    for fields in ((1, 2, 3, 4), (-1, 2, 3, -1), (-1, 2**62, 49_999, -1), (0, 0, 0, 0), (8191, 5, 6, -1)):
        assert pulsar.MessageId(*fields).serialize() == official.MessageId(*fields).serialize()


@pytest.mark.parametrize("junk", [b"\xff\xff\xff", b"", b"\x08", "x"])
def test_bytes_of_no_id_are_a_value_error(junk: bytes) -> None:
    with pytest.raises(ValueError, match="message id"):
        pulsar.MessageId.deserialize(junk)


@pytest.mark.parametrize("field", [1.5, "1", None])
def test_fields_are_integers(field: int) -> None:
    with pytest.raises(TypeError):
        pulsar.MessageId(field, 1, 1, 1)


def test_native_gives_what_is_behind_either_class() -> None:
    inner = stored(3)
    assert native(pulsar.MessageId.wrap(inner)) is inner
    assert native(inner) is inner
    assert native("x") is None
