"""Acknowledging messages that were read without being a consumer (by Spark), whoever owns the cursors.

As with every other request to a cursor (`live_cursors`), each takes effect once, and is durable when it is answered: by
the owner, or, where nobody owns the cursor, as a save of our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.cursor.ledger_acks import LedgerAcks, below, pieces
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.mapping.state.cursors.cursor_requests import Acknowledge
from pulsar_on_kafka.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.subscriptions.requests.live_cursors import LiveCursors

MOST_BYTES_PER_REQUEST: Final = 256 * 1024
"""Of bitmaps and ack sets, before base64; a record holds 1 MB."""


def acknowledge_ledgers(
    cursors: LiveCursors,
    admin: KafkaAdmin,
    subscription: Subscription,
    acks: Mapping[int, LedgerAcks],
    deadline: Deadline,
) -> int:
    """Acknowledge these entries and messages of batch entries, by partition; gives how many requests that took.

    What is acknowledged already stays so; what lies beyond a log's end is passed over. Large bitmaps take several
    requests, one after the other. Memory: one more copy of what is acknowledged.

    Raises:
        DeadlineExceeded, StoreError: as `LiveCursors.change`; some of it may be acknowledged.
    """
    topic = subscription.topic
    size = topic.layout.entries_per_ledger
    wanted = {partition: ledgers for partition, ledgers in acks.items() if ledgers and partition in subscription.served}
    if not wanted:
        return 0
    ends = admin.end_offsets(topic.kafka_topic, sorted(wanted), deadline)
    left = {
        partition: pieces(below(ledgers, ends[partition], size), MOST_BYTES_PER_REQUEST)
        for partition, ledgers in wanted.items()
    }
    requests = 0
    while wishes := {partition: Acknowledge(piece) for partition, rest in left.items() if (piece := next(rest, None))}:
        cursors.change(subscription, wishes, deadline)
        requests += len(wishes)
    return requests
