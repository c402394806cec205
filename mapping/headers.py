"""Names and small values of the headers that this project puts on a Kafka record.

    __pulsar.producer         <sequence id>:<epoch>:<producer name>
    __pulsar.schema_version   8 bytes, big endian
    __pulsar.event_time       Unix time in ms, decimal
    __pulsar.deliver_at       Unix time in ms, decimal
    __pulsar.publish_time     Unix time in ms, decimal: when a replicated record was first published
    __pulsar.ordering_key     null: the Kafka key is the ordering key and there is no partition key;
                              else the ordering key, and the Kafka key is the partition key
    __pulsar.txn              <most significant bits>:<least significant bits>, decimal
    __pulsar.chunk            <chunk id>:<number of chunks>:<total bytes>:<uuid>
    __pulsar.replicated_from  name of the cluster, UTF-8
    __pulsar.original_id      MessageIdData of the original (see message_id)
    __pulsar.replicate_to     names of clusters between ','; in a name ',' is %2C and '%' is %25; empty: to none
    __pulsar.marker           a MarkerType; the record is no message
    __pulsar.batch            <format version>:<number of messages>; the value is a batch entry
    __pulsar.p.<name>         the user property <name>, when <name> itself begins with __pulsar.

Every other header is a user property of that name. Decision: mapping/decisions/0003.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from mapping.errors import MappingError

PREFIX: Final = "__pulsar."
PRODUCER: Final = "__pulsar.producer"
SCHEMA_VERSION: Final = "__pulsar.schema_version"
EVENT_TIME: Final = "__pulsar.event_time"
DELIVER_AT: Final = "__pulsar.deliver_at"
PUBLISH_TIME: Final = "__pulsar.publish_time"
ORDERING_KEY: Final = "__pulsar.ordering_key"
TXN: Final = "__pulsar.txn"
CHUNK: Final = "__pulsar.chunk"
REPLICATED_FROM: Final = "__pulsar.replicated_from"
ORIGINAL_ID: Final = "__pulsar.original_id"
REPLICATE_TO: Final = "__pulsar.replicate_to"
MARKER: Final = "__pulsar.marker"
BATCH: Final = "__pulsar.batch"
PROPERTY_ESCAPE: Final = "__pulsar.p."


class MarkerType(str, Enum):
    """What a record without payload says. Source: Pulsar's MarkerType."""

    TXN_COMMIT = "txn_commit"
    TXN_ABORT = "txn_abort"
    SNAPSHOT_REQUEST = "snapshot_request"
    SNAPSHOT_RESPONSE = "snapshot_response"
    SNAPSHOT = "snapshot"


def producer_suffix(epoch: int, name: str) -> bytes:
    """What all PRODUCER values of a producer have in common: `b"%d" % sequence_id + suffix` is the whole.

    Raises:
        MappingError: the epoch is negative, or the name has lone surrogates.
    """
    if epoch < 0:
        raise MappingError(f"epoch of producer {name!r} is {epoch}, expected 0 or more")
    try:
        return b":%d:%b" % (epoch, name.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise MappingError(f"producer name is {name!r}, expected text without lone surrogates") from error
