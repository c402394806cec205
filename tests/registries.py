"""Registries as several processes have them: each with a storage of its own on one log in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from pulsar_on_kafka.base.clock import Clock, SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.schema_registry.model import SchemaPolicies, TopicLife
from pulsar_on_kafka.broker.schema_registry.registry import SchemaRegistry
from pulsar_on_kafka.broker.schema_registry.storage import StateLogSchemaStorage
from pulsar_on_kafka.schema_compat import SchemaInfo, SchemaType
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka_mapping.names.topic_name import TopicName

TOPIC = TopicName.parse("persistent://public/default/orders")


LIFE = TopicLife(str(TOPIC), "Kafka's-id")


def life_of(topic: TopicName, deadline: Deadline) -> TopicLife:
    """Of topics that are never deleted."""
    return TopicLife(str(topic.base), LIFE.kafka_topic_id)


def soon() -> Deadline:
    return Deadline.after(60)


def process(
    log: StateLog,
    policies: SchemaPolicies | Callable[[], SchemaPolicies] = SchemaPolicies(),  # noqa: B008 - frozen
    clock: Clock | None = None,
) -> SchemaRegistry:
    clock = clock or SystemClock()
    given = policies if callable(policies) else lambda: policies
    return SchemaRegistry(
        StateLogSchemaStorage(log, clock), lambda topic, deadline: given(), life_of, clock, user="tests"
    )


def avro(*fields: str, defaults: bool = True, name: str = "Order", kind: SchemaType = SchemaType.AVRO) -> SchemaInfo:
    """A record of optional longs (`defaults`), or of longs that must be there."""
    types = [
        {"name": field, "type": ["null", "long"], "default": None} if defaults else {"name": field, "type": "long"}
        for field in fields
    ]
    return SchemaInfo(kind, json.dumps({"type": "record", "name": name, "fields": types}).encode(), name)


WORD_LISTS = Path(__file__).parents[1] / "examples/schema_checker/word_lists.py"


def install_word_lists(tmp_path: Path) -> None:
    """The example of a checker of one's own, as an installer leaves it in a directory of `sys.path`; with it a storage
    and entry points that name no checker."""
    metadata = tmp_path / "pok_word_lists-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pok-word-lists\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[pulsar_on_kafka.schema_checker]\nword_list = word_lists:CHECKER\nbroken = word_lists:NOWHERE\n"
        "no_type = word_lists:WordListSchema\n"
        "[pulsar_on_kafka.schema_storage]\nkept_apart = kept_apart:KeptApart\n"
    )
    (tmp_path / "word_lists.py").write_text(WORD_LISTS.read_text())
    (tmp_path / "kept_apart.py").write_text(
        "from pulsar_on_kafka.broker.schema_registry.storage import StateLogSchemaStorage\n"
        "class KeptApart(StateLogSchemaStorage): pass\n"
    )
