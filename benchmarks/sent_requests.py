"""Requests to Kafka, counted by what librdkafka's handles of this process log."""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import Final

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.kafka.settings import LIBRDKAFKA_LOG

COUNTED: Final = {"debug": "protocol"}
"""librdkafka's option with which requests are logged, for every handle whose requests are to be counted."""
_SENT: Final = re.compile(r"Sent (\w+)Request")


class SentRequests(logging.Handler):
    """Counts what librdkafka's handles of this process send, by its own log."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._sent: Counter[str] = Counter()
        self.kinds: dict[str, int] = {}
        """Of those that were taken last."""
        LIBRDKAFKA_LOG.setLevel(logging.DEBUG)
        LIBRDKAFKA_LOG.propagate = False
        LIBRDKAFKA_LOG.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        found = _SENT.search(record.getMessage())
        if found is not None:
            self._sent[found[1]] += 1

    def taken(self, admin: AdminClient) -> int:
        """How many since the last time."""
        admin.node.admin._handle.poll(0.1)  # nobody else asks for its log
        total = self._sent.total()
        self.kinds = dict(self._sent)
        self._sent.clear()
        return total
