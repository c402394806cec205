"""One value, or a few, of each kind of record that stands in a state topic, with what writes and what reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pyroaring import BitMap, BitMap64

from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import (
    ClusterAddress,
    ClusterListener,
    ClusterRegistry,
    decode_clusters,
    encode_clusters,
)
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import (
    Origin,
    ProgressHead,
    SavedAcks,
    SegmentPlace,
    decode_head,
    encode_head,
)
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import decode_segment as decode_progress_segment
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import encode_segment as encode_progress_segment
from pulsar_on_kafka_mapping.state.clusters.tenant_records import (
    ImportRecord,
    ImportStep,
    MigrationRecord,
    MigrationStep,
    TenantInfoRecord,
    TenantRecord,
    TenantState,
    decode_import,
    decode_migration,
    decode_tenant,
    decode_tenant_info,
    encode_import,
    encode_migration,
    encode_tenant,
    encode_tenant_info,
)
from pulsar_on_kafka_mapping.state.cursors.cursor_marker import (
    LedgerSummary,
    Marker,
    MarkerRef,
    SavedLedger,
    SegmentRef,
    decode_index,
    encode_index,
    open_marker,
    page_contents,
    paged_marker,
    pages_of,
    whole_marker,
)
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import (
    Acknowledge,
    AcknowledgeUpTo,
    CloseConsumers,
    ConsumersReport,
    CursorLife,
    CursorReply,
    CursorTransactionRequest,
    DescribeConsumers,
    ReportedActive,
    ReportedConsumer,
    ReportedHolder,
    ReportedReading,
    ReportedThrottling,
    ReportedWaiting,
    Request,
    SaveNow,
    Seek,
    Skip,
    encode_answer,
    encode_report,
    encode_request,
)
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import decode as decode_request
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import encode_transaction as encode_hold
from pulsar_on_kafka_mapping.state.cursors.cursor_state import (
    CommitMetadata,
    CursorCheckpoint,
    Deliveries,
    Holes,
    Lineage,
    Segment,
    decode_checkpoint,
    decode_segment,
    encode_checkpoint,
    encode_segment,
)
from pulsar_on_kafka_mapping.state.cursors.cursor_state import decode_commit_metadata as decode_commit
from pulsar_on_kafka_mapping.state.cursors.cursor_state import encode_commit_metadata as encode_commit
from pulsar_on_kafka_mapping.state.cursors.lease_records import (
    Expel,
    Held,
    Lease,
    LeasedEntry,
    MemberId,
    Nack,
    Recall,
    RemoteConsumer,
    Report,
    Saved,
    TakeOver,
    Welcome,
)
from pulsar_on_kafka_mapping.state.cursors.lease_records import decode as decode_lease
from pulsar_on_kafka_mapping.state.cursors.lease_records import encode as encode_lease
from pulsar_on_kafka_mapping.state.metadata.ledger_records import (
    LedgerRecord,
    LedgerState,
    MaintenanceTakenOver,
    decode_ledger_value,
    encode_ledger_value,
)
from pulsar_on_kafka_mapping.state.metadata.metadata_records import (
    AuthPolicies,
    BacklogExceeded,
    Claim,
    DeletionMark,
    Joining,
    LifeState,
    NamespaceRecord,
    PartitionSeat,
    RegistrationsRecord,
    SubscriptionRecord,
    TopicRecord,
    Unused,
    decode_namespace,
    decode_registrations,
    decode_subscription,
    decode_topic,
    encode_namespace,
    encode_registrations,
    encode_subscription,
    encode_topic,
)
from pulsar_on_kafka_mapping.state.metadata.producer_records import (
    EpochBounds,
    EpochFence,
    ProducerClaim,
    ProducerClaims,
    ProducerHeartbeat,
    Publisher,
    SequenceSnapshot,
    TakeOverBound,
    decode_bounds,
    decode_claims,
    decode_fence,
    decode_producer_heartbeat,
    decode_snapshot,
    decode_take_over,
    encode_bounds,
    encode_claims,
    encode_fence,
    encode_producer_heartbeat,
    encode_snapshot,
    encode_take_over,
)
from pulsar_on_kafka_mapping.state.metadata.schema_records import SchemaRecord, decode_schema, deletion, encode_schema
from pulsar_on_kafka_mapping.state.traffic import Traffic
from pulsar_on_kafka_mapping.state.transactions.pending_acks import (
    CumulativeAck,
    CursorIncarnation,
    PendingAck,
    TxnAck,
    TxnOutcome,
    decode_cursor_takeover,
    decode_end,
    decode_pending_ack,
    encode_cursor_takeover,
    encode_end,
    encode_pending_ack,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_buffer import (
    AbortedEntry,
    OpenEntry,
    VoidEntry,
    decode_buffer_entry,
    decode_low_water,
    encode_buffer_entry,
    encode_low_water,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_log import (
    Answered,
    NewTransaction,
    PartitionsAdded,
    StatusUpdated,
    SubscriptionsAdded,
    TakenOver,
    TopicPartition,
    TopicSubscription,
    TxnStatus,
    decode_log_value,
    encode_log_value,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import (
    AddPartitions,
    AddSubscriptions,
    Begin,
    End,
    TransactionRequest,
    decode_transaction_request,
    encode_transaction_request,
)


class Case(NamedTuple):
    """A value is written by `encode` and read by `decode`; `read` is what that gives where it is not the value."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    value: Any
    read: Any = None


def _index_or_pages(marker: bytes) -> object:
    """The index that a marker holds; the numbers of its pages, where it is in pages."""
    held = open_marker(marker)
    return decode_index(held) if isinstance(held, bytes) else held


def _commit(metadata: CommitMetadata) -> bytes:
    return encode_commit(metadata).encode()


def _read_commit(data: bytes) -> CommitMetadata | None:
    return decode_commit(data.decode("latin-1"))


_TOPIC: Final = "persistent://public/default/orders"
_KAFKA_ID: Final = "AAAAAAAAQACAAAAAAAAAAA"
_SESSION: Final = bytes(range(16))
_OTHER: Final = bytes(range(16, 32))
_LIFE: Final = CursorLife(_KAFKA_ID, 17, 42)
_MEMBER: Final = MemberId("client-ü", 3)
_LINEAGE: Final = Lineage(_KAFKA_ID, 17, 42, _SESSION, 5, 300)
_TRAFFIC: Final = Traffic(
    400, 80_000, 2.5, 500.0, 0.5, 2.0, 1_700_000_000_000, "127.0.0.1:50000", True, "Pulsar-Java-v4.0.7",
    1_700_000_000_009, 1_700_000_000_010, 1_700_000_000_008, 2,
)  # fmt: skip
_HOLES: Final = Holes(BitMap([1, 2, 3, 70_000]), {5: (10, 0b1000000001), 400: (3, 0b10)})
_DELIVERIES: Final = Deliveries(
    900, BitMap64([4]), {(2, 1): BitMap64([7, 8]), (0, 3): BitMap64([2**40])}, {1_700_000_000_000: BitMap64([9])}
)
_WITH_FLOORS: Final = Deliveries(900, floors={3: 40, 700: 2**40})
_REASONS: Final = {"no price": BitMap64([7 << 16, 8 << 16 | 3]), "ü": BitMap64([2**40])}
_SEGMENT: Final = SegmentRef(3, 120, _SESSION, 299, 0)
_SUMMARY: Final = LedgerSummary(4, 1, 70_000, 0, 2, 2, 64)
_CLAIM: Final = Claim("9f86d081", "pok-1", 1_700_000_000_000, "audit-1", "host:17")
_TXN: Final = TxnId(3 << 48, 7)
_ACK: Final = TxnAck(BitMap64([3, 4, 2**33]), {7: (10, 0b1000000001), 9: (1, 1)}, CumulativeAck(2, 4, 0b11))
_ACKS: Final = SavedAcks(100, {2: _HOLES}, {3: (SegmentPlace(4, 0, 700), SegmentPlace(5, 1, 800))})
_PROGRESS: Final = ProgressHead(
    (17, 42), {Origin("west", 9): _ACKS, Origin("east", 300): SavedAcks()}, {Origin("west", 9): _DELIVERIES}
)

VALUES: Final[Mapping[str, Case]] = {
    "topic": Case(
        encode_topic,
        decode_topic,
        TopicRecord(
            _TOPIC,
            LifeState.ACTIVE,
            "public.default.orders",
            4,
            50_000,
            17,
            _KAFKA_ID,
            False,
            1_700_000_000_000,
            {"retention": {"minutes": 10, "size_mb": -1.5}, "names": ["a", None, True]},
            {"0": 120},
            BacklogExceeded(True, "10 MB of partition 2", 1_700_000_060_000),
            {"": Unused(5, "m"), "audit": Unused(6, "")},
            3,
            {"1": 99},
        ),
    ),
    "topic that may be deleted": Case(
        encode_topic,
        decode_topic,
        TopicRecord(
            _TOPIC,
            LifeState.ACTIVE,
            "public.default.orders",
            4,
            50_000,
            unanswered={"9f86d081": 1_700_000_000_000},
            deletion_mark=DeletionMark("9f86d081", 1_700_000_000_000),
        ),
    ),
    "topic that is terminated": Case(
        encode_topic,
        decode_topic,
        TopicRecord(
            _TOPIC,
            LifeState.ACTIVE,
            "public.default.orders",
            2,
            50_000,
            properties={"a": "ü"},
            terminated={"0": 0, "1": 17},
        ),
    ),
    "topic that is new": Case(
        encode_topic, decode_topic, TopicRecord(_TOPIC, LifeState.CREATING, "public.default.orders", 0, 50_000)
    ),
    "namespace": Case(
        encode_namespace,
        decode_namespace,
        NamespaceRecord("public/default", LifeState.ACTIVE, {"ttl": 3, "ü": "ä"}, 1_700_000_000_000),
    ),
    "namespace with properties and permissions": Case(
        encode_namespace,
        decode_namespace,
        NamespaceRecord(
            "acme/eu",
            LifeState.ACTIVE,
            properties={"team": "ä"},
            auth=AuthPolicies(
                {"app": ("produce", "consume")}, {_TOPIC: {"ü": ("consume",)}}, {"audit": ("app",)}, "Prefix"
            ),
        ),
    ),
    "subscription": Case(
        encode_subscription,
        decode_subscription,
        SubscriptionRecord(
            _TOPIC,
            "audit",
            LifeState.DELETING,
            "Shared",
            {"0": 5, "1": -1},
            42,
            17,
            _CLAIM,
            {"a": "b"},
            True,
            1_700_000_000_000,
            True,
            {"3": PartitionSeat("Exclusive", _CLAIM, 2), "4": PartitionSeat("Shared")},
            (3, 4),
            True,
            True,
        ),
    ),
    "subscription that consumers join": Case(
        encode_subscription,
        decode_subscription,
        SubscriptionRecord(
            _TOPIC,
            "audit",
            LifeState.ACTIVE,
            "Shared",
            joining={"pok-1": Joining(1_700_000_000_000, 3), "pok-2": Joining(5)},
        ),
    ),
    "subscription that is new": Case(
        encode_subscription, decode_subscription, SubscriptionRecord(_TOPIC, "audit", LifeState.CREATING, "Failover")
    ),
    "consumer registrations": Case(
        encode_registrations, decode_registrations, RegistrationsRecord(_TOPIC, "audit", 17, ("a", "ä"))
    ),
    "schema": Case(
        encode_schema,
        decode_schema,
        SchemaRecord("AVRO", b'{"type":\n"string"}\xff', "Order", {"k": "v"}, "ann", 1_700_000_000_000),
    ),
    "schema's deletion": Case(encode_schema, decode_schema, deletion("ann", 5, forced=True, removes=True)),
    "producers' claims": Case(
        encode_claims,
        decode_claims,
        ProducerClaims(
            _TOPIC, 17, 6, 5, {"p": ProducerClaim("9f86", "h:1", 1_700_000_000_000, True, 6)}, True, True, True
        ),
    ),
    "producers' claims of a topic that had exclusive ones": Case(
        encode_claims, decode_claims, ProducerClaims(_TOPIC, 17, 9, 9, topic_epochs={"": 6, "3": 9})
    ),
    "producers' claims of a terminated topic": Case(
        encode_claims, decode_claims, ProducerClaims(_TOPIC, 17, 9, terminated=9)
    ),
    "producers' claims of a topic with two hashing schemes": Case(
        encode_claims, decode_claims, ProducerClaims(_TOPIC, 17, hashing_schemes=("JavaStringHash", "Crc32Hash"))
    ),
    "producer's heartbeat": Case(
        encode_producer_heartbeat,
        decode_producer_heartbeat,
        ProducerHeartbeat(1_700_000_000_000, "h:1", (Publisher("p", "Shared", 6, 5, 10, 1, {"k": "v"}),), 3),
    ),
    "producer's heartbeat of a gateway": Case(
        encode_producer_heartbeat,
        decode_producer_heartbeat,
        ProducerHeartbeat(1, "h:1", (Publisher("p", "Shared", 6, 5, 10, 1, {}, _TRAFFIC),)),
    ),
    "fence": Case(encode_fence, decode_fence, EpochFence(17, 120)),
    "bounds of an epoch": Case(encode_bounds, decode_bounds, EpochBounds(17, (120, 0, 9))),
    "take-over": Case(encode_take_over, decode_take_over, TakeOverBound(17, 120, True)),
    "sequence snapshot": Case(encode_snapshot, decode_snapshot, SequenceSnapshot(17, -1, 120, False)),
    "sequence snapshot beside messages that failed": Case(
        encode_snapshot, decode_snapshot, SequenceSnapshot(17, 9, 120, False, BitMap64((3, 4)), 1)
    ),
    "ledger": Case(
        lambda value: encode_ledger_value(*value),
        decode_ledger_value,
        (3, LedgerRecord(_TOPIC, LedgerState.CLOSED, 0, 50_000, 9_700_000, 120_000, 17, 36, {"k": "v"})),
    ),
    "maintenance's take-over": Case(
        lambda value: encode_ledger_value(*value), decode_ledger_value, (3, MaintenanceTakenOver())
    ),
    "clusters": Case(
        encode_clusters,
        decode_clusters,
        ClusterRegistry(
            "west",
            {
                "east": ClusterAddress(
                    "kafka://e:9092",
                    {"linger.ms": "5"},
                    {"inside": ClusterListener("kafka://i:9", ("10.0.0.0/8",))},
                    "acme",
                )
            },
        ),
    ),
    "clusters with gateways": Case(
        encode_clusters,
        decode_clusters,
        ClusterRegistry(
            "west", {"east": ClusterAddress("kafka://e:9092", gateways=("pulsar://g:6650", "http://g:8080"))}
        ),
    ),
    "import": Case(
        encode_import,
        decode_import,
        ImportRecord(
            "acme", "pulsar:standalone", "pulsar://old:6650", "http://old:8080", ImportStep.MESSAGES, 3, 5, "x"
        ),
    ),
    "migration": Case(
        encode_migration, decode_migration, MigrationRecord("acme", "west", "east", MigrationStep.READY, 5, "x")
    ),
    "tenant": Case(encode_tenant, decode_tenant, TenantRecord("acme", "west", TenantState.SWITCHING, 4, "east")),
    "tenant's information": Case(
        encode_tenant_info, decode_tenant_info, TenantInfoRecord("acme", ("boss", "ü"), ("west",))
    ),
    "progress": Case(encode_head, decode_head, _PROGRESS),
    "progress without deliveries": Case(encode_head, decode_head, ProgressHead((0, 0), {Origin("ü", 1): SavedAcks(7)})),
    "progress's segment": Case(lambda value: encode_progress_segment(*value), decode_progress_segment, (300, _HOLES)),
    "cursor checkpoint": Case(
        encode_checkpoint, decode_checkpoint, CursorCheckpoint(5, 300, 120, "pok1:abc", 1_700_000_000_000)
    ),
    "commit with holes": Case(
        _commit, _read_commit, CommitMetadata(_LINEAGE, _HOLES, None, _DELIVERIES, {b"12345678": 300}, True, 700)
    ),
    "commit with floors": Case(
        _commit, _read_commit, CommitMetadata(_LINEAGE, _HOLES, None, _WITH_FLOORS, {b"12345678": 300}, True, 700)
    ),
    "commit with reasons": Case(
        _commit,
        _read_commit,
        CommitMetadata(_LINEAGE, _HOLES, None, Deliveries(900, reasons=_REASONS), {b"12345678": 300}, True, 700),
    ),
    "commit with a marker": Case(_commit, _read_commit, CommitMetadata(_LINEAGE, None, 120)),
    "commit with both": Case(_commit, _read_commit, CommitMetadata(_LINEAGE, _HOLES, 120, None, {}, False, 0)),
    "cursor's segment": Case(encode_segment, decode_segment, Segment(_LINEAGE, 3, _HOLES)),
    "cursor's marker": Case(
        lambda value: whole_marker(encode_index(value)),
        _index_or_pages,
        Marker(
            _LINEAGE,
            (SavedLedger(_SUMMARY, (_SEGMENT, SegmentRef(3, 121, _OTHER, 300, 1))),),
            (SegmentRef(2, 50, _OTHER, 7, 0),),
            (MarkerRef(_OTHER, 7, 2),),
            _DELIVERIES,
        ),
    ),
    "cursor's marker without anything": Case(encode_index, decode_index, Marker(_LINEAGE, ())),
    "cursor's marker in pages": Case(paged_marker, open_marker, (120, 121, 300)),
    "page of a cursor's marker": Case(lambda value: pages_of(value, 6)[1], page_contents, b"456789", b"89"),
    "seek": Case(encode_request, decode_request, Request(b"12345678", _LIFE, Seek(120, 10, 3))),
    "acknowledge up to": Case(encode_request, decode_request, Request(b"12345678", _LIFE, AcknowledgeUpTo(-1))),
    "skip": Case(encode_request, decode_request, Request(b"12345678", _LIFE, Skip(5, 120))),
    "acknowledge": Case(
        encode_request, decode_request, Request(b"12345678", _LIFE, Acknowledge({3: _HOLES, 0: Holes(BitMap([1]))}))
    ),
    "save": Case(encode_request, decode_request, Request(b"12345678", _LIFE, SaveNow())),
    "close": Case(encode_request, decode_request, Request(b"12345678", _LIFE, CloseConsumers())),
    "consumers": Case(encode_request, decode_request, Request(b"12345678", _LIFE, DescribeConsumers())),
    "hold": Case(encode_hold, decode_request, CursorTransactionRequest(b"12345678", _LIFE, _TXN, _ACK, True)),
    "answer": Case(encode_answer, decode_request, CursorReply(b"12345678", 3)),
    "answer that refuses": Case(encode_answer, decode_request, CursorReply(b"12345678", 0, "busy", "InvalidTxnStatus")),
    "consumers told": Case(
        encode_report,
        decode_request,
        ConsumersReport(b"12345678", "pok-1", (ReportedConsumer("a", 1, 12, 3, 400, 2.5, -1),)),
    ),
    "consumers of a gateway told": Case(
        encode_report,
        decode_request,
        ConsumersReport(b"12345678", "pok-1", (ReportedConsumer("a", 1, 12, 3, 400, 2.5, -1, _TRAFFIC, {"a": "b"}),)),
    ),
    "consumers told that are waited for": Case(
        encode_report,
        decode_request,
        ConsumersReport(b"12345678", "pok-1", (), (ReportedWaiting("pok-2", "b", 7, 1.5),)),
    ),
    "consumers told, and who holds an entry": Case(
        encode_report, decode_request, ConsumersReport(b"12345678", "pok-1", (), (), ReportedHolder("pok-2", "b"))
    ),
    "consumers told, and which are active": Case(
        encode_report,
        decode_request,
        ConsumersReport(
            b"12345678",
            "pok-1",
            (),
            (),
            None,
            (ReportedActive(2, "pok-2", "b"),),
            throttling=(ReportedThrottling(2, 1),),
            blocked_s=1.5,
            reading=(ReportedReading(2, 170),),
        ),
    ),
    "consumers of an entry": Case(
        encode_request, decode_request, Request(b"12345678", _LIFE, DescribeConsumers(2, 17))
    ),
    "lease's take-over": Case(encode_lease, decode_lease, TakeOver(_LIFE, _SESSION, 300)),
    "lease": Case(
        encode_lease,
        decode_lease,
        Lease(
            _SESSION,
            5,
            _MEMBER,
            17,
            2,
            700,
            (
                LeasedEntry(3),
                LeasedEntry(4, 2),
                LeasedEntry(5),
                LeasedEntry(6, 1, 7, (10, 0b111)),
                LeasedEntry(9, 0, 1, None, (7, 8, 9), 3_000_000),
            ),
        ),
    ),
    "recall": Case(encode_lease, decode_lease, Recall(_SESSION, 5, _MEMBER, 18)),
    "saved": Case(encode_lease, decode_lease, Saved(_SESSION, 5, 700, 600)),
    "welcome": Case(encode_lease, decode_lease, Welcome(_SESSION, _MEMBER)),
    "expel": Case(encode_lease, decode_lease, Expel(_SESSION, _MEMBER, "late")),
    "report": Case(
        encode_lease,
        decode_lease,
        Report(
            _LIFE,
            _MEMBER,
            300,
            (
                RemoteConsumer(1, "a", 2, 50_000, ((0, 100), (200, 65_535)), True, {_SESSION: 1_000}, 5, 6, 0),
                RemoteConsumer(2, "ü"),
            ),
            {_SESSION: 17, _OTHER: 0},
            {0: BitMap64([1, 2, 3]), 5: BitMap64([2**40])},
            {0: {6: (10, 0b1000000001)}},
            {0: (Nack(1, 7, 60_000, 2), Nack(2, 8, 0))},
            {0: Held(5, {(1, 0): BitMap64([3, 9])}, {6: 4}, {9: ((7, 8, 9), 3_000_000)}), 1: Held(0, {})},
            True,
            True,
        ),
    ),
    "report of a consumer that drains, with reasons": Case(
        encode_lease,
        decode_lease,
        Report(_LIFE, _MEMBER, 3, (RemoteConsumer(2, "ü", draining=True),), reasons={5: _REASONS}),
    ),
    "lease with reasons": Case(
        encode_lease,
        decode_lease,
        Lease(_SESSION, 5, _MEMBER, 9, 1, 700, (LeasedEntry(7, 3),), _REASONS),
    ),
    "report without anything": Case(encode_lease, decode_lease, Report(_LIFE, _MEMBER, 0)),
    "pending ack": Case(encode_pending_ack, decode_pending_ack, PendingAck(CursorIncarnation(17, 42), 5, _ACK)),
    "pending ack of nothing": Case(
        encode_pending_ack, decode_pending_ack, PendingAck(CursorIncarnation(0, 0), 0, TxnAck())
    ),
    "end of a transaction": Case(encode_end, decode_end, TxnOutcome.COMMITTED),
    "cursor's take-over": Case(encode_cursor_takeover, decode_cursor_takeover, CursorIncarnation(17, 300)),
    "open": Case(encode_buffer_entry, lambda data: decode_buffer_entry("OPEN", data), OpenEntry(17, 300)),
    "aborted": Case(
        encode_buffer_entry,
        lambda data: decode_buffer_entry("ABORTED", data),
        AbortedEntry(17, 300, 400, True, BitMap64([301, 302]), 2, 1_700_000_000_000),
    ),
    "void": Case(encode_buffer_entry, lambda data: decode_buffer_entry("VOID", data), VoidEntry(17, BitMap64([301]))),
    "low-water mark": Case(encode_low_water, decode_low_water, 2**64 - 1),
    "transaction": Case(encode_log_value, decode_log_value, NewTransaction(3, 5, 60_000, 17, "9f86")),
    "transaction of the owner's process": Case(encode_log_value, decode_log_value, NewTransaction(3, 5, 60_000, 17)),
    "transaction with an owner": Case(
        encode_log_value, decode_log_value, NewTransaction(3, 5, 60_000, 17, "9f86", "billing")
    ),
    "partitions of a transaction": Case(
        encode_log_value, decode_log_value, PartitionsAdded(3, (TopicPartition(_TOPIC, 0), TopicPartition("ü", 1)))
    ),
    "subscriptions of a transaction": Case(
        encode_log_value, decode_log_value, SubscriptionsAdded(3, (TopicSubscription(_TOPIC, 0, "audit"),))
    ),
    "status of a transaction": Case(encode_log_value, decode_log_value, StatusUpdated(3, TxnStatus.COMMITTING)),
    "coordinator's answer": Case(encode_log_value, decode_log_value, Answered(3, "InvalidTxnStatus", "why")),
    "coordinator's take-over": Case(encode_log_value, decode_log_value, TakenOver(17)),
    "begin": Case(encode_transaction_request, decode_transaction_request, TransactionRequest(5, Begin(60_000))),
    "begin for an owner": Case(
        encode_transaction_request, decode_transaction_request, TransactionRequest(5, Begin(60_000, "billing"))
    ),
    "add partitions": Case(
        encode_transaction_request,
        decode_transaction_request,
        TransactionRequest(5, AddPartitions(_TXN, (TopicPartition(_TOPIC, 0),))),
    ),
    "add subscriptions": Case(
        encode_transaction_request,
        decode_transaction_request,
        TransactionRequest(5, AddSubscriptions(_TXN, (TopicSubscription(_TOPIC, 0, "audit"),))),
    ),
    "end": Case(encode_transaction_request, decode_transaction_request, TransactionRequest(5, End(_TXN, True))),
}
