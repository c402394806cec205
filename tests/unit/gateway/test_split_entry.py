"""The records of one entry are answered as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from pulsar_on_kafka.broker.publishing.in_flight import NO_ID
from pulsar_on_kafka.exceptions import ProducerFenced, PulsarException, Result, Timeout
from pulsar_on_kafka.gateway.handlers.split_entry import SplitEntry, SplitRecord
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.wire.commands import ServerError


class Sent:
    """What an entry's client is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        self.told.append((result, message_id.entry_id()))

    def refused(self, code: ServerError, reason: str) -> None:
        self.told.append((code, reason))

    def fail(self, failure: PulsarException) -> None:
        self.told.append(failure)


def of_three() -> tuple[Sent, SplitEntry, list[SplitRecord]]:
    sent = Sent()
    together = SplitEntry(cast("Any", sent), 3)
    return sent, together, [SplitRecord(together, at) for at in range(3)]


def an_id(entry: int) -> NativeMessageId:
    return NativeMessageId(-1, 7, entry, -1)


def test_the_receipt_has_the_first_id_and_comes_with_the_last_answer() -> None:
    sent, together, (first, second, third) = of_three()
    second(Result.Ok, an_id(11))
    first(Result.Ok, an_id(10))
    assert (sent.told, together.failed) == ([], False)
    third(Result.Ok, an_id(12))
    assert sent.told == [(Result.Ok, 10)]


@pytest.mark.parametrize(("stored_before", "told"), [(1, 11), (2, 12), (3, NO_ID.entry_id())])
def test_of_messages_that_were_stored_before_no_id_is_known(stored_before: int, told: int) -> None:
    sent, _, parts = of_three()
    for at, part in enumerate(parts):
        part(Result.Ok, NO_ID if at < stored_before else an_id(10 + at))
    assert sent.told == [(Result.Ok, told)]


def _fails(part: SplitRecord) -> None:
    part.fail(Timeout("too long"))


def _thrown_out(part: SplitRecord) -> None:
    part(Result.ProducerFenced, NO_ID)


@pytest.mark.parametrize(("ends", "told"), [(_fails, Timeout), (_thrown_out, (Result.ProducerFenced, -1))])
def test_one_that_fails_is_the_answer_for_all(ends: Callable[[SplitRecord], None], told: object) -> None:
    sent, together, (first, second, third) = of_three()
    first(Result.Ok, an_id(10))
    ends(second)
    assert (sent.told, together.failed) == ([], True)
    third.fail(ProducerFenced("later"))
    (found,) = sent.told
    assert found == told if isinstance(told, tuple) else isinstance(found, Timeout)


def test_what_was_not_sent_any_more_is_not_waited_for() -> None:
    sent, together, (first, _, _) = of_three()
    together.refused((ServerError.UNKNOWN, "no room"), 2)
    assert not sent.told
    first(Result.Ok, an_id(10))
    assert sent.told == [(ServerError.UNKNOWN, "no room")]
