"""The asyncio `Reader`."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Final, Generic

from pulsar_on_kafka import exceptions
from pulsar_on_kafka.asyncio.bridge import Bridge, asyncio_errors
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.client.reader.reader import Reader as BlockingReader
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.client.values.message_id import MessageId
from pulsar_on_kafka.schema.value_type import V
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId

_LOOK_MS: Final = 500
_MESSAGES_A_TURN: Final = 16


class Reader(OfOneProcess, Generic[V]):
    """Reads from one event loop. Source: `pulsar.asyncio.Reader`.

    A read that has to wait takes one of the client's threads, for half a second at a time.
    """

    def __init__(self, reader: BlockingReader, bridge: Bridge) -> None:
        self._reader = reader
        self._bridge = bridge
        self._turn = asyncio.Lock()
        """Reads get their messages in the order of their calls."""
        self._under_way: Future[Message | exceptions.PulsarException | None] | None = None
        """A look for the next message. It stays when its read is cancelled: what it finds is the next read's."""
        self._at_once = 0

    async def read_next(self) -> Message[V]:
        """The next message. A cancelled read takes none.

        Raises:
            PulsarException: AlreadyClosed, also for a read that waits while the reader is closed.
        """
        async with self._turn:
            self._at_once += 1
            if self._at_once % _MESSAGES_A_TURN == 0:
                await asyncio.sleep(0)  # with messages waiting this would otherwise never let another task run
            while True:
                found = await self._next()
                if isinstance(found, Message):
                    return found
                if found is not None:
                    with asyncio_errors():
                        raise found

    async def _next(self) -> Message | exceptions.PulsarException | None:
        if self._under_way is None:
            at_hand = self._look(0)
            if at_hand is not None:
                return at_hand
            self._under_way = self._bridge.start(lambda: self._look(_LOOK_MS))
        found = await asyncio.shield(asyncio.wrap_future(self._under_way))
        self._under_way = None
        return found

    def _look(self, timeout_ms: int) -> Message | exceptions.PulsarException | None:
        """A message, or why there is none; None when none came in time."""
        try:
            return self._reader.read_next(timeout_ms)
        except exceptions.Timeout:
            return None
        except exceptions.PulsarException as error:
            return error

    async def has_message_available(self) -> bool:
        """Whether `read_next` has a message without waiting for one to be sent."""
        left = self._under_way
        if left is not None and left.done() and isinstance(left.result(), Message):
            return True
        return await self._bridge.call(self._reader.has_message_available)

    async def seek(self, messageid: MessageId | NativeMessageId | int) -> None:
        """Go on behind a message id, or with the first message published at or after a time (Unix ms).

        Raises:
            ValueError: neither an id nor an int.
            PulsarException: as the blocking reader's `seek`.
        """
        if not self._turn.locked() and self._under_way is not None:
            async with self._turn:  # what a cancelled read left is from before the seek
                await self._next()
        await self._bridge.call(lambda: self._reader.seek(messageid))

    async def close(self) -> None:
        """Stop reading.

        Raises:
            PulsarException: AlreadyClosed, as the blocking reader.
        """
        await self._bridge.call(self._reader.close)

    def topic(self) -> str:
        """The topic's full name."""
        return self._reader.topic()

    def is_connected(self) -> bool:
        """Whether it is open."""
        return self._reader.is_connected()
