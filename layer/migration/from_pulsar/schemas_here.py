"""The schemas of one topic of Pulsar and here: which version there is which one here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.migration.from_pulsar.schemas import separates_keys
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.registry.model import SchemaPolicies
from pulsar_on_kafka.schema_compat import CompatibilityStrategy, SchemaInfo

_log: Final = logging.getLogger(__name__)
_ASK_S: Final = 60.0
_WHATEVER_IT_IS: Final = SchemaPolicies(CompatibilityStrategy.ALWAYS_COMPATIBLE)
"""It was judged where it was registered."""


class SchemasHere:
    """For one thread. Memory: a header for each version of the topic."""

    def __init__(self, node: Node, topic: TopicName, ask: Callable[[], Mapping[int, SchemaInfo]]) -> None:
        """`ask`: what Pulsar has of the topic, by version in order."""
        self._node = node
        self._topic = topic.base
        self._ask = ask
        self._known: dict[int, tuple[bytes | None, bool]] = {-1: (None, False)}

    def register(self, versions: Mapping[int, SchemaInfo]) -> None:
        """Have all of them here, in order; those that are here stay. Raises LayerError."""
        for number, info in versions.items():
            if number not in self._known:
                deadline = Deadline.after(_ASK_S)
                version = self._node.schemas.for_producer(self._topic, info, deadline, _WHATEVER_IT_IS)
                self._known[number] = (None if version is None else version.header(), separates_keys(info))

    def of(self, number: int) -> tuple[bytes | None, bool]:
        """The header that names the schema here, and whether it has keys in base64. A version that Pulsar does not tell
        of (it was deleted) is named by no header: its messages are bytes. Raises LayerError."""
        known = self._known.get(number)
        if known is None:
            self.register(self._ask())
            if number not in self._known:
                _log.warning("topic=%s Pulsar's schema version %d is gone; its messages name none", self._topic, number)
            known = self._known.setdefault(number, (None, False))
        return known
