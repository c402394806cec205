"""`pok consume`: print and acknowledge the messages of a subscription."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.garbage_collection import tune_collector
from pulsar_on_kafka.base.shutdown import stop_on_signals
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.cli.commands.subscriptions import Initial, SubscriptionOption
from pulsar_on_kafka.cli.commands.topics import TopicArgument
from pulsar_on_kafka.cli.shared.connection import client_of
from pulsar_on_kafka.cli.shared.messages import print_message
from pulsar_on_kafka.cli.shared.output import (
    CommandFailed,
    CommandInterrupted,
    news,
    progress_bar,
    results_scroll_by,
)
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.client.values.enums import ConsumerCryptoFailureAction, ConsumerType, InitialPosition
from pulsar_on_kafka.exceptions import Timeout

if TYPE_CHECKING:
    from pulsar_on_kafka.client.consumer.consumer import Consumer
    from pulsar_on_kafka.client.values.message import Message

_LOOK_EVERY_MS: Final = 200  # how long a Ctrl-C may go unnoticed


_TYPES: Final = {
    "exclusive": ConsumerType.Exclusive,
    "shared": ConsumerType.Shared,
    "failover": ConsumerType.Failover,
    "key_shared": ConsumerType.KeyShared,
}
_POSITIONS: Final = {"earliest": InitialPosition.Earliest, "latest": InitialPosition.Latest}


def consume(
    settings: Settings,
    topic: TopicArgument,
    subscription: SubscriptionOption,
    kind: Annotated[
        Literal["exclusive", "shared", "failover", "key_shared"],
        typer.Option("--type", "-t", help="Type of the subscription."),
    ] = "exclusive",
    count: Annotated[int, typer.Option("--num-messages", "-n", min=0, help="How many to take; 0: for ever.")] = 1,
    initial: Annotated[Initial, typer.Option("--initial", help="Where a new subscription starts.")] = "latest",
    ack: Annotated[bool, typer.Option("--ack/--no-ack", help="Acknowledge what was printed.")] = True,
    timeout_ms: Annotated[
        int | None,
        typer.Option("--timeout-ms", min=1, help="End when no message came for so long.", show_default=False),
    ] = None,
) -> None:
    """Print messages as id, key, properties and value with tabs between, or as a JSON object each.

    What was printed is acknowledged, also when Ctrl-C ends it. Values are read by the schema that each message was
    written with; a payload without one that is no UTF-8 is printed as base64, and encrypted payloads are marked. With
    --timeout-ms, fewer messages than requested are a failure.
    """
    from pulsar_on_kafka.admin.stored.shown_messages import shown
    from pulsar_on_kafka.schema.generic import AutoConsumeSchema

    with stop_on_signals(interruptible=True) as stop, client_of(settings) as client:
        consumer = client.subscribe(
            topic,
            subscription,
            _TYPES[kind],
            schema=AutoConsumeSchema(),
            initial_position=_POSITIONS[initial],
            crypto_failure_action=ConsumerCryptoFailureAction.CONSUME,
        )
        bar = progress_bar("receiving", count or None, shown=not results_scroll_by())
        taken = 0
        tune_collector()
        with bar as advance:
            while not stop.is_set() and (count == 0 or taken < count):
                message = _next(consumer, stop, timeout_ms)
                if message is None:
                    break
                print_message(settings, shown(message))
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
    """The next message; None at the time-out or when the program is to end."""
    deadline = Deadline.never() if timeout_ms is None else Deadline.after_ms(timeout_ms)
    while not stop.is_set():
        try:
            return consumer.receive(min(_LOOK_EVERY_MS, round(deadline.remaining_s() * 1000)))
        except Timeout:
            if deadline.passed():
                return None
    return None
