"""The metadata of a trigger name a backlog and its target for each replica. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, NoReturn

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.gateway.handlers.topic_patterns import TopicPattern
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.topic_name import TopicName

MAX_BACKLOG: Final = 10**12
"""The largest target and threshold, in entries."""

_TOPICS: Final = ("topic", "namespace", "topicsPattern")
_OWN: Final = (*_TOPICS, "subscription", "backlogPerReplica", "activationBacklog", "maxByPartitions", "includeDelayed")
_KEDAS: Final = frozenset({"scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsClientCert", "tlsClientKey"})
"""Metadata for KEDA itself, which sends all of it."""
_FROM_ENVIRONMENT: Final = "FromEnv"
"""KEDA replaces the value of a key with this suffix by that of an environment variable, and keeps the key."""
_DEFAULT_PER_REPLICA: Final = 10
"""That of KEDA's scalers for Pulsar and for Kafka."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """A checked trigger. One of `topic`, `namespace` and `pattern` is given.

    Args:
        topic: the full name of a persistent topic, or ''.
        namespace: `tenant/namespace`, or ''.
        pattern_text: the text of `pattern`, or ''.
        per_replica: the entries of backlog that one replica handles.
        activation: the scaler is active above this backlog, in entries.
        max_by_partitions: the reported backlog requests at most one replica for each partition.
        include_delayed: delayed messages that are not yet due count, too.
    """

    subscription: str
    topic: str = ""
    namespace: str = ""
    pattern: TopicPattern | None = None
    pattern_text: str = ""
    per_replica: int = _DEFAULT_PER_REPLICA
    activation: int = 0
    max_by_partitions: bool = False
    include_delayed: bool = True

    @property
    def place(self) -> str:
        """The selected topics in words."""
        if self.topic:
            return f"topic {self.topic}"
        return f"namespace {self.namespace}" if self.namespace else f"pattern {self.pattern_text}"


def parse_trigger(metadata: Mapping[str, str]) -> Trigger:
    """Raises InvalidOption, which names the key, the value and what was expected."""
    given: dict[str, str] = {}
    for written, value in metadata.items():
        key = written.removesuffix(_FROM_ENVIRONMENT)
        if key in _KEDAS:
            continue
        if key not in _OWN:
            _unknown(written)
        if key in given:
            raise InvalidOption(f"metadata has {key} and {key}{_FROM_ENVIRONMENT}, expected one of them")
        given[key] = value.strip()
    places = [key for key in _TOPICS if key in given]
    if len(places) != 1:
        has = " and ".join(places) if places else "none of topic, namespace and topicsPattern"
        raise InvalidOption(f"metadata has {has}, expected one of topic, namespace and topicsPattern")
    if not given.get("subscription"):
        raise InvalidOption(f"metadata subscription is {given.get('subscription', 'missing')!r}, expected a name")
    pattern = _pattern(given["topicsPattern"]) if "topicsPattern" in given else None
    return Trigger(
        given["subscription"],
        _topic(given["topic"]) if "topic" in given else "",
        _namespace(given["namespace"]) if "namespace" in given else "",
        pattern,
        given.get("topicsPattern", ""),
        _number(given, "backlogPerReplica", 1, _DEFAULT_PER_REPLICA),
        _number(given, "activationBacklog", 0, 0),
        _is_true(given, "maxByPartitions", "false"),
        _is_true(given, "includeDelayed", "true"),
    )


def _unknown(key: str) -> NoReturn:
    near = get_close_matches(key, _OWN, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(_OWN)}"
    raise InvalidOption(f"unknown metadata {key!r:.100}; {hint}")


def _refused(key: str, value: str, expected: str) -> InvalidOption:
    return InvalidOption(f"metadata {key} is {value!r:.100}, expected {expected}")


def _topic(text: str) -> str:
    try:
        name = TopicName.parse(text)
    except MappingError as failure:
        raise _refused("topic", text, f"the name of a topic: {failure}") from failure
    if not name.is_persistent:
        raise _refused("topic", text, "a persistent topic: others have no backlog")
    if name.partition >= 0:
        raise _refused("topic", text, f"the whole topic, {name.base}")
    return str(name)


def _namespace(text: str) -> str:
    try:
        name = TopicName.parse(f"{text}/x")
    except MappingError as failure:
        raise _refused("namespace", text, "tenant/namespace") from failure
    if name.namespace_name != text:
        raise _refused("namespace", text, "tenant/namespace")
    return text


def _pattern(text: str) -> TopicPattern:
    try:
        if text.partition("://")[2].count("/") < 2 and text.count("/") < 2:
            raise MappingError("it has fewer than two slashes")
        return TopicPattern(text)
    except MappingError as failure:
        raise _refused("topicsPattern", text, f"a pattern such as public/default/orders-.*: {failure}") from failure


def _number(given: Mapping[str, str], key: str, least: int, default: int) -> int:
    text = given.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_BACKLOG))):
        raise _refused(key, text, f"a whole number from {least} to {MAX_BACKLOG:,}")
    if not least <= int(text) <= MAX_BACKLOG:
        raise _refused(key, text, f"a whole number from {least} to {MAX_BACKLOG:,}")
    return int(text)


def _is_true(given: Mapping[str, str], key: str, default: str) -> bool:
    text = given.get(key, default)
    if text.lower() not in ("true", "false"):
        raise _refused(key, text, "true or false")
    return text.lower() == "true"
