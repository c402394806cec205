"""Draining: consumers take no more messages, and the application settles those that it has received."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.broker.publishing.arguments import check_range, check_type

_log: Final = logging.getLogger(__name__)

MAX_DRAIN_MS: Final = 86_400_000
"""A day."""


class DrainingConsumer(Protocol):
    """The part of a consumer that a drain needs."""

    def begin_draining(self) -> None:
        """Hands the messages in the inbox back, and takes no more; a second call does nothing."""

    def is_drained(self) -> bool:
        """Whether the application has settled everything that it received, and its listener has returned."""


def drain_deadline(drain_timeout_ms: int | None) -> Deadline | None:
    """The end of a drain; None for no drain: with None or 0. Raises as `Consumer.close` about its argument."""
    if drain_timeout_ms is None:
        return None
    check_type(int, "drain_timeout_ms", drain_timeout_ms)
    check_range("drain_timeout_ms", drain_timeout_ms, 0, MAX_DRAIN_MS)
    return Deadline.after_ms(drain_timeout_ms) if drain_timeout_ms else None


def drain(consumers: Sequence[DrainingConsumer], deadline: Deadline) -> None:
    """Returns when all are drained, or at the deadline."""
    for consumer in consumers:
        consumer.begin_draining()
    late = [consumer for consumer in consumers if not wait_until(consumer.is_drained, deadline)]
    if late:
        _log.warning(
            "%d of %d consumers hold messages that the application did not acknowledge in time; "
            "they are delivered to other consumers",
            len(late), len(consumers),
        )  # fmt: skip
