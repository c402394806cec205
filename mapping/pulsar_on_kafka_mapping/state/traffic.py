"""A gateway counts the traffic of its clients' producers and consumers, and reports it for each of them."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_on_kafka_mapping.state.codecs.json_records import Count, Int64


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of one producer or consumer. Source: Pulsar's `PublisherStats` and `ConsumerStats`.

    `messages` and `bytes` count since `since_ms` (Unix time), at which the client opened it from `address`. The others
    are numbers a second in the last whole interval (60 s), 0 in the first: messages, bytes, and of a consumer
    redelivered messages, and acknowledgements. `blocked`: it holds its maximum of unacknowledged messages. `client` is
    the client's own description of its kind and version.

    The times (Unix ms, 0: never) are those of a consumer's last message, acknowledgement and permits. `partition`: the
    one that the client opened; -1: the whole topic.
    """

    messages: Count
    bytes: Count
    rate: float
    throughput: float
    redelivered: float = 0.0
    acknowledged: float = 0.0
    since_ms: Count = 0
    address: str = ""
    blocked: bool = False
    client: str = ""
    last_delivered_ms: Count = 0
    last_acked_ms: Count = 0
    last_flow_ms: Count = 0
    partition: Int64 = -1
