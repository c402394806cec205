"""Actions of operators on subscriptions and dead letters. A plan says what an action would do now, with counts.

Each action goes through `AdminClient`, so the owner of the cursor does it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from pulsar_on_kafka.admin import AdminClient, PartitionCursor
from pulsar_on_kafka.admin.letters import LetterFilter, Redriven
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.broker.node.role_rights import Requirement, on_topic
from pulsar_on_kafka.client.values.texts import (
    message_id_text,
    parse_message_id,
    parse_properties,
    parse_time,
    time_text,
)
from pulsar_on_kafka.console.formatting import short_topic
from pulsar_on_kafka.console.operators import Check
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName

MAX_COUNTED: Final = 10_000
"""A plan counts so many messages or letters; of more it says that there are more."""
MAX_LINES: Final = 20
"""Partitions that a plan lists."""
_MAX_SKIPPED: Final = 1_000_000_000
_AUDITED: Final = {"name": "subscription"}
_HELD: Final = "Consumers still get what waits in their inboxes."


@dataclass(frozen=True, slots=True)
class Plan:
    """The effect that an action would have now. `button` is '' if there is nothing to do."""

    lines: tuple[str, ...]
    button: str = ""


@dataclass(frozen=True, kw_only=True)
class Action(ABC):
    """One action. `fields()` are the fields of the form that requests it, which `action_of` reads."""

    NAME: ClassVar[str]
    topic: str
    """A topic, or one of its partitions."""

    @abstractmethod
    def plan(self, admin: AdminClient, check: Check) -> Plan:
        """Raises the errors of `perform`."""

    @abstractmethod
    def perform(self, admin: AdminClient, check: Check) -> str:
        """Returns the result in words. Raises the exceptions of the AdminClient's method, and AuthorizationError."""

    @property
    @abstractmethod
    def page(self) -> tuple[str, dict[str, object]]:
        """The path and the parameters of the page that shows the result."""

    @property
    def what(self) -> list[tuple[str, str]]:
        """The fields of the audit line."""
        return [(_AUDITED.get(name, name), ",".join(values)) for name, values in self.fields()]

    def fields(self) -> list[tuple[str, list[str]]]:
        """The fields of the form."""
        found = [(each.name, _texts(getattr(self, each.name))) for each in fields(self)]
        return [("action", [self.NAME]), *((name, values) for name, values in found if values)]


@dataclass(frozen=True, kw_only=True)
class SubscriptionAction(Action):
    """An action on a subscription requires the right to consume from it."""

    name: str
    """The subscription."""

    @property
    def page(self) -> tuple[str, dict[str, object]]:
        topic = TopicName.parse(self.topic)
        partition = topic.partition if topic.partition > 0 else None
        return "/subscription", {"topic": str(topic.base), "name": self.name, "partition": partition}

    def check(self, check: Check) -> None:
        topic = TopicName.parse(self.topic)
        words = f"the role may not consume from {topic.base}"
        check(on_topic(Requirement.CONSUME, topic, words, self.name))


@dataclass(frozen=True, kw_only=True)
class SkipMessages(SubscriptionAction):
    """Acknowledges the next entries of each partition."""

    NAME: ClassVar[str] = "skip"
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.count <= _MAX_SKIPPED:
            raise ValueError(f"the number of messages to skip is 1 to {_MAX_SKIPPED:,}, got {self.count:,}")

    def plan(self, admin: AdminClient, check: Check) -> Plan:
        self.check(check)
        found = admin.subscription_cursors(self.topic, self.name, fresh=True)
        skipped = {each.partition: min(self.count, each.backlog) for each in found}
        total = sum(skipped.values())
        lines = [
            f"Partition {each.partition}: {skipped[each.partition]:,} of {counted(each.backlog, 'entry', 'entries')}, "
            f"from offset {each.mark_delete + 1:,}"
            for each in found
            if skipped[each.partition]
        ]
        return Plan(
            (
                f"Acknowledges {counted(total, 'entry', 'entries')} without delivery (a batch is one entry).",
                *_few(lines, "partitions"),
                _HELD,
            ),
            f"Skip {counted(total, 'entry', 'entries')}" if total else "",
        )

    def perform(self, admin: AdminClient, check: Check) -> str:
        self.check(check)
        return f"skipped {counted(admin.skip(self.topic, self.name, self.count), 'entry', 'entries')}"


@dataclass(frozen=True, kw_only=True)
class ClearBacklog(SubscriptionAction):
    """Acknowledges everything up to the log's end."""

    NAME: ClassVar[str] = "clear"

    def plan(self, admin: AdminClient, check: Check) -> Plan:
        self.check(check)
        found, unreadable = _cursors(admin, self.topic, self.name)
        total = sum(each.backlog for each in found)
        lines = [
            f"Partition {each.partition}: {counted(each.backlog, 'entry', 'entries')} up to offset {each.end - 1:,}"
            for each in found
            if each.backlog
        ]
        lines += [f"Partition {each}: the unreadable cursor is set to the log's end" for each in unreadable]
        first = f"Acknowledges all {counted(total, 'unacknowledged entry', 'unacknowledged entries')} without delivery"
        return Plan(
            (f"{first}, and those that arrive before it is done.", *_few(lines, "partitions"), _HELD),
            f"Clear {counted(total, 'entry', 'entries')}" if total or unreadable else "",
        )

    def perform(self, admin: AdminClient, check: Check) -> str:
        self.check(check)
        found, unreadable = _cursors(admin, self.topic, self.name)
        admin.clear_backlog(self.topic, self.name)
        lost = f", and reset {counted(len(unreadable), 'unreadable cursor')}" if unreadable else ""
        return f"cleared a backlog of {counted(sum(each.backlog for each in found), 'entry', 'entries')}{lost}"


@dataclass(frozen=True, kw_only=True)
class ResetCursor(SubscriptionAction):
    """Sets a subscription to a time, or to a message."""

    NAME: ClassVar[str] = "reset"
    to: int | NativeMessageId
    """Unix time in ms, or a message id."""

    @property
    def place(self) -> str:
        return time_text(self.to) if isinstance(self.to, int) else f"message {message_id_text(self.to)}"

    def plan(self, admin: AdminClient, check: Check) -> Plan:
        self.check(check)
        targets = admin.plan_reset(self.topic, self.name, timestamp_ms=self._time, message_id=self._id)
        found, unreadable = _cursors(admin, self.topic, self.name)
        again = skipped = 0
        lines = []
        for each in found:
            if each.partition not in targets:
                continue
            target = max(each.start, min(each.end, targets[each.partition]))
            below, above = each.unacknowledged([each.start, target, each.end])
            acknowledged = each.end - target - above
            again, skipped = again + acknowledged, skipped + below
            lines.append(
                f"Partition {each.partition}: to offset {target:,} (mark-delete is {each.mark_delete:,}): "
                f"{acknowledged:,} again, {below:,} skipped"
            )
        lines += [
            f"Partition {each}: the unreadable cursor is set to offset {targets[each]:,}"
            for each in unreadable
            if each in targets
        ]
        return Plan(
            (
                f"Sets the subscription to {self.place}. Consumers continue there.",
                f"Delivers {counted(again, 'acknowledged entry', 'acknowledged entries')} again.",
                f"Skips {counted(skipped, 'unacknowledged entry', 'unacknowledged entries')}.",
                *_few(lines, "partitions"),
            ),
            f"Reset to {self.place}",
        )

    def perform(self, admin: AdminClient, check: Check) -> str:
        self.check(check)
        admin.reset_cursor(self.topic, self.name, timestamp_ms=self._time, message_id=self._id)
        return f"set to {self.place}"

    @property
    def _time(self) -> int | None:
        return self.to if isinstance(self.to, int) else None

    @property
    def _id(self) -> NativeMessageId | None:
        return None if isinstance(self.to, int) else self.to


@dataclass(frozen=True, kw_only=True)
class CancelMessages(SubscriptionAction):
    """Cancels messages that wait on a subscription: by id, key or properties, or those with a delivery time to come."""

    NAME: ClassVar[str] = "cancel"
    id: tuple[NativeMessageId, ...] = ()
    key: str = ""
    properties: tuple[str, ...] = ()
    delayed: bool = False

    def __post_init__(self) -> None:
        parse_properties(self.properties)
        if not (self.id or self.key or self.properties or self.delayed):
            raise ValueError("name the messages to cancel: an id, a key, a property, or delayed ones")

    def plan(self, admin: AdminClient, check: Check) -> Plan:
        self.check(check)
        found = admin.find_messages(self.topic, subscription=self.name, **self._selection)
        shown: list[str] = []
        total = 0
        for message in found:
            total += 1
            if total > MAX_COUNTED:
                break
            if total <= MAX_LINES:
                key = f", key {message.key}" if message.key else ""
                at = f", to be delivered at {time_text(message.deliver_at_ms)}" if message.deliver_at_ms else ""
                shown.append(f"Message {message_id_text(message.message_id)}{key}{at}")
        number = f"more than {MAX_COUNTED:,} messages" if total > MAX_COUNTED else counted(total, "message")
        return Plan(
            (
                f"Acknowledges {number} on this subscription, so that no consumer gets them any more.",
                *shown,
                *([f"and {number} in all"] if total > len(shown) else []),
                "Messages that a consumer holds stay with it.",
            ),
            f"Cancel {number}" if total else "",
        )

    def perform(self, admin: AdminClient, check: Check) -> str:
        self.check(check)
        done = admin.cancel_messages(self.topic, subscription=self.name, **self._selection)
        return f"cancelled {counted(sum(done.values()), 'message')}"

    @property
    def _selection(self) -> dict[str, Any]:
        return {
            "message_ids": self.id,
            "key": self.key or None,
            "properties": parse_properties(self.properties) or None,
            "delayed": self.delayed,
        }


@dataclass(frozen=True, kw_only=True)
class RedriveLetters(Action):
    """Puts dead letters back to their topics: these, or all that are left. Requires the right to consume from the topic
    of the letters, and to produce to each topic that they go to."""

    NAME: ClassVar[str] = "redrive"
    id: tuple[NativeMessageId, ...] = ()

    @property
    def page(self) -> tuple[str, dict[str, object]]:
        return "/dead-letters", {"topic": self.topic}

    def plan(self, admin: AdminClient, check: Check) -> Plan:
        self._check(check)
        found = admin.plan_redrive(
            self.topic, LetterFilter.of(self.id), count=MAX_COUNTED, check=lambda target: _check_target(check, target)
        )
        number = counted(found.letters, "letter")
        if found.letters == MAX_COUNTED:
            number = f"{number} or more"
        lines = [f"{counted(count, 'letter')} to {short_topic(to)}" for to, count in found.to.items()]
        left = [f"{counted(found.without_origin, 'letter')} without an origin stay"] if found.without_origin else []
        return Plan(
            (f"Puts {number} back, each once.", *_few(lines, "topics"), *left),
            f"Redrive {number}" if found.letters else "",
        )

    def perform(self, admin: AdminClient, check: Check) -> str:
        self._check(check)
        done = admin.redrive_dead_letters(
            self.topic, LetterFilter.of(self.id), check=lambda target: _check_target(check, target)
        )
        return redriven_text(done)

    def _check(self, check: Check) -> None:
        topic = TopicName.parse(self.topic)
        check(on_topic(Requirement.CONSUME, topic, f"the role may not consume from {topic.base}"))


def _check_target(check: Check, target: str) -> None:
    topic = TopicName.parse(target)
    check(on_topic(Requirement.PRODUCE, topic, f"the role may not produce to {topic.base}"))


def redriven_text(done: Redriven) -> str:
    went = ", ".join(f"{counted(number, 'letter')} to {short_topic(to)}" for to, number in done.to.items())
    left = f"; {counted(done.without_origin, 'letter')} without an origin left" if done.without_origin else ""
    return f"put back {went}{left}" if went else f"nothing was put back{left}"


ACTIONS: Final = ("skip", "reset", "clear", "cancel", "redrive")


def action_of(form: Mapping[str, Sequence[str]], now_ms: int) -> Action:
    """The action that a form requests.

    Raises:
        ValueError, MappingError: a field is missing or malformed; the message names it.
    """

    def text(name: str) -> str:
        return next(iter(form.get(name, ())), "").strip()

    kind, topic, name = text("action"), text("topic"), text("name")
    if kind not in ACTIONS:
        raise ValueError(f"expected an action of {', '.join(ACTIONS)}, got {kind!r:.60}")
    parsed = TopicName.parse(topic)
    if partition := text("partition"):
        topic = str(parsed.base.with_partition(_whole("partition", partition)))
    ids = tuple(parse_message_id(each) for each in form.get("id", ()) if each.strip())
    if kind == "redrive":
        return RedriveLetters(topic=topic, id=ids)
    if not name:
        raise ValueError("the form names no subscription")
    if kind == "skip":
        return SkipMessages(topic=topic, name=name, count=_whole("number of messages to skip", text("count")))
    if kind == "clear":
        return ClearBacklog(topic=topic, name=name)
    if kind == "reset":
        return ResetCursor(topic=topic, name=name, to=_place(text("to"), now_ms))
    properties = tuple(each.strip() for each in form.get("properties", ()) if each.strip())
    return CancelMessages(
        topic=topic, name=name, id=ids, key=text("key"), properties=properties, delayed=bool(text("delayed"))
    )


def _place(text: str, now_ms: int) -> int | NativeMessageId:
    """Raises ValueError."""
    if not text:
        raise ValueError("name a time or a message to reset to")
    head, separator, _ = text.partition(":")
    if text in ("earliest", "latest") or (separator and head.isdigit()):
        return parse_message_id(text)
    return parse_time(text, now_ms)


def _whole(what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ValueError(f"the {what} is a whole number, got {text!r:.60}")
    return int(text)


def _texts(value: object) -> list[str]:
    """The form's values of a field."""
    if isinstance(value, bool):
        return ["1"] if value else []
    if isinstance(value, NativeMessageId):
        return [message_id_text(value)]
    if isinstance(value, tuple):
        return [text for each in value for text in _texts(each)]
    return [str(value)] if value != "" else []


def _few(lines: Sequence[str], what: str) -> Iterable[str]:
    more = len(lines) - MAX_LINES
    return (*lines[:MAX_LINES], *([f"and {more:,} {what} more"] if more > 0 else []))


def _cursors(admin: AdminClient, topic: str, name: str) -> tuple[list[PartitionCursor], dict[int, str]]:
    """The cursors of a topic's partitions, which their owners have saved now, and the reasons of unreadable ones."""
    unreadable = admin.unreadable_cursors(topic, name)
    if not unreadable:
        return admin.subscription_cursors(topic, name, fresh=True), {}
    parsed = TopicName.parse(topic)
    if parsed.partition >= 0:
        if parsed.partition not in unreadable:
            return admin.subscription_cursors(topic, name, fresh=True), {}
        return [], {parsed.partition: unreadable[parsed.partition]}
    readable = [each.partition for each in admin.subscription_stats(topic, name).partitions]
    return [
        cursor
        for each in readable
        if each not in unreadable
        for cursor in admin.subscription_cursors(str(parsed.with_partition(each)), name, fresh=True)
    ], unreadable
