"""kombu's messages as those of the SDK: nothing of them is lost, and Celery's times and priorities are read."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_on_kafka.integrations.celery.messages import (
    decode,
    deliver_at_ms,
    encode,
    is_transient,
    queue_topic,
    routing_key,
    step_of,
    time_to_live_ms,
)


def message(body: Any = "[]", headers: Any = None, **properties: Any) -> dict[str, Any]:
    return {
        "body": body,
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": headers or {},
        "properties": {"delivery_info": {"exchange": "celery", "routing_key": "mail"}, **properties},
    }


@pytest.mark.parametrize("body", ["[1, 2]", b"\x80\x05pickled", "", "\N{SNOWMAN}"])
def test_a_message_comes_back_as_it_was(body: Any) -> None:
    sent = message(body, {"id": "7", "task": "shop.bill"}, priority=3)
    received = decode(*encode(sent))
    assert received == {**sent, "body": body.encode() if isinstance(body, str) else body}
    assert routing_key(received) == "mail"


@pytest.mark.parametrize("properties", [{}, {"kombu": "{not JSON"}])
def test_a_message_of_another_program_is_a_body_of_unknown_type(properties: dict[str, str]) -> None:
    received = decode(b"from elsewhere", properties)
    assert received["body"] == b"from elsewhere"
    assert received["content-type"] == "application/data"
    assert received["headers"] == properties


@pytest.mark.parametrize(
    ("eta", "at_ms"),
    [
        (None, None),
        ("1970-01-01T00:00:01.500000+00:00", 1500),
        ("1970-01-01T00:00:02Z", 2000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:01", None),  # the worker knows the zone
        ("tomorrow", None),
    ],
)
def test_the_eta_is_the_time_of_delivery(eta: str | None, at_ms: int | None) -> None:
    assert deliver_at_ms(message(headers={"eta": eta})) == at_ms


@pytest.mark.parametrize(("priority", "step"), [(None, 0), (0, 0), (2, 0), (3, 3), (5, 3), (9, 9), ("x", 0)])
def test_a_priority_belongs_to_the_highest_step_below_it(priority: Any, step: int) -> None:
    assert step_of(message(priority=priority), (0, 3, 6, 9)) == step
    assert step_of(message(priority=priority), (0,)) == 0


@pytest.mark.parametrize(
    ("own", "of_queue", "ttl"), [(None, None, None), ("2000", None, 2000), (None, 300, 300), ("2000", 300, 300)]
)
def test_the_shorter_time_to_live_counts(own: str | None, of_queue: int | None, ttl: int | None) -> None:
    assert time_to_live_ms(message(expiration=own), of_queue) == ttl


def test_delivery_mode_1_is_transient() -> None:
    assert is_transient(message(delivery_mode=1))
    assert not is_transient(message(delivery_mode=2))
    assert not is_transient(message())


def test_names_with_slashes_stay_different() -> None:
    topics = {queue_topic("public/default", name) for name in ("a/b", "a%2Fb", "a", "celery@host.celery.pidbox")}
    assert len(topics) == 4
    assert queue_topic("shop/eu", "mail", 3) == "persistent://shop/eu/mail-priority-3"
