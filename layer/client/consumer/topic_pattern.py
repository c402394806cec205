"""A topic pattern selects the topics of a pattern subscription. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pulsar_on_kafka.client.values.enums import RegexSubscriptionMode
from pulsar_on_kafka.mapping.names.topic_name import TopicName

_DOMAINS = {
    RegexSubscriptionMode.PersistentOnly: (True,),
    RegexSubscriptionMode.NonPersistentOnly: (False,),
    RegexSubscriptionMode.AllTopics: (True, False),
}


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """The pattern matches the names of one namespace's topics with a regular expression."""

    name: TopicName
    """The pattern read as a topic's name; it tells the namespace, which therefore has to be written out."""
    expression: re.Pattern[str]
    """Matches a whole name without its domain: `tenant/namespace/topic`."""
    mode: RegexSubscriptionMode

    @classmethod
    def of(cls, pattern: re.Pattern[str], mode: RegexSubscriptionMode) -> TopicPattern:
        """Source: the official client, which leaves the domain out on both sides: `mode` chooses that.

        Raises:
            InvalidTopicName: the pattern does not read as a topic's name (its namespace is a pattern as well, say).
        """
        _, separator, rest = pattern.pattern.partition("://")
        expression = rest if separator else pattern.pattern
        return cls(TopicName.parse(pattern.pattern), re.compile(expression, pattern.flags), mode)

    @property
    def namespace(self) -> str:
        return self.name.namespace_name

    def matching(self, topics: Iterable[str]) -> list[str]:
        """Those of these full names (without partitions' suffixes) that the pattern takes."""
        return [name for name in topics if self._takes(TopicName.parse(name))]

    def _takes(self, name: TopicName) -> bool:
        if name.is_persistent not in _DOMAINS[self.mode]:
            return False
        return self.expression.fullmatch(f"{name.namespace_name}/{name.local_name}") is not None
