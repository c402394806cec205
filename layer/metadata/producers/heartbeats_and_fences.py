"""Heartbeats of sessions and fences of epochs: what `producers` holds besides the claims. Pure."""

from __future__ import annotations

from pulsar_on_kafka.mapping.state.metadata.producer_records import (
    ProducerHeartbeat,
    decode_bounds,
    decode_fence,
    decode_producer_heartbeat,
    decode_replicator_fence,
)
from pulsar_on_kafka.mapping.state.state_keys import (
    ProducerBoundsKey,
    ProducerKey,
    ProducerSessionKey,
    ReplicatorFenceKey,
    decode_key,
)
from pulsar_on_kafka.metadata.producers.known_fences import Epoch, KnownFences
from pulsar_on_kafka.metadata.producers.known_replicators import KnownReplicators
from pulsar_on_kafka.statelog.api import LogRecord


class HeartbeatsAndFences:
    """Fold of one partition of `producers`: the sessions' heartbeats, and where epochs of exclusive producers and of
    replicators begin."""

    def __init__(self) -> None:
        self.heartbeats: dict[tuple[str, str], ProducerHeartbeat] = {}
        self.fences: dict[str, KnownFences] = {}
        self.replicators: dict[str, KnownReplicators] = {}

    def apply(self, record: LogRecord) -> None:
        key = decode_key(record.key)
        if isinstance(key, ProducerSessionKey):
            if record.value is None:
                self.heartbeats.pop((key.topic, key.session), None)
            else:
                self.heartbeats[key.topic, key.session] = decode_producer_heartbeat(record.value)
        elif isinstance(key, ProducerKey):
            fence = None if record.value is None else decode_fence(record.value)
            epoch = Epoch(key.producer_name, key.epoch)
            self.fences.setdefault(key.topic, KnownFences()).put_fence(key.partition, epoch, fence)
        elif isinstance(key, ProducerBoundsKey):
            bounds = None if record.value is None else decode_bounds(record.value)
            epoch = Epoch(key.producer_name, key.epoch)
            self.fences.setdefault(key.topic, KnownFences()).put_bounds(epoch, bounds)
        elif isinstance(key, ReplicatorFenceKey):
            found = None if record.value is None else decode_replicator_fence(record.value)
            self.replicators.setdefault(key.topic, KnownReplicators()).put(key, found)
