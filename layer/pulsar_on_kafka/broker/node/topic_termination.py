"""Terminates a topic: no producer sends to it any more, and consumers read up to its end. Source: Pulsar's
`ManagedLedger.asyncTerminate`.

A broker of Pulsar closes the ledger, and BookKeeper fences later writers. Kafka closes no partition, so the order of
the log decides, as for exclusive producers:

    claims of producers end -> producers have stopped -> marker of the end -> end in the topic's record

* The claims of the topic's producers end by compare-and-set, so no producer is admitted afterwards. Producers of every
  process notice that within a second, refuse further messages, and report that they stopped. A process that does not
  report it counts as dead when its heartbeat has expired, after 10 s.
* A marker in each partition is its end (`mapping.records.epoch_fences`). Every reader finds records of producers and
  replicators behind that marker void. So a late record of a dead process is delivered by no reader, also not by one
  that read past the end before the end was recorded. What other Kafka clients append behind it is not void.
* The offsets of the markers are the topic's end. The record is written last: it says that the end does not change.

A process that dies in between leaves a topic without producers and without a recorded end. The next call continues:
each step finds its own result. A process that was suspended for more than 10 s may report messages as sent although
they are void: those under way, and those that it sends in its first second. That is so, too, when an exclusive producer
fences it. A replicator from another cluster reads the record before it saves its position, so what is void there stays
uncopied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka.kafka.appends import NewRecord, append_apart
from pulsar_on_kafka_mapping.records.epoch_fences import END_ORIGIN, take_over_marker
from pulsar_on_kafka_mapping.records.transaction_headers import MARKER_KEY
from pulsar_on_kafka_mapping.state.metadata.metadata_records import TopicRecord


def terminate(services: Services, topic: Topic, deadline: Deadline) -> dict[int, int]:
    """Terminates a topic; returns the end of each partition, the offset behind its last message. A second call returns
    the same.

    Raises:
        NoSuchTopic: the topic was deleted after it was opened.
        DeadlineExceeded: some producers have not reported that they stopped. And other LayerErrors: call again.
    """
    if topic.terminated:
        return dict(topic.terminated)
    markers = services.producers.terminate(topic, partial(_append_markers, services, topic, deadline), deadline)

    def ended(record: TopicRecord) -> TopicRecord:
        return record if record.terminated else replace(record, terminated={str(p): at for p, at in markers.items()})

    record = services.topics.records.change(topic, ended, deadline)
    return {int(partition): end for partition, end in record.terminated.items()}


def _append_markers(
    services: Services, topic: Topic, deadline: Deadline, epoch: int, partitions: Sequence[int]
) -> dict[int, int]:
    marker = NewRecord(MARKER_KEY, None, take_over_marker(END_ORIGIN, epoch))
    groups = [(topic.kafka_topic, partition, [marker]) for partition in partitions]
    offsets = append_apart(services.state_producer, groups, deadline)
    return {partition: first for partition, (first,) in zip(partitions, offsets, strict=True)}
