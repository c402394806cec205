"""The asyncio `Producer`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import Any

from pulsar_on_kafka import exceptions
from pulsar_on_kafka.asyncio.bridge import Bridge, FairSemaphore, as_asyncio, settle
from pulsar_on_kafka.asyncio.transaction import Transaction
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.client.producer.producer import Producer as BlockingProducer
from pulsar_on_kafka.client.values.message_id import MessageId
from pulsar_on_kafka.exceptions import Result


class Producer(OfOneProcess):
    """Publishes to one topic, from one event loop. Source: `pulsar.asyncio.Producer`.

    `room` bounds the messages under way when sends wait for room (`block_if_queue_full`): the task waits, the loop
    continues. Differs from Pulsar: there such a send blocks the whole loop.
    """

    def __init__(self, producer: BlockingProducer, bridge: Bridge, room: FairSemaphore | None) -> None:
        self._producer = producer
        self._bridge = bridge
        self._room = room

    async def send(
        self,
        content: Any,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool | None = None,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        *,
        txn: Transaction | None = None,
    ) -> MessageId:
        """Sends one message and waits until it is stored. Tasks that send concurrently share batches. A send that is
        cancelled while it waits may be stored or not.

        In a transaction (`txn`) the message has a record of its own, and is invisible before the commit.

        Raises:
            PulsarException: `error()` returns the reason.
        """
        completions = self._bridge.completions()
        stored: asyncio.Future[Any] = completions.loop.create_future()
        complete = partial(settle, stored)
        begun: Future[None] | None = None if txn is None else txn._begins(Future())
        if self._room is not None:
            try:
                await self._room.take()
            except asyncio.CancelledError:
                if begun is not None:
                    begun.set_result(None)
                raise
            complete = partial(self._settle_and_make_room, stored)
        send = partial(
            self._producer.send_async,
            content, partial(completions.put, complete), properties, partition_key, ordering_key, sequence_id,
            replication_clusters, bool(disable_replication), event_timestamp, deliver_at, deliver_after,
        )  # fmt: skip
        if txn is not None and begun is not None:  # the first message to a partition waits for the coordinator
            refuse = partial(completions.put, partial(self._refuse, stored))
            self._bridge.start_in_order(partial(_send_or, refuse, partial(send, txn=txn._transaction), begun))
            return MessageId.wrap(await stored)
        try:
            send()
        except BaseException as refused:  # nothing was sent, whatever it is: its room is free again
            if self._room is not None:
                self._room.give_back()
            if isinstance(refused, exceptions.PulsarException):
                raise as_asyncio(refused) from refused
            raise
        return MessageId.wrap(await stored)

    def _settle_and_make_room(self, stored: asyncio.Future[Any], result: Result, value: Any) -> None:
        assert self._room is not None  # noqa: S101 - only then it is used
        self._room.give_back()
        settle(stored, result, value)

    def _refuse(self, stored: asyncio.Future[Any], _result: Result, refused: Exception) -> None:
        if self._room is not None:
            self._room.give_back()
        if not stored.done():
            stored.set_exception(as_asyncio(refused) if isinstance(refused, exceptions.PulsarException) else refused)

    async def flush(self) -> None:
        """Return when everything sent before this call was answered.

        Raises:
            PulsarException: AlreadyClosed.
        """
        await self._bridge.call(self._producer.flush)

    async def close(self) -> None:
        """Wait for what is under way, then refuse further calls.

        Raises:
            PulsarException: AlreadyClosed.
        """
        await self._bridge.call(self._producer.close)

    def topic(self) -> str:
        """The topic's full name."""
        return self._producer.topic()

    def producer_name(self) -> str:
        """The name, given or made up."""
        return self._producer.producer_name()

    def last_sequence_id(self) -> int:
        """Sequence id of the message that was stored last; -1 (or the initial one) before the first."""
        return self._producer.last_sequence_id()

    def is_connected(self) -> bool:
        """Whether it is open and can send."""
        return self._producer.is_connected()


def _send_or(refuse: Callable[[Result, Any], None], send: Callable[[], None], begun: Future[None]) -> None:
    """Sends, in some thread, and passes a refusal to the loop."""
    try:
        send()
    except Exception as refused:  # passed to the loop
        refuse(Result.UnknownError, refused)
    finally:
        begun.set_result(None)
