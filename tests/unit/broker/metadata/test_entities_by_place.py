"""Entities of one place, without a walk through all that lie in the same partition."""

from __future__ import annotations

import random

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.entities import Entities
from pulsar_on_kafka.broker.metadata.subscriptions.registry import SUBSCRIPTION_KEYS
from pulsar_on_kafka.statelog.versioned import Keeping
from pulsar_on_kafka_mapping.state.state_topics import SUBSCRIPTIONS
from tests.memory_log import MemoryStateLog

NEVER = Deadline.never()


def test_those_of_a_place_are_those_among_all_whatever_was_written_and_removed() -> None:
    rng = random.Random(5)
    entities = Entities(
        MemoryStateLog(), SUBSCRIPTIONS, SUBSCRIPTION_KEYS, SystemClock(), Keeping(place_of=SUBSCRIPTION_KEYS.place_of)
    )
    places = [f"persistent://public/default/t{number}" for number in range(20)]
    for _ in range(400):
        place, name = rng.choice(places), f"s{rng.randrange(5)}"
        if rng.random() < 0.3:
            entities.of((place, name)).remove((place, name), NEVER)
        else:
            entities.update((place, name), lambda found: b"%d" % (found.version if found else 0), NEVER)
    for place in places:
        among_all = {entity: found for entity, found in entities.beside(place, NEVER).items() if entity[0] == place}
        assert entities.at(place, NEVER) == among_all
