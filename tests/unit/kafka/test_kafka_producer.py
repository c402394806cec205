"""The shared Kafka producer ends: everything that was handed over hears of it."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.appends import NewRecord, append_all
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.kafka.settings import KafkaSettings
from tests.waiting import patience, until


@pytest.fixture
def nobody_listens() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def producer(address: str) -> KafkaProducer:
    settings = KafkaSettings(address, {})
    return KafkaProducer(settings.producer(compression="none", message_timeout_ms=60_000, linger_ms=0.0))


def test_what_librdkafka_has_to_say_does_not_pile_up_while_nothing_is_sent(
    nobody_listens: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pulsar_on_kafka.kafka.producer._ASLEEP_S", 0.1)
    kafka = producer(nobody_listens)
    until(lambda: kafka.asleep, "the polling thread to have nothing to do")
    for _ in range(3):  # every few attempts to connect say something
        caplog.clear()
        until(lambda: "Connect" in caplog.text, "a failed attempt to connect to be told")
    kafka.close(patience())


def test_closing_tells_every_record_that_it_was_given_up(nobody_listens: str) -> None:
    kafka = producer(nobody_listens)
    heard: list[Any] = []
    for number in range(100):
        kafka.enqueue("t", 0, None, b"%d" % number, lambda error, _record: heard.append(error))
    kafka.wake()
    assert kafka.close(Deadline.after(0.2)) == 100
    assert len(heard) == 100
    assert all(error is not None for error in heard)


def test_giving_up_tells_every_record_and_says_why(nobody_listens: str) -> None:
    kafka = producer(nobody_listens)
    heard: list[Any] = []
    for number in range(100):
        kafka.enqueue("t", 0, None, b"%d" % number, lambda error, _record: heard.append(error))
    kafka.give_up(errors.ConnectFailed("cut off"))
    kafka.give_up(errors.ConnectFailed("again"))
    until(lambda: len(heard) == 100, "every record to be answered")
    assert all(heard)
    assert str(kafka.fatal) == "cut off"
    kafka.close(Deadline.after(0))


def test_it_is_full_until_something_was_answered(nobody_listens: str) -> None:
    settings = KafkaSettings(nobody_listens, {"queue.buffering.max.messages": "10"})
    kafka = KafkaProducer(settings.producer(compression="none", message_timeout_ms=60_000, linger_ms=0.0))
    for _ in range(10):
        kafka.enqueue("t", 0, None, b"x", lambda _error, _record: None)
    assert not kafka.full
    with pytest.raises(BufferError):
        kafka.enqueue("t", 0, None, b"x", lambda _error, _record: None)
    kafka.note_full()
    assert kafka.full
    kafka.give_up(errors.ConnectFailed("cut off"))
    until(lambda: not kafka.full, "it to have room again")
    kafka.close(Deadline.after(0))


def test_closing_from_inside_a_delivery_callback_does_not_wait_for_itself(nobody_listens: str) -> None:
    settings = KafkaSettings(nobody_listens, {})
    kafka = KafkaProducer(settings.producer(compression="none", message_timeout_ms=100, linger_ms=0.0))
    answers: list[int] = []
    closed = threading.Event()

    def close_in_here(_error: Any, _record: Any) -> None:
        answers.append(kafka.close(Deadline.after(30)))
        closed.set()

    kafka.enqueue("t", 0, None, b"x", close_in_here)
    kafka.wake()
    assert closed.wait(20)
    assert answers[0] >= 0


def test_a_sender_who_waits_for_a_callback_that_waits_for_it_goes_on(nobody_listens: str) -> None:
    """With so many records under way that it lets the thread that serves callbacks end first; that is also asked for
    from inside a callback."""
    settings = KafkaSettings(nobody_listens, {})
    kafka = KafkaProducer(settings.producer(compression="none", message_timeout_ms=100, linger_ms=0.0))
    served_in_callback: list[bool] = []
    inside, went_on, all_told = threading.Event(), threading.Event(), threading.Event()
    told = [0]

    def tell(_error: Any, _record: Any) -> None:
        told[0] += 1
        if told[0] == 1:
            served_in_callback.append(kafka.poll_inline())
            inside.set()
            assert went_on.wait(20)
        elif told[0] == 2_000:
            all_told.set()

    for _ in range(2_000):
        kafka.enqueue("t", 0, None, b"x", tell)
    kafka.wake()
    assert inside.wait(20)
    assert not kafka.poll_inline()
    went_on.set()
    assert all_told.wait(20)
    assert served_in_callback == [False]
    kafka.close(Deadline.after(0))


def test_an_append_that_nobody_answers_has_an_unknown_outcome(nobody_listens: str) -> None:
    kafka = producer(nobody_listens)
    with pytest.raises(errors.AppendOutcomeUnknown, match="append to t-0 was not answered in time"):
        kafka.append("t", 0, None, b"x", Deadline.after(0.1))
    kafka.close(Deadline.after(0))


def test_an_append_of_which_kafka_does_not_say_where_it_is_has_an_unknown_outcome() -> None:
    """Kafka has had the request before, and remembers the places of the last five alone."""

    class Repeated:
        def produce(self, topic: str, value: Any, key: Any, partition: int, callback: Any, *more: Any) -> None:
            callback(None, SimpleNamespace(offset=lambda: None, timestamp=lambda: (0, 0)))

        def wait_for(self, waiting: Any, deadline: Deadline) -> bool:
            return True

    repeated: Any = Repeated()
    with pytest.raises(errors.AppendOutcomeUnknown, match="append to t-0: Kafka has it and does not report its offset"):
        append_all(lambda: repeated, "t", 0, [NewRecord(None, b"x")], Deadline.after(1))


def test_of_those_who_wait_for_their_appends_one_serves_all_and_another_follows(nobody_listens: str) -> None:
    """Each leaves when its own records were given up, or when it has no time left."""
    settings = KafkaSettings(nobody_listens, {})
    config = settings.producer(compression="none", message_timeout_ms=300, linger_ms=0.0)
    kafka = KafkaProducer(config, served_by_waiting=True)
    told: list[errors.LayerError] = []

    def append(seconds: float) -> None:
        try:
            append_all(lambda: kafka, "t", 0, [NewRecord(None, b"x")] * 3, Deadline.after(seconds))
        except errors.LayerError as failure:
            told.append(failure)

    threads = [threading.Thread(target=append, args=(0.05 if number % 4 == 0 else 60.0,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [thread.is_alive() for thread in threads] == [False] * 12
    assert sorted("was not answered in time" in str(failure) for failure in told) == [False] * 9 + [True] * 3
    assert kafka.close(patience()) == 0
