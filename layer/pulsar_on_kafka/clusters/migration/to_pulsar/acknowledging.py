"""Acknowledges messages of one partition in Pulsar that programs have acknowledged here."""

from __future__ import annotations

from typing import Any, Final

from pyroaring import BitMap64

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.clusters.migration.from_pulsar.admin import PulsarAdmin
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import Acknowledged, position_at
from pulsar_on_kafka.clusters.migration.from_pulsar.reading import official_client

_APPLIED_S: Final = 120.0


def acknowledge_in_pulsar(
    client: Any, pulsar: PulsarAdmin, partition: str, subscription: str, places: BitMap64
) -> None:
    """Returns when Pulsar reports the entries at these places as acknowledged. The consumer receives no message.

    Raises:
        ConnectFailed: Pulsar cannot be reached; or the subscription has consumers of another type.
        DeadlineExceeded: Pulsar does not report them.
    """
    official = official_client()
    try:
        consumer = client.subscribe(
            partition, subscription, consumer_type=official.ConsumerType.Shared, receiver_queue_size=0
        )
        try:
            for place in places:
                ledger_id, entry_id = position_at(place)
                consumer.acknowledge(official.MessageId(-1, ledger_id, entry_id, -1))
        finally:
            consumer.close()
    except official.PulsarException as failure:
        raise errors.ConnectFailed(
            f"acknowledging on subscription {subscription} of {partition} in Pulsar: {failure} (end its consumers "
            "there, unless it is Shared)"
        ) from failure
    left = places

    def is_applied() -> bool:
        nonlocal left
        done: Acknowledged | None = pulsar.partition(partition, (subscription,)).cursors.get(subscription)
        left = BitMap64() if done is None else BitMap64([place for place in left if place not in done])
        return not left

    if not wait_until(is_applied, Deadline.after(_APPLIED_S)):
        raise errors.DeadlineExceeded(
            f"subscription {subscription} of {partition} in Pulsar lacks {counted(len(left), 'acknowledgement')}, the "
            f"first of {position_at(left[0])}: run the export again"
        )
