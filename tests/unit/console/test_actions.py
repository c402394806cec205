"""Forms of actions are parsed, and have the same fields on the page of their plan."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.client.values.texts import parse_message_id
from pulsar_on_kafka.console.actions import (
    Action,
    CancelMessages,
    ClearBacklog,
    RedriveLetters,
    ResetCursor,
    SkipMessages,
    action_of,
)
from pulsar_on_kafka.console.operations import quoted

NOW_MS = 1_795_600_000_000
TOPIC = "persistent://public/default/orders"
ON = {"topic": [TOPIC], "name": ["billing"]}
ID = parse_message_id("7:1:0")


@pytest.mark.parametrize(
    ("form", "action"),
    [
        ({"action": ["skip"], "count": ["12"], **ON}, SkipMessages(topic=TOPIC, name="billing", count=12)),
        (
            {"action": ["clear"], "partition": ["3"], **ON},
            ClearBacklog(topic=f"{TOPIC}-partition-3", name="billing"),
        ),
        ({"action": ["reset"], "to": [" 1h "], **ON}, ResetCursor(topic=TOPIC, name="billing", to=NOW_MS - 3_600_000)),
        ({"action": ["reset"], "to": ["7:1:0"], **ON}, ResetCursor(topic=TOPIC, name="billing", to=ID)),
        (
            {"action": ["reset"], "to": ["earliest"], **ON},
            ResetCursor(topic=TOPIC, name="billing", to=parse_message_id("earliest")),
        ),
        (
            {"action": ["cancel"], "key": ["k"], "properties": ["a=1", ""], "delayed": ["1"], **ON},
            CancelMessages(topic=TOPIC, name="billing", key="k", properties=("a=1",), delayed=True),
        ),
        ({"action": ["cancel"], "id": ["7:1:0"], **ON}, CancelMessages(topic=TOPIC, name="billing", id=(ID,))),
        ({"action": ["redrive"], "topic": [TOPIC], "id": ["7:1:0"]}, RedriveLetters(topic=TOPIC, id=(ID,))),
        ({"action": ["redrive"], "topic": [TOPIC]}, RedriveLetters(topic=TOPIC)),
    ],
)
def test_a_form_is_an_action(form: dict[str, list[str]], action: Action) -> None:
    found = action_of(form, NOW_MS)
    assert found == action
    assert action_of(dict(found.fields()), NOW_MS + 1000) == action, "the page of the plan has the same fields"


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({}, "expected an action of skip, reset, clear, cancel, redrive, got ''"),
        ({"action": ["drop"], **ON}, "got 'drop'"),
        ({"action": ["skip"], "count": ["0"], **ON}, "is 1 to 1,000,000,000, got 0"),
        ({"action": ["skip"], "count": ["-1"], **ON}, "number of messages to skip is a whole number, got '-1'"),
        ({"action": ["skip"], "count": ["1"], "topic": [TOPIC]}, "names no subscription"),
        ({"action": ["clear"], "partition": ["x"], **ON}, "partition is a whole number, got 'x'"),
        ({"action": ["reset"], **ON}, "name a time or a message"),
        ({"action": ["reset"], "to": ["soon"], **ON}, "'soon' is no time"),
        ({"action": ["reset"], "to": ["1:x"], **ON}, "'1:x' is no message id"),
        ({"action": ["cancel"], **ON}, "name the messages to cancel"),
        ({"action": ["cancel"], "properties": ["a"], **ON}, "'a' is no property"),
        ({"action": ["clear"], "topic": ["a/b"], "name": ["billing"]}, "a/b"),
    ],
)
def test_a_malformed_form_is_refused_by_name(form: dict[str, list[str]], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        action_of(form, NOW_MS)


def test_an_audit_line_names_the_action() -> None:
    found = action_of({"action": ["skip"], "count": ["12"], **ON}, NOW_MS)
    assert found.what == [("action", "skip"), ("topic", TOPIC), ("subscription", "billing"), ("count", "12")]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("orders", "orders"),
        ("a=1,b=2", "a=1,b=2"),
        ("", '""'),
        ("k result=done", '"k result=done"'),
        ('k"', '"k\\""'),
        ("k\nresult=done", '"k\\nresult=done"'),
        ("k\u2028result", '"k\\u2028result"'),
    ],
)
def test_no_value_passes_for_another_field_of_the_audit_line(value: str, shown: str) -> None:
    assert quoted(value) == shown
