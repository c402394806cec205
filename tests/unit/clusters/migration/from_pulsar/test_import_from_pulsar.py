"""Answers of Pulsar's admin API, as values; and workers of one import that meet one another."""

from __future__ import annotations

import json
from collections.abc import Collection
from email.message import Message
from io import BytesIO
from urllib.error import HTTPError

import pytest

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import ConnectFailed, Corrupt, Refused, TenantIsMoving
from pulsar_on_kafka.broker.metadata.entities import Entities
from pulsar_on_kafka.broker.metadata.migration_progress import (
    CLOSED_TO_CONSUMERS,
    CLOSED_TO_PRODUCERS,
    IMPORT_KEYS,
    Imports,
)
from pulsar_on_kafka.clusters.migration.from_pulsar.admin import (
    EntryKind,
    EntryNotReturned,
    LedgerSpan,
    PulsarAdmin,
    PulsarPartition,
    PulsarTopic,
    namespace_policies,
)
from pulsar_on_kafka.clusters.migration.from_pulsar.cluster_migration import MigrationTarget
from pulsar_on_kafka.clusters.migration.from_pulsar.entries import Entry, OriginOfCopies, PulsarMessage, copies
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import Acknowledged, Position, place_of
from pulsar_on_kafka.clusters.migration.from_pulsar.reading import PulsarAddress
from pulsar_on_kafka.clusters.migration.from_pulsar.schemas import schema_of, separates_keys
from pulsar_on_kafka.clusters.migration.from_pulsar.switching import is_drained
from pulsar_on_kafka.schema_compat import SchemaType
from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.clusters.tenant_records import (
    ImportRecord,
    ImportStep,
    ImportSwitch,
    decode_import,
    encode_import,
)
from pulsar_on_kafka_mapping.state.state_topics import TENANTS
from tests.memory_log import MemoryStateLog

LATER = Deadline.after(10_000)
ORDERS = TopicName.parse("persistent://acme/shop/orders")
WHERE = ("pulsar:old", "pulsar://old:6650", "http://old:8080")


class Answers(PulsarAdmin):
    """Pulsar's answers, by path."""

    def __init__(self, answers: dict[str, object]) -> None:
        super().__init__(PulsarAddress("pulsar://old:6650", "http://old:8080"))
        self._answers = answers

    def _query(self, path: str, none_found: object = None) -> object:
        return json.loads(json.dumps(self._answers.get(path.partition("?")[0], none_found)))


STATS = {
    "subscriptions": {
        "s t": {"type": "Shared", "isDurable": True, "isReplicated": True, "subscriptionProperties": {"a": "b"}},
        "reader-1": {"type": "Exclusive", "isDurable": False},
        "pulsar.repl.west": {"isDurable": True},
        "never used": {"isDurable": True},
    }
}
INTERNAL = {
    "lastConfirmedEntry": "15:7",
    "ledgers": [{"ledgerId": 9, "entries": 12}, {"ledgerId": 15, "entries": 0}],
    "cursors": {
        "s+t": {"markDeletePosition": "9:3", "individuallyDeletedMessages": "[(9:5..9:7],(9:11..15:0]]"},
        "never+used": {"markDeletePosition": "9:-1", "individuallyDeletedMessages": "[]"},
        "reader-1": {"markDeletePosition": "15:7", "individuallyDeletedMessages": "[]"},
    },
}


def test_a_partition_with_its_cursors() -> None:
    name = "/persistent/acme/shop/orders-partition-1"
    admin = Answers({f"{name}/internalStats": INTERNAL})
    found = admin.partition("persistent://acme/shop/orders-partition-1", ("s t", "never used", "elsewhere"))
    assert (found.last, found.entries) == (Position(15, 7), 20)
    assert found.before(Position(15, 2), 5) == Position(9, 9)
    assert found.before(Position(9, 2), 5) == Position(9, 0)
    assert found.cursors == {
        "s t": Acknowledged(
            place_of(Position(9, 4)),
            (
                (place_of(Position(9, 6)), place_of(Position(9, 8))),
                (place_of(Position(9, 12)), place_of(Position(15, 1))),
            ),
        ),
        "never used": Acknowledged(place_of(Position(9, 0))),
    }


def refused(code: int) -> HTTPError:
    """Closed, as Python 3.14 warns of one that is not."""
    made = HTTPError("", code, "", Message(), BytesIO())
    made.close()
    return made


def test_entries_behind_the_last_message() -> None:
    name = "persistent://acme/shop/orders"
    at = "/persistent/acme/shop/orders/ledger"
    told = {
        (9, 10): {},
        (9, 11): {"X-Pulsar-txn-aborted": "true", "X-Pulsar-txn-uncommitted": "false"},
        (15, 0): {"X-Pulsar-marker-type": "22"},
        (15, 1): {"X-Pulsar-txn-aborted": "false", "X-Pulsar-txn-uncommitted": "true"},
        (15, 2): {},
    }

    class Admin(Answers):
        def _get(self, path: str, timeout_s: float = 60.0) -> tuple[dict[str, str], bytes]:
            if path == f"{at}/15/entry/3":
                raise ConnectFailed(path) from TimeoutError()
            if path == f"{at}/15/entry/4":
                raise ConnectFailed(path) from refused(500)
            if path == f"{at}/15/entry/5":
                raise ConnectFailed(path) from refused(503)
            for (ledger, entry), headers in told.items():
                if path == f"{at}/{ledger}/entry/{entry}":
                    return headers, b""
            raise Refused(path)

    admin = Admin({"/persistent/acme/shop/orders/internalStats": INTERNAL})
    there = admin.partition(name, ())
    positions = list(there.behind(Position(9, 9)))
    assert positions[:3] == [Position(9, 10), Position(9, 11), Position(15, 0)]
    assert positions[-1] == there.last
    assert len(list(there.behind(None))) == there.entries
    kinds = [admin.kind_of(name, position) for position in positions[:6]]
    assert kinds == [
        EntryKind.MESSAGE, EntryKind.NOTHING, EntryKind.NOTHING, EntryKind.OPEN, EntryKind.MESSAGE, EntryKind.MESSAGE,
    ]  # fmt: skip
    assert admin.kind_of(name, Position(15, 6)) is EntryKind.NOTHING
    for entry_id in (3, 4):  # chunks of compressed messages, of which Pulsar says nothing
        assert admin.kind_of(name, Position(15, entry_id)) is EntryKind.MESSAGE
        with pytest.raises(EntryNotReturned):
            admin.deliver_at_ms(name, Position(15, entry_id))
    with pytest.raises(ConnectFailed) as failed:
        admin.kind_of(name, Position(15, 5))
    assert not isinstance(failed.value, EntryNotReturned)
    assert [there.index_of(position) for position in there.behind(None)] == list(range(there.entries))


def test_a_partition_that_nobody_has_used() -> None:
    assert Answers({}).partition("persistent://acme/shop/orders-partition-0", ()).last.entry_id == -1


def test_internal_stats_that_are_not_as_known_are_refused() -> None:
    admin = Answers({"/persistent/acme/shop/orders/internalStats": {"ledgers": []}})
    with pytest.raises(Corrupt, match="internalStats of persistent://acme/shop/orders"):
        admin.partition("persistent://acme/shop/orders", ())


def test_the_topics_of_a_namespace_without_the_brokers_own() -> None:
    at = "/persistent/acme/shop"
    admin = Answers(
        {
            f"{at}/partitioned": ["persistent://acme/shop/orders"],
            f"{at}/orders/partitions": {"partitions": 2},
            at: [
                "persistent://acme/shop/orders-partition-0",
                "persistent://acme/shop/plain",
                "persistent://acme/shop/__change_events",
                "persistent://acme/shop/plain-s__transaction_pending_ack",
            ],
            f"{at}/plain/stats": STATS,
        }
    )
    orders, plain = admin.topics("acme/shop")
    assert (str(orders.name), orders.partitions, str(plain.name), plain.partitions) == (
        "persistent://acme/shop/orders", 2, "persistent://acme/shop/plain", 0,
    )  # fmt: skip
    assert orders.partition_names() == [f"persistent://acme/shop/orders-partition-{number}" for number in (0, 1)]
    assert PulsarTopic(ORDERS, 0).partition_names() == ["persistent://acme/shop/orders"]
    assert {name: (each.type, each.replicated) for name, each in plain.subscriptions.items()} == {
        "s t": ("Shared", True),
        "never used": ("None", False),
    }


def test_schemas_in_order_and_key_values() -> None:
    told = {
        "getSchemaResponses": [
            {"version": 10, "type": "STRING", "data": "", "properties": {}},
            {"version": 9, "type": "JSON", "data": '{"type":"record"}', "properties": {"a": "b"}},
        ]
    }
    found = Answers({"/schemas/acme/shop/orders/schemas": told}).schemas(str(ORDERS))
    assert [(version, info.type, info.schema) for version, info in found.items()] == [
        (9, SchemaType.JSON, b'{"type":"record"}'),
        (10, SchemaType.STRING, b""),
    ]
    both = schema_of(
        {
            "type": "KEY_VALUE",
            "data": '{"key":"","value":{"type":"record","name":"A","fields":[]}}',
            "properties": {"kv.encoding.type": "SEPARATED"},
        },
        ORDERS,
    )
    value = b'{"type":"record","name":"A","fields":[]}'
    assert both.schema == b"\0\0\0\0" + len(value).to_bytes(4, "big") + value
    assert separates_keys(both)
    with pytest.raises(Corrupt, match="ABC"):
        schema_of({"type": "ABC", "data": ""}, ORDERS)


def test_policies_that_act_here_and_those_that_do_not() -> None:
    found, left_out = namespace_policies(
        {
            "retention_policies": {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1},
            "message_ttl_in_seconds": 30,
            "backlog_quota_map": {"destination_storage": {"limitSize": 5, "policy": "producer_exception"}},
            "schema_compatibility_strategy": "UNDEFINED",
            "is_allow_auto_update_schema": False,
            "deduplicationEnabled": None,
            "encryption_required": True,
            "compaction_threshold": "many",
            "publishMaxMessageRate": {"pulsar": {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 0}},
            "topicDispatchRate": {"one": {"dispatchThrottlingRateInMsg": 1}, "other": {}},
            "subscriptionDispatchRate": {},
        }
    )
    assert found == {
        "retention_time_in_minutes": 60,
        "retention_size_in_mb": -1,
        "message_ttl_in_seconds": 30,
        "backlog_quota_limit_size": 5,
        "backlog_quota_limit_size_action": "producer_exception",
        "is_allow_auto_update_schema": False,
        "publish_throttling_rate_in_msg": 10,
        "publish_throttling_rate_in_byte": 0,
    }
    assert left_out == ("encryption_required", "topicDispatchRate", "compaction_threshold 'many'")


def test_separated_keys_are_read_from_base64() -> None:
    entry = Entry(Position(1, 2), "p", 5, [PulsarMessage(b"v", "a2V5")])
    (record,) = copies(entry, OriginOfCopies("pulsar:old", 0, 1), None, True, 1000, "")
    assert record.key == b"key"
    with pytest.raises(MappingError, match="no base64"):
        copies(
            Entry(Position(1, 2), "p", 5, [PulsarMessage(b"v", "?")]), OriginOfCopies("o", 0, 1), None, True, 1000, ""
        )


def test_a_batch_that_fits_no_record_is_refused() -> None:
    entry = Entry(Position(1, 2), "p", 5, [PulsarMessage(bytes(600)), PulsarMessage(bytes(600))])
    with pytest.raises(MappingError, match="a batch of"):
        copies(entry, OriginOfCopies("o", 0, 1), None, False, 1000, "")


def test_the_later_of_two_workers_goes_on() -> None:
    imports = Imports(Entities(MemoryStateLog(), TENANTS, IMPORT_KEYS, SystemClock()), SystemClock())
    with pytest.raises(Refused, match="not imported"):
        imports.require("acme", LATER)
    first = imports.begin("acme", *WHERE, LATER)
    first = imports.advance(first, ImportStep.MESSAGES, LATER)
    imports.check(first, LATER)
    second = imports.begin("acme", *WHERE, LATER)
    assert (first.run, second.run, second.step) == (1, 2, ImportStep.METADATA)
    for late in (
        lambda: imports.check(first, LATER),
        lambda: imports.advance(first, ImportStep.PROGRESS, LATER),
        lambda: imports.note(first, "no broker", LATER),
    ):
        with pytest.raises(Refused, match=r"run 1 .* is over"):
            late()
    imports.note(second, "no broker", LATER)
    assert imports.require("acme", LATER).problem == "no broker"
    with pytest.raises(Refused, match="imported from pulsar:old"):
        imports.begin("acme", "pulsar:other", "pulsar://other:6650", "http://other:8080", LATER)


def test_a_switch_lets_producers_in_before_consumers() -> None:
    imports = Imports(Entities(MemoryStateLog(), TENANTS, IMPORT_KEYS, SystemClock()), SystemClock())

    def is_open(closed: Collection[ImportSwitch]) -> bool:
        try:
            imports.require_open("acme", closed, LATER)
        except TenantIsMoving:
            return False
        return True

    def are_let_in() -> tuple[bool, bool]:
        return is_open(CLOSED_TO_PRODUCERS), is_open(CLOSED_TO_CONSUMERS)

    assert are_let_in() == (True, True)
    record = imports.begin("acme", *WHERE, LATER)
    assert are_let_in() == (True, True)
    record = imports.switch(record, ImportSwitch.CLOSED, LATER)
    assert are_let_in() == (False, False)
    record = imports.switch(record, ImportSwitch.CONSUMERS_WAIT, LATER)
    assert are_let_in() == (True, False)
    record = imports.begin("acme", *WHERE, LATER)  # by another worker: the switch goes on where it was
    assert record.switch is ImportSwitch.CONSUMERS_WAIT
    assert imports.switch(record, ImportSwitch.CLOSED, LATER) is record
    record = imports.switch(record, ImportSwitch.OPEN, LATER)
    assert are_let_in() == (True, True)


def test_pulsar_sends_consumers_away_when_their_cursor_has_passed_the_last_entry() -> None:
    there = PulsarPartition(Position(7, 9), (LedgerSpan(7, 10),), {})
    end = place_of(Position(7, 10))
    assert is_drained(Acknowledged(end), there)
    assert not is_drained(Acknowledged(end - 1), there)
    assert not is_drained(Acknowledged(place_of(Position(7, 3)), ((end - 1, end),)), there)
    assert is_drained(Acknowledged(0), PulsarPartition(Position(7, -1), (), {}))


def test_the_addresses_of_a_migration_are_in_pulsars_form() -> None:
    plain = MigrationTarget("pulsar://gw:6650", "http://gw:8080")
    assert plain.body() == {"brokerServiceUrl": "pulsar://gw:6650", "serviceUrl": "http://gw:8080"}
    encrypted = MigrationTarget("pulsar+ssl://gw:6651", "https://gw:8443")
    assert encrypted.body() == {"brokerServiceUrlTls": "pulsar+ssl://gw:6651", "serviceUrlTls": "https://gw:8443"}


def test_an_import_record_and_back() -> None:
    record = ImportRecord("acme", *WHERE, ImportStep.PROGRESS, 3, 7, "no broker", ImportSwitch.CLOSED)
    assert decode_import(encode_import(record)) == record
    with pytest.raises(CorruptRecord):
        decode_import(b'{"v":1,"tenant":"acme"}')
