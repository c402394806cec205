"""A Kafka topic stands for each Pulsar topic, under a name that can be read back.

    persistent://public/default/orders-eu       public.default.orders-eu
    persistent://public/default/my_topic        public.default.my_topic
    persistent://my_co/eu.west/a.b              my-x5f-co.eu-x2e-west.a-x2e-b
    non-persistent://public/default/ticks       non-persistent-x-public.default.ticks
    (anything longer than 249 characters)       <first 213 characters at most>-xh<32 hex digits of SHA-256>-
    (where another topic may still get requests) public.default.orders-x-7

Exactly two dots separate three escaped parts; tenant and namespace have no '_' of their own. So names stay different
even where '.' and '_' count as the same, as Kafka sees them. Decision: mapping/decisions/0001.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from pulsar_on_kafka_mapping.encoding.escaping import Escaper, units, unprintable
from pulsar_on_kafka_mapping.errors import InvalidTopicName

PERSISTENT: Final = "persistent"
NON_PERSISTENT: Final = "non-persistent"
SCALABLE: Final = "topic"
"""The domain of Pulsar 5's V5 clients: here `topic://...` is another name of `persistent://...`."""
MAX_KAFKA_TOPIC_CHARS: Final = 249
"""Kafka's limit. Source: org.apache.kafka.common.internals.Topic."""
MAX_PARTITION: Final = 2**31 - 1

_NON_PERSISTENT_PREFIX: Final = "non-persistent-x-"  # an escape without digits, which no name produces
_HASH_DIGITS: Final = 32
_HASH_CHARS: Final = len("-xh") + _HASH_DIGITS + len("-")
_NAMED_ENTITY: Final = re.compile(r"[-=:.\w]+", re.ASCII)  # Source: Pulsar NamedEntity
_PARTITION: Final = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,9})", re.DOTALL)
_NAMESPACE_ESCAPER: Final = Escaper()
_LOCAL_ESCAPER: Final = Escaper("_")
_CACHED_NAMES: Final = 8192


@dataclass(frozen=True, slots=True)
class TopicName:
    """A name of a topic, or of one of its partitions; `partition` is -1 for the topic itself, otherwise 0 to
    2,147,483,647.

    Tenant and namespace have ASCII letters, digits and `_-=:.`; the local name any characters but '/', control
    characters (U+0000-001F, 007F-009F) and lone surrogates.

    Raises:
        InvalidTopicName: a part has another form, or the local name ends in a partition's suffix itself.
    """

    domain: str
    tenant: str
    namespace: str
    local_name: str
    partition: int = -1
    is_scalable: bool = field(default=False, compare=False, repr=False)
    """The name was written `topic://...`: a topic that is created for it gets the partitions of V5 clients' topics."""

    def __post_init__(self) -> None:
        if self.domain not in (PERSISTENT, NON_PERSISTENT):
            raise InvalidTopicName(f"topic domain is {self.domain!r}, expected 'persistent' or 'non-persistent'")
        for what, part in (("tenant", self.tenant), ("namespace", self.namespace)):
            if _NAMED_ENTITY.fullmatch(part) is None:
                raise InvalidTopicName(f"{what} is {part!r}, expected ASCII letters, digits and _-=:. (at least one)")
        if not self.local_name or "/" in self.local_name:
            raise InvalidTopicName(f"local name of a topic is {self.local_name!r}, expected some characters without /")
        forbidden = unprintable(self.local_name)
        if forbidden is not None:
            raise InvalidTopicName(
                f"local name of a topic is {self.local_name!r}, expected no control character or lone surrogate such "
                f"as U+{ord(forbidden):04X}"
            )
        if _split_partition(self.local_name)[1] >= 0:
            raise InvalidTopicName(f"local name {self.local_name!r} names a partition, expected the topic's own name")
        if not -1 <= self.partition <= MAX_PARTITION:
            raise InvalidTopicName(f"partition is {self.partition}, expected -1 (none) to {MAX_PARTITION}")

    @staticmethod
    def parse(text: str) -> TopicName:
        """Read `orders`, `tenant/ns/orders` or `persistent://tenant/ns/orders` (or `non-persistent://...`).

        `topic://tenant/ns/orders`, as Pulsar 5's V5 clients name it, is the persistent topic of this name.

        A suffix `-partition-N` gives the partition if N is written canonically (no sign, no leading zero) and at most
        2,147,483,647; otherwise it is a part of the local name, as in Pulsar.

        Raises:
            InvalidTopicName: anything else, such as `a/b` or the four parts of Pulsar's V1 names.
        Source: Pulsar TopicName. Differs from Pulsar: a partition of a partition is refused (mapping/decisions/0001).
        """
        return _parse(text)

    @property
    def base(self) -> TopicName:
        return self if self.partition < 0 else replace(self, partition=-1)

    def with_partition(self, partition: int) -> TopicName:
        """One partition of this topic, or the topic itself for -1."""
        return replace(self, partition=partition)

    @property
    def namespace_name(self) -> str:
        """`tenant/namespace`."""
        return f"{self.tenant}/{self.namespace}"

    @property
    def is_persistent(self) -> bool:
        return self.domain == PERSISTENT

    def __str__(self) -> str:
        suffix = "" if self.partition < 0 else f"-partition-{self.partition}"
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.local_name}{suffix}"


@lru_cache(_CACHED_NAMES)
def kafka_topic(name: TopicName) -> str:
    """The Kafka topic of `name`; all partitions of a topic share it. Legal for Kafka, at most 249 characters."""
    escaped = (
        ("" if name.is_persistent else _NON_PERSISTENT_PREFIX)
        + f"{_NAMESPACE_ESCAPER.escape(name.tenant)}.{_NAMESPACE_ESCAPER.escape(name.namespace)}."
        + _LOCAL_ESCAPER.escape(name.local_name)
    )
    return escaped if len(escaped) <= MAX_KAFKA_TOPIC_CHARS else _hashed(escaped, str(name.base))


def other_kafka_topic(taken: str, version: int) -> str:
    """A Kafka topic beside `taken`, which is that of a topic by its name; `version` differs from topic to topic.

    No name maps to it: `-x-` is an escape without digits.
    """
    other = f"{taken}-x-{version}"
    return other if len(other) <= MAX_KAFKA_TOPIC_CHARS else _hashed(taken, other)


@lru_cache(_CACHED_NAMES)
def _parse(text: str) -> TopicName:
    scheme, separator, rest = text.partition("://")
    if not separator:
        parts = text.split("/")
        if len(parts) not in (1, 3):
            raise InvalidTopicName(
                f"topic name is {text!r}, expected 'topic', 'tenant/namespace/topic' or "
                f"'persistent://tenant/namespace/topic'"
            )
        scheme = PERSISTENT
        parts = ["public", "default", *parts][-3:]
    else:
        parts = rest.split("/")
        if len(parts) >= 4:
            raise InvalidTopicName(
                f"topic name is {text!r}, a V1 name with a cluster or a local name with '/'; "
                f"expected '{scheme}://tenant/namespace/topic'"
            )
        if len(parts) != 3:
            raise InvalidTopicName(f"topic name is {text!r}, expected '{scheme}://tenant/namespace/topic'")
    local_name, partition = _split_partition(parts[2])
    try:
        domain = PERSISTENT if scheme == SCALABLE else scheme
        return TopicName(domain, parts[0], parts[1], local_name, partition, is_scalable=scheme == SCALABLE)
    except InvalidTopicName as error:
        raise InvalidTopicName(f"topic name is {text!r}: {error}") from None


def _split_partition(local_name: str) -> tuple[str, int]:
    """Local name and partition; (the whole, -1) when it has no partition's suffix."""
    found = _PARTITION.fullmatch(local_name)
    if found is None or int(found[2]) > MAX_PARTITION:
        return local_name, -1
    return found[1], int(found[2])


def _hashed(escaped: str, full_name: str) -> str:
    kept: list[str] = []
    room = MAX_KAFKA_TOPIC_CHARS - _HASH_CHARS
    # Whole units only: half an escape before '-xh' could look like the form of another name.
    if escaped.startswith(_NON_PERSISTENT_PREFIX):
        kept.append(_NON_PERSISTENT_PREFIX)
        escaped = escaped[len(_NON_PERSISTENT_PREFIX) :]
        room -= len(_NON_PERSISTENT_PREFIX)
    for unit in units(escaped):
        room -= len(unit)
        if room < 0:
            break
        kept.append(unit)
    digest = hashlib.sha256(full_name.encode("utf-8")).hexdigest()[:_HASH_DIGITS]
    return f"{''.join(kept)}-xh{digest}-"
