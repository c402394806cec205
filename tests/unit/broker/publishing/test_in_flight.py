"""Tickets of messages under way in a producer, and waiting for them, against a model, without a broker."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.reentry import Callbacks
from pulsar_on_kafka.broker.publishing.batches import BatchesInFlight, OutgoingBatch
from pulsar_on_kafka.broker.publishing.in_flight import NO_ID, PartitionOut, SendsInFlight, Ticket
from pulsar_on_kafka.exceptions import Result
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from tests.seeds import for_each_seed

ORIGIN = PartitionOut(LedgerLayout(incarnation=1, entries_per_ledger=100), -1, "t", -1)


class Record:
    def __init__(self, offset: int | None) -> None:
        self._offset = offset

    def offset(self) -> int | None:
        return self._offset


class Reports:
    """Stands where KafkaProducer does: reports come when somebody polls, one at a time."""

    def __init__(self) -> None:
        self.due: list[tuple[Ticket, Any, Record]] = []
        self.callbacks = Callbacks()
        self._polling = threading.RLock()

    def wake(self) -> None:
        pass

    def call_later(self, call: Callable[[], object]) -> None:
        call()

    def check_may_wait(self) -> None: ...

    def poll_inline(self, timeout_s: float = 0.0) -> bool:
        with self._polling:
            due, self.due = self.due, []
            for ticket, error, record in due:
                ticket(error, record)
        return True


def in_flight(limit: int, reports: Reports, failures: list[Any]) -> SendsInFlight:
    return SendsInFlight(limit, reports, lambda error, callback: failures.append((error, callback)))  # type: ignore[arg-type]


def take(flight: SendsInFlight) -> Ticket | None:
    try:
        return flight.take()
    except IndexError:
        return flight.one_more()


def sent_as(flight: SendsInFlight, sequence: int) -> Ticket:
    ticket = take(flight)
    assert ticket is not None
    ticket.sequence, ticket.origin, ticket.callback = sequence, ORIGIN, None
    return ticket


@for_each_seed(range(300))
def test_every_history_accounts_for_every_ticket(seed: int) -> None:
    rng = random.Random(seed)
    reports = Reports()
    failures: list[Any] = []
    heard: list[tuple[int, Any]] = []
    limit = rng.randrange(1, 8)
    flight = in_flight(limit, reports, failures)
    under_way: list[Ticket] = []
    sent = failed = 0
    for _ in range(200):
        step = rng.random()
        if step < 0.5:
            ticket = take(flight)
            assert (ticket is None) == (len(under_way) == limit)
            if ticket is None:
                continue
            if rng.random() < 0.1:
                flight.give_back(ticket)
                continue
            ticket.sequence, ticket.origin = sent, ORIGIN
            ticket.callback = lambda result, _id, number=sent: heard.append((number, result))
            under_way.append(ticket)
            sent += 1
        elif step < 0.9 and under_way:
            ticket = under_way.pop(rng.randrange(len(under_way)))
            error = object() if rng.random() < 0.2 else None
            failed += error is not None
            reports.due.append((ticket, error, Record(sent)))
            reports.poll_inline()
        assert flight.under_way() == len(under_way)
    for ticket in under_way:
        reports.due.append((ticket, None, Record(1)))
    assert flight.wait_for_all(Deadline.after(5)) == 0
    assert len(heard) + len(failures) == sent
    assert len(failures) == failed
    assert len({number for number, _ in heard}) == len(heard)


def test_a_message_that_a_retry_found_stored_has_no_id() -> None:
    reports, heard = Reports(), []
    flight = in_flight(1, reports, [])
    ticket = take(flight)
    assert ticket is not None
    ticket.sequence, ticket.origin = 7, ORIGIN
    ticket.callback = lambda result, message_id: heard.append((result, message_id))
    ticket(None, Record(None))
    assert heard == [(Result.Ok, NO_ID)]
    assert ORIGIN.last_sequence_id == 7


def test_a_deadline_tells_how_many_are_unanswered() -> None:
    flight = in_flight(3, Reports(), [])
    for number in range(2):
        sent_as(flight, number)
    assert flight.wait_for_all(Deadline.after(0.01)) == 2


def test_what_is_sent_later_and_answered_earlier_does_not_count() -> None:
    flight = in_flight(2, Reports(), [])
    first, later = (sent_as(flight, number) for number in (0, 1))
    later(None, Record(0))
    sent = flight.sent()
    again = sent_as(flight, 2)
    assert again is later
    again(None, Record(1))
    assert flight.wait_for(sent, Deadline.after(0.01)) == 1
    first(None, Record(2))
    assert sent_as(flight, 3) is first
    assert flight.wait_for(sent, Deadline.never()) == 0


def test_batches_are_waited_for_one_by_one() -> None:
    flight = BatchesInFlight(100, Reports(), lambda error, callback: None)  # type: ignore[arg-type]
    first, later = (OutgoingBatch(flight, ORIGIN, partition, 0) for partition in (0, 1))
    for batch in (first, later):
        batch.payloads, batch.callbacks = [b"x", b"y"], [None, None]
        flight.taken += 2
    flight.outstanding.add(first)
    sent = flight.sent()
    flight.outstanding.add(later)
    later(None, Record(0))
    assert flight.answered_messages() == 2
    assert flight.wait_for(sent, Deadline.after(0.01)) == 1
    first(None, Record(0))
    assert flight.wait_for(sent, Deadline.never()) == 0
    assert not flight.outstanding


def test_no_sender_waits_for_the_callbacks_of_a_batch_without_any() -> None:
    flight = BatchesInFlight(100, Reports(), lambda error, callback: None)  # type: ignore[arg-type]
    batch = OutgoingBatch(flight, ORIGIN, 0, 0)
    batch.payloads, batch.callbacks = [b"x"], [None]
    flight.outstanding.add(batch)
    waiting: list[bool] = []
    flight.release = lambda count: None  # type: ignore[method-assign]
    flight.answered = lambda what, count: waiting.append(flight.has_callbacks_waiting())  # type: ignore[method-assign]
    batch(None, Record(0))
    assert waiting == [False]


def test_a_callback_that_fails_is_logged_and_its_ticket_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    flight = in_flight(1, Reports(), [])
    ticket = take(flight)
    assert ticket is not None
    ticket.sequence, ticket.origin = 0, ORIGIN

    def broken(result: Result, message_id: Any) -> None:
        raise RuntimeError("the application's")

    ticket.callback = broken
    ticket(None, Record(0))
    assert "a send callback failed" in caplog.text
    assert flight.take() is ticket
