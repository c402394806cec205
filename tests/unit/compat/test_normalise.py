"""Values as a history keeps them."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

import pulsar_on_kafka
from pulsar_on_kafka.exceptions import NotSupported
from tests.compat.harness.driver import not_supported
from tests.compat.harness.history import LONGEST_TEXT, Normaliser, NotRecordable


def an_id(ledger: int, entry: int, partition: int = -1, batch_index: int = -1) -> Any:
    return pulsar_on_kafka.MessageId(partition, ledger, entry, batch_index)


def test_names_become_their_labels_the_longest_first() -> None:
    normaliser = Normaliser()
    normaliser.call("public/default/x1-orders", "orders")
    normaliser.call("public/default/x1-orders-more", "more")
    assert normaliser.value("persistent://public/default/x1-orders-partition-2") == "persistent://<orders>-partition-2"
    assert normaliser.value(["public/default/x1-orders-more"]) == ["<more>"]


def test_ledgers_are_numbered_within_their_partition() -> None:
    ids = [an_id(900, 3), an_id(17, 0), an_id(900, 4), an_id(900, 4, 1), an_id(17, 0, 1)]
    found = Normaliser().value(ids)
    assert [text.partition(", partition")[0] for text in found] == [
        "L0, entry 3",
        "L1, entry 0",
        "L0, entry 4",
        "L0, entry 4",
        "L1, entry 0",
    ]


def test_earliest_and_latest_are_no_ledgers() -> None:
    normaliser = Normaliser()
    assert normaliser.value(pulsar_on_kafka.MessageId.earliest).startswith("earliest")
    assert normaliser.value(pulsar_on_kafka.MessageId.latest).startswith("latest")
    assert normaliser.value(an_id(0, 0)).startswith("L0, entry 0")


def test_plain_values() -> None:
    normaliser = Normaliser()
    assert normaliser.value({"b": b"\xff", "a": (1, 2.5, None, True)}) == {"a": [1, 2.5, None, True], "b": "\\xff"}
    assert normaliser.value({"z", "a"}) == ["a", "z"]
    assert normaliser.value(Counter("aba")) == {"a": 2, "b": 1}
    assert normaliser.value(pulsar_on_kafka.ConsumerType.Shared) == "Shared"
    assert normaliser.value(timedelta(seconds=2)) == "2.0 s"


def test_long_texts_become_their_length_and_hash() -> None:
    found = Normaliser().value("x" * (LONGEST_TEXT + 1))
    assert found.startswith("<401 characters, ")
    assert Normaliser().value("y" * (LONGEST_TEXT + 1)) != found


def test_an_object_is_refused() -> None:
    with pytest.raises(NotRecordable, match="not object"):
        Normaliser().value(object())


def test_what_is_not_supported_is_known_by_its_error() -> None:
    assert not_supported(NotSupported("readers")) == "readers"
    assert not_supported(ValueError("no")) is None
    with pytest.raises(RuntimeError) as wrapped:
        raise RuntimeError("outside") from NotSupported("inside")
    assert not_supported(wrapped.value) == "inside"
    anything: Any = pulsar_on_kafka
    with pytest.raises(AttributeError) as missing:
        anything.NoSuchThing()
    assert not_supported(missing.value) == "pulsar_on_kafka has no NoSuchThing"
    with pytest.raises(AttributeError) as foreign:
        anything.Client.__name__.no_such_thing()
    assert not_supported(foreign.value) is None
