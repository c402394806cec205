"""The options of a write are checked before anything is touched. Pure.

As for reads: upper and lower case, dots and underscores do not count (`keyColumn`, `key_column`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo
from pulsar_on_kafka_spark.base.errors import InvalidWriteOption
from pulsar_on_kafka_spark.options.read_options import flag, instance_name, nearest, plain_name, whole_number

OF_TOPIC: Final = "topic"
BYTES: Final = "bytes"
DERIVED: Final = ("avro", "json")
"""The value's schema: the topic's latest one, none at all, or one made of the columns."""

DEFAULT_TIMEOUT_MS: Final = 3_600_000
MAX_TIMEOUT_MS: Final = 86_400_000
"""The limit of coordinators."""

META_COLUMNS: Final[Mapping[str, str]] = {
    "key_column": "__key",
    "ordering_key_column": "__orderingKey",
    "event_time_column": "__eventTime",
    "properties_column": "__messageProperties",
}
"""Columns as reads give them: taken where no other one is named."""

_OURS: Final = frozenset(
    {"bootstrap.servers", "acks", "enable.idempotence", "transactional.id", "key.serializer", "value.serializer"}
)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a checked write.

    Attributes:
        schema: a schema of the SDK, a SchemaInfo, or one of the names above.
        key_column, ...: names of columns; None where none was given.
        producer_name: the producer name in the messages; None: without one.
        transaction: all messages become visible together, or none.
        transaction_timeout_ms: the job must end within it.
        transaction_attempts: the limit of runs of the job, until each task of one run was run once.
        query_name, batch_id: identify a micro-batch that is written once, despite repetitions.
        kafka: options of the Kafka producer on executors (Java's names, without `kafka.`); may hold passwords.
        driver: options of the Kafka client on the driver (librdkafka's names); may hold passwords.
        instance: the owner of the state; None: the environment's POK_INSTANCE.
    """

    service_url: str
    topic: str
    schema: Schema | SchemaInfo | str = OF_TOPIC
    key_column: str | None = None
    ordering_key_column: str | None = None
    event_time_column: str | None = None
    deliver_at_column: str | None = None
    properties_column: str | None = None
    sequence_id_column: str | None = None
    producer_name: str | None = None
    transaction: bool = False
    transaction_timeout_ms: int = DEFAULT_TIMEOUT_MS
    transaction_attempts: int = 3
    query_name: str | None = None
    batch_id: int | None = None
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    driver: Mapping[str, str] = field(default_factory=dict, repr=False)
    instance: str | None = None


_NOT_IN_CAMEL_CASE: Final = {"service_url": "service.url", "transaction_timeout_ms": "transactionTimeout"}
_SPELT: Final = {
    plain_name(spelt): (attribute, spelt)
    for attribute, spelt in (
        (each.name, _NOT_IN_CAMEL_CASE.get(each.name) or re.sub("_(.)", lambda found: found[1].upper(), each.name))
        for each in fields(WriteOptions)
        if each.name not in ("kafka", "driver")
    )
}
"""By normalized name: the field, and the spelling of the option."""
WRITE_NAMES: Final = {plain: spelt for plain, (_, spelt) in _SPELT.items()}
_NUMBERS: Final = {
    "transaction_timeout_ms": (1_000, MAX_TIMEOUT_MS),
    "transaction_attempts": (1, 100),
    "batch_id": (0, 2**63 - 1),
}


def parse_write_options(given: Mapping[str, Any]) -> WriteOptions:
    """The write of these options. None stands for "not given".

    Raises:
        InvalidWriteOption: names the option and the expectation.
    """
    found: dict[str, Any] = {"kafka": {}, "driver": {}}
    for name, value in given.items():
        if value is None:
            continue
        prefix, dot, rest = name.partition(".")
        if dot and prefix in ("kafka", "driver"):
            found[prefix][rest] = str(value)
            continue
        attribute, spelt = _known(name)
        if attribute in found:
            raise InvalidWriteOption(f"option {spelt} is given twice")
        found[attribute] = _checked(attribute, spelt, value)
    for needed, spelt, such_as in (
        ("service_url", "service.url", "kafka://localhost:9092"),
        ("topic", "topic", "orders"),
    ):
        if needed not in found:
            raise InvalidWriteOption(f"no {spelt} is given, expected one such as {such_as}")
    if found["service_url"].startswith("pok+"):
        raise InvalidWriteOption(
            f"service.url is {found['service_url']!r:.200}, a map of tenants: a write cannot follow a switch, expected "
            "the cluster, kafka://host:port"
        )
    reserved = sorted(_OURS & set(found["kafka"]))
    if reserved:
        raise InvalidWriteOption(f"kafka.{reserved[0]} is not the user's to set: the guarantees rest on it")
    return _consistent(WriteOptions(**found))


def _known(name: str) -> tuple[str, str]:
    plain = plain_name(name)
    if plain in _SPELT:
        return _SPELT[plain]
    raise InvalidWriteOption(f"option {name} is unknown, {nearest(plain, WRITE_NAMES)}")


def _checked(attribute: str, spelt: str, value: Any) -> Any:
    if attribute == "schema":
        return _checked_schema(value)
    if attribute == "transaction":
        return flag(spelt, value, InvalidWriteOption)
    if attribute == "instance":
        return instance_name(value, InvalidWriteOption)
    if attribute in _NUMBERS:
        return whole_number(spelt, value, *_NUMBERS[attribute], InvalidWriteOption)
    if not isinstance(value, str) or not value:
        raise InvalidWriteOption(f"{spelt} is {value!r:.80}, expected a name")
    return value


def _checked_schema(value: object) -> Any:
    if isinstance(value, Schema | SchemaInfo):
        return value
    if isinstance(value, str) and value.lower() in (OF_TOPIC, BYTES, *DERIVED):
        return value.lower()
    raise InvalidWriteOption(
        f"schema is {value!r:.80}, expected a schema of the SDK, a SchemaInfo, or one of {OF_TOPIC}, {BYTES}, "
        f"{', '.join(DERIVED)}"
    )


def _consistent(options: WriteOptions) -> WriteOptions:
    if (options.query_name is None) != (options.batch_id is None):
        raise InvalidWriteOption("queryName and batchId go together: they name a micro-batch")
    if options.query_name is not None:
        if not options.transaction:
            raise InvalidWriteOption("queryName and batchId require transaction=true: only so is a batch written once")
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,80}", options.query_name):
            raise InvalidWriteOption(f"queryName is {options.query_name!r:.90}, expected 1 to 80 of A-Z a-z 0-9 _ -")
    if options.sequence_id_column is not None and options.producer_name is None:
        raise InvalidWriteOption("sequenceIdColumn requires producerName: sequence ids are a producer's")
    return options
