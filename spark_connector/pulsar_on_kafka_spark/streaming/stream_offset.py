"""Spark writes into its checkpoint's offset log where a stream stands. Pure.

{"v":1,"again":2,"of":5,"topics":{"persistent://public/default/orders":{"life":["<topic id>",17,42],"ends":{"0":120}}}}

With a map of tenants it has the name of the cluster, too: {"v":1, ... "cluster":"west"}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.state.codecs.json_records import json_record
from pulsar_on_kafka_spark.base.errors import NotReadable


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """A stream stands here in one topic: everything below `ends` (by partition) was planned once.

    `life` is the Kafka topic id and the incarnations of topic and subscription (0: none), so that the offsets of a
    topic that was deleted are never taken for those of one that was made again under its name.
    """

    life: tuple[str, int, int]
    ends: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A stream stands here. `again` counts the batches that had messages from below the former end: refused ones, or
    such behind a seek; `of` is how many entries of those the last of these batches may have. `cluster`: the cluster's
    name in the map of tenants, '' without a map."""

    topics: Mapping[str, TopicPlace]
    again: int = 0
    of: int = 0
    cluster: str = ""

    def is_of(self, cluster: str) -> bool:
        """False: the tenant has moved to this cluster since, and the offsets are those of another one."""
        return not self.cluster or not cluster or self.cluster == cluster

    def ends(self, topic: str) -> Mapping[int, int]:
        place = self.topics.get(topic)
        return {} if place is None else place.ends

    def moved(self, ends: Mapping[str, Mapping[int, int]], lives: Mapping[str, tuple[str, int, int]]) -> StreamOffset:
        """The same with these ends."""
        return replace(self, topics={name: TopicPlace(lives[name], ends[name]) for name in ends})

    def json(self) -> str:
        topics = {
            name: {"life": list(place.life), "ends": {str(p): end for p, end in sorted(place.ends.items())}}
            for name, place in sorted(self.topics.items())
        }
        made = {"v": 1, "again": self.again, "of": self.of, "topics": topics}
        return json.dumps(made | ({"cluster": self.cluster} if self.cluster else {}), separators=(",", ":"))


_OFFSETS: Final = json_record("an offset", StreamOffset)


def parse_offset(text: str) -> StreamOffset:
    """Raises NotReadable: the checkpoint was written by something else, or by a later version."""
    try:
        return _OFFSETS.decode(text.encode())
    except (MappingError, UnicodeEncodeError) as error:
        raise NotReadable(
            f"the entry of the checkpoint's offset log, {text!r:.200}, is not of this stream: {error}"
        ) from error
