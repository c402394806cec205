"""The properties of a dead letter are sorted for its page."""

from __future__ import annotations

from pulsar_on_kafka.admin.letters import DeadLetter
from pulsar_on_kafka.admin.stored.shown_messages import ShownMessage
from pulsar_on_kafka.console.dead_letter_texts import MAX_PROPERTIES, shown_letter
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId

STACK = 'Traceback (most recent call last):\n  File "billing.py", line 7\nKeyError: 7'


def a_letter(properties: dict[str, str], reason: str = "") -> DeadLetter:
    message = ShownMessage(
        message_id=NativeMessageId(0, 1, 2, -1), topic="orders-billing-DLQ", key="", ordering_key="",
        properties=properties, publish_time_ms=1, event_time_ms=0, deliver_at_ms=0, producer="", redelivery_count=0,
        payload=b"", encrypted=False, decoded=False, value=None, undecoded="",
    )  # fmt: skip
    return DeadLetter(message, "", "", "", reason, None)


def test_properties_are_sorted_by_their_use() -> None:
    properties = {"REAL_TOPIC": "orders", "REFUSAL_REASON": "no account", "stacktrace": STACK, "b": "2", "a": "1\n"}
    found = shown_letter(a_letter(properties, "no account"))
    assert found.reason == "no account"
    assert found.stacks == (("stacktrace", STACK),)
    assert found.properties == (("a", "1\n"), ("b", "2"))
    assert [name for name, _ in found.records] == ["REAL_TOPIC", "REFUSAL_REASON"]


def test_a_property_that_is_the_reason_is_shown_once() -> None:
    found = shown_letter(a_letter({"exception": STACK, "a": "1"}, STACK))
    assert (found.reason, found.stacks, found.properties) == (STACK, (), (("a", "1"),))


def test_large_letters_are_cut() -> None:
    found = shown_letter(a_letter({f"{number:03}": "x" * 30_000 for number in range(MAX_PROPERTIES + 7)}))
    assert (len(found.properties), found.left_out) == (MAX_PROPERTIES, 7)
    assert found.properties[0][1].endswith("… (30,000 characters)")
