"""`pok consume`: print and acknowledge the messages of a subscription."""

from __future__ import annotations

import threading
from typing import Annotated, Any, Final, Literal

import typer

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.lifetimes import told_to_stop
from pulsar_on_kafka.base.words import counted
from pulsar_on_kafka.cli.commands.subscriptions import Initial, SubscriptionOption
from pulsar_on_kafka.cli.commands.topics import TopicArgument
from pulsar_on_kafka.cli.shared.connection import client_of
from pulsar_on_kafka.cli.shared.output import (
    CommandFailed,
    CommandInterrupted,
    news,
    progress_bar,
    results_scroll_by,
    write_json,
    write_line,
)
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.cli.shared.values import message_id_text, payload_fields, payload_text, printable
from pulsar_on_kafka.client.consumer.consumer import Consumer
from pulsar_on_kafka.client.values.enums import ConsumerType, InitialPosition
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.exceptions import Timeout

_LOOK_EVERY_MS: Final = 200  # how long a Ctrl-C may go unnoticed


_TYPES: Final = {
    "exclusive": ConsumerType.Exclusive,
    "shared": ConsumerType.Shared,
    "failover": ConsumerType.Failover,
}
_POSITIONS: Final = {"earliest": InitialPosition.Earliest, "latest": InitialPosition.Latest}


def consume(
    settings: Settings,
    topic: TopicArgument,
    subscription: SubscriptionOption,
    kind: Annotated[
        Literal["exclusive", "shared", "failover"], typer.Option("--type", "-t", help="Type of the subscription.")
    ] = "exclusive",
    count: Annotated[int, typer.Option("--num-messages", "-n", min=0, help="How many to take; 0: for ever.")] = 1,
    initial: Annotated[Initial, typer.Option("--initial", help="Where a new subscription starts.")] = "latest",
    ack: Annotated[bool, typer.Option("--ack/--no-ack", help="Acknowledge what was printed.")] = True,
    timeout_ms: Annotated[
        int | None,
        typer.Option("--timeout-ms", min=1, help="End when no message came for so long.", show_default=False),
    ] = None,
) -> None:
    """Print messages as id, key, properties and payload with tabs between, or as a JSON object each.

    What was printed is acknowledged, also when Ctrl-C ends it. A payload that is no UTF-8 is printed as base64. With
    --timeout-ms, fewer messages than asked for are a failure.
    """
    with told_to_stop(interruptible=True) as stop, client_of(settings) as client:
        consumer = client.subscribe(topic, subscription, _TYPES[kind], initial_position=_POSITIONS[initial])
        bar = progress_bar("receiving", count or None, shown=not results_scroll_by())
        taken = 0
        with bar as advance:
            while not stop.is_set() and (count == 0 or taken < count):
                message = _next(consumer, stop, timeout_ms)
                if message is None:
                    break
                _print(settings, message)
                if ack:
                    consumer.acknowledge(message)
                taken += 1
                advance(1)
    if taken < count and not stop.is_set():
        raise CommandFailed(f"{taken:,} of {counted(count, 'message')} came, then none for {timeout_ms:,} ms")
    done = f"{counted(taken, 'message')} {'acknowledged' if ack else 'printed'}"
    if taken < count:
        raise CommandInterrupted(f"interrupted; {done}")
    if stop.is_set() and not settings.json:
        news(done)


def _next(consumer: Consumer, stop: threading.Event, timeout_ms: int | None) -> Message | None:
    """The next message; None when none came in time or somebody wants an end."""
    deadline = Deadline.never() if timeout_ms is None else Deadline.after_ms(timeout_ms)
    while not stop.is_set():
        try:
            return consumer.receive(min(_LOOK_EVERY_MS, round(deadline.remaining_s() * 1000)))
        except Timeout:
            if deadline.passed():
                return None
    return None


def _print(settings: Settings, message: Message) -> None:
    if settings.json:
        write_json(message_fields(message))
    else:
        write_line(message_line(message))


def message_fields(message: Message) -> dict[str, Any]:
    """A message as a JSON object. `payload` is null for a message without one."""
    payload: dict[str, Any] = {"payload": None} if message.has_null_value() else {**payload_fields(message.data())}
    return {
        "message_id": message_id_text(message.message_id()),
        "topic": message.topic_name(),
        "key": message.partition_key() or None,
        "properties": message.properties(),
        "publish_time_ms": message.publish_timestamp(),
        "event_time_ms": message.event_timestamp() or None,
        "producer": message.producer_name(),
        "redelivery_count": message.redelivery_count(),
        **payload,
    }


def message_line(message: Message) -> str:
    """Id, key, properties and payload with tabs between; `-` for what is not there."""
    properties = ",".join(f"{name}={value}" for name, value in message.properties().items())
    payload = "-" if message.has_null_value() else payload_text(message.data())
    return "\t".join(
        (
            message_id_text(message.message_id()),
            printable(message.partition_key()) or "-",
            printable(properties) or "-",
            payload,
        )
    )
