"""`pok produce`: publish texts, or the lines of a file."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.cli.commands.topics import TopicArgument
from pulsar_on_kafka.cli.shared.connection import client_of
from pulsar_on_kafka.cli.shared.output import (
    CommandFailed,
    CommandInterrupted,
    news,
    progress_bar,
    results_scroll_by,
    show_result,
    write_json,
    write_line,
)
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.client.values.texts import message_id_text, parse_properties
from pulsar_on_kafka.exceptions import Interrupted, Result
from pulsar_on_kafka.kafka.settings import MAX_MESSAGE_BYTES
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId

if TYPE_CHECKING:
    from pulsar_on_kafka.client.client import Client
    from pulsar_on_kafka.client.producer.producer import Producer

_MAX_PENDING: Final = 10_000
_EACH_IN_TURN_BELOW: Final = 100.0  # messages a second


def produce(
    settings: Settings,
    topic: TopicArgument,
    messages: Annotated[
        list[str] | None,
        typer.Option("--message", "-m", metavar="TEXT", help="A message. May be repeated.", show_default=False),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="A message a line; - is standard input.", show_default=False),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", help="Partition key of all messages.", show_default=False)
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar="NAME=VALUE", help="A property of all messages. May be repeated."),
    ] = None,
    num_messages: Annotated[int, typer.Option("--num-messages", "-n", min=1, help="How often to send it all.")] = 1,
    rate: Annotated[
        float | None,
        typer.Option("--rate", "-r", help="Messages a second; left out: as fast as it goes.", show_default=False),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print a count instead of ids.")] = False,
) -> None:
    """Publish messages and print their ids (ledger:entry[:partition]), one a line, once they are stored."""
    source = _Source.of(messages or (), file, num_messages)
    if rate is not None and rate <= 0:
        raise typer.BadParameter("expected more than 0 messages a second", param_hint="--rate")
    try:
        given = parse_properties(properties or ())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--property") from error
    with client_of(settings) as client:
        # A slow one waits for each answer, so that ids are printed when they are known.
        each_in_turn = source.interactive or (rate is not None and rate <= _EACH_IN_TURN_BELOW)
        sending = _Sending(settings, client, topic, key, given or None, quiet, each_in_turn)
        with progress_bar("sending", source.total, shown=quiet or not results_scroll_by()) as advance:
            try:
                for payload in _paced(source, rate):
                    advance(sending.send(payload))
                advance(sending.finish())
            except (KeyboardInterrupt, Interrupted):
                sending.finish()
                stored = counted(sending.stored, "message")
                raise CommandInterrupted(f"interrupted; {stored} stored") from None
    if quiet:
        show_result(settings, f"{counted(sending.stored, 'message')} stored", {"stored": sending.stored})


class _Source:
    """Payloads from the command line or from a file, all of it `times` times."""

    def __init__(self, texts: tuple[bytes, ...], file: Path | None, times: int, total: int | None) -> None:
        self._texts = texts
        self._file = file
        self._times = times
        self.total = total
        """The total; None when only the end shows it."""
        self.interactive = not texts and file is None and sys.stdin.isatty()

    @classmethod
    def of(cls, texts: list[str] | tuple[str, ...], file: str | None, times: int) -> _Source:
        if bool(texts) == (file is not None):
            raise typer.BadParameter("name the messages to send: either --message or --file")
        if file is None:
            return cls(tuple(map(os.fsencode, texts)), None, times, len(texts) * times)
        if file == "-":
            if times > 1:
                raise typer.BadParameter("standard input can be sent once only", param_hint="--num-messages")
            return cls((), None, 1, None)
        try:
            with Path(file).open("rb") as lines:
                return cls((), Path(file), times, sum(1 for _ in lines) * times)
        except OSError as error:
            raise CommandFailed(f"{file} cannot be read: {error.strerror}") from error

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(self._times):
            if self._texts:
                yield from self._texts
            elif self._file is None:
                yield from map(_without_end, sys.stdin.buffer)
            else:
                with self._file.open("rb") as lines:
                    yield from map(_without_end, lines)


class _Receipt:
    """The answer to one message; settled by the producer's callback."""

    __slots__ = ("message_id", "result")

    result: Result | None

    def __init__(self) -> None:
        self.result = None
        self.message_id: NativeMessageId | None = None

    def settle(self, result: Result, message_id: NativeMessageId) -> None:
        self.message_id = message_id if result == Result.Ok else None
        self.result = result  # last: it is what the other thread looks at


class _Sending:
    """Messages under way, and those that were stored; prints ids in the order of sending."""

    def __init__(
        self,
        settings: Settings,
        client: Client,
        topic: str,
        key: str | None,
        properties: dict[str, str] | None,
        quiet: bool,
        each_in_turn: bool,
    ) -> None:
        self._settings = settings
        self._producer: Producer = client.create_producer(
            topic, max_pending_messages=_MAX_PENDING, block_if_queue_full=True
        )
        self._key = key
        self._properties = properties
        self._quiet = quiet
        self._each_in_turn = each_in_turn
        self._under_way: deque[_Receipt] = deque()
        self.stored = 0

    def send(self, payload: bytes) -> int:
        """Gives how many messages turned out to be stored meanwhile."""
        if len(payload) > MAX_MESSAGE_BYTES:
            raise CommandFailed(f"message of {len(payload)} bytes is above the limit of {MAX_MESSAGE_BYTES}")
        receipt = _Receipt()
        self._under_way.append(receipt)
        self._producer.send_async(payload, receipt.settle, properties=self._properties, partition_key=self._key)
        return self.finish() if self._each_in_turn else self._print_settled()

    def finish(self) -> int:
        self._producer.flush()
        return self._print_settled()

    def _print_settled(self) -> int:
        before = self.stored
        while self._under_way and self._under_way[0].result is not None:
            receipt = self._under_way.popleft()
            if receipt.message_id is None:
                raise CommandFailed(
                    f"message {self.stored + 1:,} was not stored ({receipt.result}); {self.stored:,} before it were"
                )
            self.stored += 1
            if not self._quiet:
                self._print(receipt.message_id)
        return self.stored - before

    def _print(self, message_id: NativeMessageId) -> None:
        text = message_id_text(message_id)
        if self._settings.json:
            write_json({"message_id": text})
        else:
            write_line(text)


def _paced(source: _Source, rate: float | None) -> Iterator[bytes]:
    """The payloads, `rate` a second."""
    if source.interactive:
        news("a message a line; Ctrl-D ends")
    if rate is None:
        yield from source
        return
    pause = threading.Event()
    start = time.monotonic()
    for index, payload in enumerate(source):
        wait_s = start + index / rate - time.monotonic()
        if wait_s > 0:
            pause.wait(wait_s)
        yield payload


def _without_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")
