"""Instances name the system's state on a Kafka cluster that several share who do not trust one another.

    instance ''     pulsar.system.cursors          pulsar.system.ledgers/maintenance
    instance acme   pulsar.system-x-acme.cursors   pulsar.system-x-acme.ledgers/maintenance

`-x-` is an escape without digits, which no name of a topic, tenant or namespace gives
(mapping/pulsar_on_kafka_mapping/encoding/escaping.py), and a dot ends the prefix: an ACL on it covers this instance
alone. Every other topic has one name in all instances. Decision: mapping/decisions/0025.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka_mapping.errors import InvalidInstanceName, InvalidTopicName
from pulsar_on_kafka_mapping.names.subscription_group import group_id
from pulsar_on_kafka_mapping.names.topic_name import MAX_KAFKA_TOPIC_CHARS, TopicName, kafka_topic
from pulsar_on_kafka_mapping.state.state_topics import SYSTEM_NAMESPACE, StateTopic

MAX_INSTANCE_CHARS: Final = 40
INSTANCE_VARIABLE: Final = "POK_INSTANCE"
"""The environment's variable that names the instance where a program does not."""

_ROOT: Final = SYSTEM_NAMESPACE.replace("/", ".")
_NAME: Final = re.compile(r"[a-z0-9](-?[a-z0-9])*")
_STATE: Final = re.compile(rf"{re.escape(_ROOT)}(-x-{_NAME.pattern})?\.")


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance has names of its own; the one without a name is the default.

    Raises:
        InvalidInstanceName: `name` is neither empty nor 1 to 40 of a-z, 0-9 and single hyphens between them.
    """

    name: str = ""

    def __post_init__(self) -> None:
        if self.name and (len(self.name) > MAX_INSTANCE_CHARS or _NAME.fullmatch(self.name) is None):
            raise InvalidInstanceName(
                f"instance is {self.name!r:.120}, expected 1 to {MAX_INSTANCE_CHARS} of a-z, 0-9 and single hyphens "
                "between them"
            )

    @property
    def prefix(self) -> str:
        """The prefix of Kafka's names of its state topics, and of the groups on them, which no other instance has.

        It ends in a dot.
        """
        return f"{_ROOT}-x-{self.name}." if self.name else f"{_ROOT}."

    def state_topic(self, topic: StateTopic) -> str:
        return self.kafka_topic(topic.topic_name)

    def kafka_topic(self, name: TopicName) -> str:
        """The Kafka topic of `name`: the instance's own in the system's namespace, elsewhere the common one.

        Raises:
            InvalidTopicName: a name in the system's namespace is too long with this instance's prefix.
        """
        shared = kafka_topic(name)
        if not self.name or name.namespace_name != SYSTEM_NAMESPACE:
            return shared
        own = shared.replace(f"{_ROOT}.", self.prefix, 1)
        if len(own) > MAX_KAFKA_TOPIC_CHARS:
            raise InvalidTopicName(
                f"topic {name} in instance {self.name} has {len(own)} characters in Kafka, expected at most "
                f"{MAX_KAFKA_TOPIC_CHARS}"
            )
        return own

    def group(self, topic: StateTopic, work: str) -> str:
        """The consumer group that shares out the work named so by the partitions of a state topic."""
        return group_id(self.state_topic(topic), work)


DEFAULT_INSTANCE: Final = Instance()
"""The one without a name."""


def holds_state(kafka_topic: str) -> bool:
    """Whether a Kafka topic is a system topic of any instance."""
    return _STATE.match(kafka_topic) is not None
