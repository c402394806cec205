"""`TableView`: the newest value of every key of a topic."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Generic

from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.broker.publishing.arguments import of_type
from pulsar_on_kafka.client.reader.reader import Reader
from pulsar_on_kafka.client.receiving.incoming_schema import KeptMessage
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.exceptions import ConsumerNotInitialized
from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka.schema.value_type import V

_log = logging.getLogger(__name__)

TableCallback = Callable[[str, V], None]


class TableView(OfOneProcess, Generic[V]):
    """A dictionary that follows a topic: key to the payload of its newest message. Thread-safe.

    Complete up to the moment at which it was made; later messages arrive on the client's listener thread. A message
    with an empty payload, or none, removes its key; messages without a key are left out. After `close` it keeps what it
    has. Memory: every key and its newest payload; with a schema the record's key and its schema version, too. Source:
    `pulsar.TableView`.
    """

    def __init__(self, table_view: Reader[V], topic: str, subscription: str | None, schema: Schema[V]) -> None:
        """`table_view` is a reader at the topic's beginning, which is the view's from now on.

        Raises:
            Timeout: the end of the topic was not read in time.
        """
        self._reader = table_view
        self._topic = topic
        self._subscription = subscription
        self._schema = schema
        self._values = table_view.values
        self._payloads: dict[str, bytes | KeptMessage] = {}
        self._listeners: list[TableCallback] = []
        self._changing = threading.RLock()
        """Held while a message takes effect, so that a listener's first look and its later messages fit together."""
        self._closed = False
        while table_view.has_message_available():
            self._update(table_view, table_view.read_next())
        table_view.listen(self._update)

    def _update(self, _reader: Reader, message: Message) -> None:
        key, payload = message.partition_key(), message.data()
        if not key:
            return
        kept = payload if self._values is None else KeptMessage(message.written_with(), message.record_key(), payload)
        with self._changing:
            if payload:
                self._payloads[key] = kept
            else:
                self._payloads.pop(key, None)
            listeners = tuple(self._listeners)
        for listener in listeners:
            try:
                removed = self._schema.decode(payload) if not payload and self._values is None else None
                listener(key, self._value(kept) if payload else removed)
            except Exception:  # the other listeners get it all the same
                _log.exception("table_view=%s a listener failed", self._topic)

    def get(self, key: str) -> V | None:
        """The value of a key; None when there is none.

        Raises:
            TypeError: `key` is no str.
        """
        kept = self._payloads.get(of_type(str, "key", key))
        return None if kept is None else self._value(kept)

    def for_each(self, callback: TableCallback[V]) -> None:
        """Call `callback(key, value)` for every key there is now. What it raises ends this."""
        for key, kept in list(self._payloads.items()):
            callback(key, self._value(kept))

    def for_each_and_listen(self, callback: TableCallback[V]) -> None:
        """`for_each`, and have `callback` called for every change from then on: none is missed, none comes twice.

        Later calls come from the client's listener thread; a removed key comes with the value of an empty payload, as
        officially, where bytes or text are the values, and else with None. What they raise is logged.
        """
        with self._changing:
            self.for_each(callback)
            self._listeners.append(callback)

    def close(self) -> None:
        """Follow the topic no more.

        Raises:
            ConsumerNotInitialized: it was closed before (as the official client does).
        """
        if self._closed:
            raise ConsumerNotInitialized(f"{self} is closed already")
        self._closed = True
        self._reader.leave()

    def _value(self, kept: bytes | KeptMessage) -> Any:
        if self._values is None:
            return self._schema.decode(kept)  # type: ignore[arg-type]  # without `values` payloads are kept
        return self._values.value(kept)

    def __len__(self) -> int:
        return len(self._payloads)

    def __str__(self) -> str:
        if self._subscription is None:
            return f"TableView(topic={self._topic})"
        return f"TableView(topic={self._topic}, subscription={self._subscription})"

    __repr__ = __str__
