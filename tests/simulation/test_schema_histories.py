"""The real registry of several processes against random histories on the log in memory.

Registrars with pauses between any two operations on the log, appends that fail, arrive late or only seem lost,
compaction, deletions, records that rot, and processes that die wherever they are. `make soak` runs 3,000.
"""

from __future__ import annotations

import json

import pytest

from pulsar_on_kafka.base.errors import (
    AppendFailed,
    AppendOutcomeUnknown,
    IncompatibleSchema,
    NoSuchSchema,
    UnreadableSchemas,
)
from pulsar_on_kafka.broker.schema_registry.model import SchemaPolicies, TopicLife
from pulsar_on_kafka.broker.schema_registry.registry import SchemaRegistry
from pulsar_on_kafka.broker.schema_registry.storage import SCHEMA_KEYS, StateLogSchemaStorage
from pulsar_on_kafka.schema_compat import CompatibilityStrategy, SchemaInfo, SchemaType, check_compatibility
from pulsar_on_kafka.statelog.compare_and_set import VersionedEntities
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.schema_records import decode_schema
from pulsar_on_kafka_mapping.state.state_keys import SchemaKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import SCHEMAS
from tests.registries import LIFE, life_of
from tests.seeds import in_three
from tests.simulation.history import ActorsHistory
from tests.simulation.turns import NEVER, Actor, ActorsLog

TOPIC = TopicName.parse("persistent://public/default/orders")
NAME = str(TOPIC)
PARTITION = SCHEMAS.partition_for(NAME)
STRATEGIES = ("BACKWARD", "FULL", "FULL_TRANSITIVE", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE")


def _removes(value: bytes) -> bool:
    return value != b"rot" and decode_schema(value).removes


def schema(number: int) -> SchemaInfo:
    """One of a few that mostly get on with each other; every fifth has a field that must be there."""
    required = [{"name": "must", "type": "int"}] if number % 5 == 4 else []
    fields = [{"name": f"f{number}", "type": ["null", "int"], "default": None}, *required]
    return SchemaInfo(SchemaType.AVRO, json.dumps({"type": "record", "name": "R", "fields": fields}).encode())


class History(ActorsHistory):
    """One random history; `run` raises AssertionError, naming the seed, when a rule is broken."""

    def __init__(self, seed: int, steps: int = 120) -> None:
        super().__init__(seed, steps)
        self.strategy = CompatibilityStrategy[self.rng.choice(STRATEGIES)]
        self.rots = self.rng.random() < 0.3
        self.forced_share = self.rng.choice((0.0, 0.0, 0.5))
        self.removed_to = 0
        self.seen: dict[int, tuple[int, bytes]] = {}
        self.live: list[SchemaInfo] = []
        self.rotten = False
        self.answered = 0

    def run(self) -> int:
        self.begin(*[self._registrar] * 4, then=self._registrar)
        self.play()
        return self.answered

    def step(self, draw: float) -> None:
        if draw < 0.85:
            self.schedule.step_one_of(self.actors)
        elif draw < 0.93:
            self.log.compact(self.rng)
        elif draw < 0.96 and self.broker.waiting:
            self.broker.execute_one()
        elif draw < 0.98:
            self.one_dies()
        elif self.rots:
            self._write_rot()
        self._versions_are_dense_and_keep_what_they_are()

    def _write_rot(self) -> None:
        """A record that nobody can read takes the next version."""
        state = self._view().query(lambda found: found.state(LIFE), NEVER)
        key = SchemaKey(NAME, LIFE.kafka_topic_id, (state.version if state else 0) + 1, f"{self.rng.random()}")
        self.log.append(SCHEMAS, PARTITION, encode_key(key), b"rot", NEVER)

    # What processes do --------------------------------------------------------------------------------------------

    def _registrar(self, actor: Actor) -> None:
        log = ActorsLog(self.log, actor, self.rng, self.broker, unknown_share=0.08)
        registry = SchemaRegistry(
            StateLogSchemaStorage(log, self.clock),
            lambda topic, deadline: SchemaPolicies(self.strategy),
            life_of,
            self.clock,
        )
        while True:
            try:
                if self.rng.random() < 0.08:
                    registry.delete(TOPIC, NEVER, forced=self.rng.random() < self.forced_share)
                else:
                    self._register(registry, schema(self.rng.randrange(12)))
            except (AppendFailed, AppendOutcomeUnknown, IncompatibleSchema):
                continue

    def _register(self, registry: SchemaRegistry, info: SchemaInfo) -> None:
        version = registry.for_producer(TOPIC, info, NEVER)
        assert version is not None
        self.answered += 1
        try:
            found = registry.schema(TOPIC, version, NEVER)
        except NoSuchSchema:
            self._versions_are_dense_and_keep_what_they_are()
            assert version.number + 1 < self.removed_to, f"seed {self.seed}: version {version} is gone"
            return
        assert found.info == info, f"seed {self.seed}: was told version {version}, which is {found.info}"

    # What must hold -----------------------------------------------------------------------------------------------

    def _view(self) -> LogView[VersionedEntities[TopicLife]]:
        return LogView(self.log, SCHEMAS, PARTITION, lambda: VersionedEntities(SCHEMA_KEYS), self.clock)

    def _versions_are_dense_and_keep_what_they_are(self) -> None:
        all_winners = self._view().query(lambda found: found.winners(LIFE), NEVER)
        # Below a removal may stand what it has not taken yet, and what arrived late: it is no version.
        self.removed_to = max((winner.version for winner in all_winners if _removes(winner.value)), default=0)
        winners = [winner for winner in all_winners if winner.version >= self.removed_to]
        newest = winners[-1].version if winners else 0
        dense = list(range(max(self.removed_to, 1), newest + 1))
        assert [winner.version for winner in winners] == dense, f"seed {self.seed}"
        assert newest >= max(self.seen, default=0), f"seed {self.seed}: version {max(self.seen)} became {newest}"
        for winner in winners:
            first = self.seen.get(winner.version)
            if first is None:
                self.seen[winner.version] = (winner.offset, winner.value)
                self._judge(winner.version, winner.value)
            else:
                assert first == (winner.offset, winner.value), f"seed {self.seed}: version {winner.version} changed"
        self._readers_see(newest)

    def _judge(self, version: int, value: bytes) -> None:
        """A new version, whatever it is, must be lawful after those before it."""
        if value == b"rot":
            self.rotten = True
            return
        record = decode_schema(value)
        if record.deleted:
            assert self.rotten or record.removes or not record.forced, (
                f"seed {self.seed}: version {version} deletes readable schemas"
            )
            self.live, self.rotten = [], False
            return
        assert not self.rotten, f"seed {self.seed}: version {version} follows what cannot be read"
        info = SchemaInfo(SchemaType[record.type], record.schema)
        judged = check_compatibility(info, self.live, self.strategy)
        assert judged.is_compatible, f"seed {self.seed}: version {version} was never compatible: {judged}"
        assert info not in self.live, f"seed {self.seed}: version {version} was live already"
        self.live.append(info)

    def _readers_see(self, count: int) -> None:
        if self.rng.random() > 0.1:
            return
        storage = StateLogSchemaStorage(self.log, self.clock)
        try:
            history = storage.history(LIFE, NEVER)
        except UnreadableSchemas:
            assert self.rotten, f"seed {self.seed}: all can be read"
            return
        assert not self.rotten, f"seed {self.seed}: what cannot be read was not told"
        loaded = [stored.info for stored in storage.load(LIFE, history, history.live, NEVER)]
        assert loaded == self.live, f"seed {self.seed}"
        assert history.newest == (SchemaVersion(count - 1) if count else None)


@pytest.mark.parametrize("seeds", in_three(25, range(60)), ids=str)
def test_histories_keep_versions_dense_unique_and_compatible(seeds: range) -> None:
    assert sum(History(seed).run() for seed in seeds) > len(seeds)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_thousands_of_histories_keep_versions_dense_unique_and_compatible() -> None:
    assert sum(History(seed).run() for seed in range(60, 3060)) > 3000
