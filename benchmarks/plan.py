"""The plan lists cells to measure and requirements, as data. Nothing here runs anything."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.gateway_plan import GATEWAY, GATEWAY_REQUIREMENTS
from benchmarks.many_plan import MANY, MANY_PAGE, MANY_REQUIREMENTS
from benchmarks.model import MILLION, Cell, Group, Page, Requirement, Rule, System
from benchmarks.spark_plan import SPARK, SPARK_REQUIREMENTS

PENDING: Final = 100_000
"""Messages under way at most, ours, raw and Pulsar's alike."""


def _peer(
    name: str, worker: str, size: int, layer_messages: int, pulsar_messages: int, *, batching: bool = False
) -> Group:
    what = "Produce" if worker == "produce" else "Receive and acknowledge each"
    reads = worker != "produce"
    args = {"size": size, "batching": batching}
    return Group(
        name,
        f"{what}, {size} B, {'batches' if batching else 'no batching'}, beside the official client on real Pulsar",
        rounds=5,
        cells=(
            Cell("layer", System.LAYER, worker, layer_messages, args, reads),
            Cell("pulsar", System.PULSAR, worker, pulsar_messages, args, reads),
        ),
    )


def _transactions(per_transaction: int, open_at_once: int, messages: int) -> Group:
    each = "a message" if per_transaction == 1 else f"{per_transaction} messages"
    args = {"per_transaction": per_transaction, "open_at_once": open_at_once}
    paced = (Cell("layer-paced", System.LAYER, "transactions", messages, args, paced_by="pulsar"),)
    return Group(
        f"transactions-{per_transaction}-{open_at_once}",
        f"Transactions of {each} of 200 B, {open_at_once} open at once, beside Pulsar's Java client on real Pulsar",
        rounds=3,
        cells=(
            Cell("layer", System.LAYER, "transactions", messages, args),
            Cell("pulsar", System.PULSAR, "transactions", messages, {**args, "batching": True}),
            *(paced if open_at_once > 1 else ()),
        ),
    )


def _codecs(name: str, kind: str, messages: int) -> tuple[Cell, Cell]:
    return (
        Cell(name, System.LAYER, "codec", messages, {"package": "pulsar_on_kafka.schema", "kind": kind}),
        Cell(f"{name}-official", System.CLIENT, "codec", messages, {"package": "pulsar.schema", "kind": kind}),
    )


def _ack_rate(*, with_holes: bool) -> dict[str, Any]:
    return {"size": 100, "measured": MILLION, "with_holes": with_holes}


CURSOR_WORKERS: Final = frozenset({"holes", "ack_rate", "many_cursors"})
"""They are in `cursor_workers`."""

REFUSING_WORKERS: Final = frozenset({"key_shared_refusals"})
"""They are in `refusing_workers`."""

_REFUSING: Final = {"rate": 5_000, "keys": 1000}

HUNG_WORKERS: Final = frozenset({"key_shared_hung", "key_shared_waiting"})
"""They are in `hung_workers`."""

FLEET_WORKERS: Final = frozenset({"fleet", "share_group_fleet"})
"""They are in `fleet_workers`."""

FLEETS: Final = (1, 2, 4, 8, 16)
"""Processes that consume one partition together."""

DEATH_WORKERS: Final = frozenset({"after_death", "refusing_after_death"})
"""They are in `death_workers`."""

REDELIVERIES: Final = (1, 2, 3)
"""Of dead letter policies beside refusals."""

FIRST: Final = 200
"""So many messages are wanted within a second after a take-over."""

TRANSACTION_WORKERS: Final = frozenset({"transactions", "start_up"})
"""They are in `transaction_workers`."""

TRANSACTIONS: Final = {
    (1, 1): 400,
    (10, 1): 3_000,
    (100, 1): 20_000,
    (1, 64): 4_000,
    (10, 64): 30_000,
    (100, 64): 100_000,
}
"""Messages in all for each (messages of a transaction, transactions open at once)."""

SERVICE_WORKERS: Final = frozenset({"serve_idle", "overview"})
"""They are in `service_workers`; their messages are topics, or subscriptions."""

SCHEMA_WORKERS: Final = frozenset({"codec", "checks"})
"""They are in `schema_workers`, and need no server."""

MAINTENANCE_WORKERS: Final = frozenset({"lists", "deletions"})
"""They are in `maintenance_workers`."""


def _fleets(processes: int) -> tuple[Cell, ...]:
    args = {"processes": processes, "work_ms": 1.0}
    return (
        Cell(f"{processes}", System.LAYER, "fleet", 3_000 * processes, args),
        Cell(f"pulsar-{processes}", System.PULSAR, "fleet", 3_000 * processes, args),
        Cell(f"share-group-{processes}", System.RAW, "share_group_fleet", 3_000 * processes, args),
    )


_HUNG: Final[dict[str, int]] = {"rate": 20_000, "consumers": 20, "keys": 1000}

_FLEET_OF_EIGHT: Final = {"processes": 8, "work_ms": 0.0, "rate": 1000}

GROUPS: Final = (
    Group(
        "produce",
        "Produce 200 B, every delivery called back",
        rounds=5,
        cells=(
            Cell("layer", System.LAYER, "produce", MILLION, {"size": 200}),
            Cell("raw", System.RAW, "produce", MILLION, {"size": 200}),
            Cell("raw-header", System.RAW, "produce", MILLION, {"size": 200, "header": True}),
        ),
    ),
    Group(
        "receive",
        "Receive 200 B and acknowledge each (raw: consume(1000), value, key and headers read)",
        rounds=5,
        cells=(
            Cell("layer", System.LAYER, "receive", MILLION, {"size": 200}, reads=True),
            Cell("raw", System.RAW, "receive", MILLION, {}, reads=True),
            Cell("raw-defaults", System.RAW, "receive", MILLION, {"default_fetching": True}, reads=True),
        ),
    ),
    Group(
        "receive-committed",
        "Receive 200 B and acknowledge each: sent in transactions of 100, every tenth one aborted, and sent without",
        rounds=15,
        cells=(
            Cell("aborted", System.LAYER, "receive", MILLION // 5, {"size": 200, "in_transaction": 100}, reads=True),
            Cell(
                "unfiltered",
                System.LAYER,
                "receive",
                MILLION // 5,
                {"size": 200, "in_transaction": 100, "filtered": False},
                reads=True,
            ),
            Cell("plain", System.LAYER, "receive", MILLION // 5, {"size": 200}, reads=True),
        ),
    ),
    Group(
        "latency",
        "End-to-end latency at 1,000 messages/s, sender and receiver in two processes",
        rounds=3,
        cells=(
            Cell("layer", System.LAYER, "latency", 20_000, {"rate": 1000}),
            Cell("raw", System.RAW, "latency", 20_000, {"rate": 1000}),
        ),
    ),
    Group(
        "leases-throughput",
        "One partition, 1 ms of work (sleep) a message, processes on one Shared subscription (or Kafka share group)",
        rounds=3,
        cells=tuple(cell for processes in FLEETS for cell in _fleets(processes)),
    ),
    Group(
        "leases-latency",
        "End-to-end latency at 1,000 messages/s of one partition, 8 processes on one Shared subscription",
        rounds=3,
        cells=(
            Cell("layer", System.LAYER, "fleet", 20_000, _FLEET_OF_EIGHT),
            Cell("pulsar", System.PULSAR, "fleet", 20_000, _FLEET_OF_EIGHT),
            Cell("share-group", System.RAW, "share_group_fleet", 20_000, _FLEET_OF_EIGHT),
        ),
    ),
    Group(
        "after-death",
        "Three processes on one partition; its owner ends with all messages in its hands, and the others get them",
        rounds=2,
        cells=(
            Cell("2000", System.LAYER, "after_death", 2_000, {"most_redeliveries": 3}),
            Cell("2000-last", System.LAYER, "after_death", 2_000, {"most_redeliveries": 1}),
            Cell("50000", System.LAYER, "after_death", 50_000, {"most_redeliveries": 3}),
            Cell("plain-50000", System.LAYER, "after_death", 50_000),
            Cell("closed-50000", System.LAYER, "after_death", 50_000, {"killed": False}),
            *(
                Cell(f"refusing-{most}", System.LAYER, "refusing_after_death", 20_000, {"most_redeliveries": most})
                for most in REDELIVERIES
            ),
            Cell("pulsar-2000", System.PULSAR, "after_death", 2_000, {"most_redeliveries": 3}),
            Cell("pulsar-50000", System.PULSAR, "after_death", 50_000),
        ),
    ),
    Group(
        "open",
        "Create a producer or a consumer on a known topic in a warm process",
        rounds=3,
        cells=(
            Cell("layer", System.LAYER, "opening", 100, {"times": 10}),
            Cell("raw", System.RAW, "opening", 100, {"times": 10}),
        ),
    ),
    Group(
        "key-shared",
        "Key_Shared, 200 B, 1,000 keys, receive and acknowledge each, two consumers with a thread each in one process",
        rounds=3,
        cells=(
            Cell("layer", System.LAYER, "key_shared", 500_000, {"size": 200, "keys": 1000, "consumers": 2}),
            Cell("pulsar", System.PULSAR, "key_shared", 100_000, {"size": 200, "keys": 1000, "consumers": 2}),
        ),
    ),
    Group(
        "key-shared-hung",
        "Key_Shared, 200 B, 1,000 keys, 20 consumers, of which one hangs for ten minutes; figures of the other 19",
        rounds=1,
        cells=(
            Cell("none-hangs", System.LAYER, "key_shared_hung", 600 * _HUNG["rate"], {**_HUNG, "hangs": False}),
            Cell("layer", System.LAYER, "key_shared_hung", 600 * _HUNG["rate"], {**_HUNG, "hangs": True}),
            Cell("pulsar", System.PULSAR, "key_shared_hung", 60 * _HUNG["rate"], {**_HUNG, "hangs": True}),
        ),
    ),
    Group(
        "key-shared-refusals",
        "Key_Shared, ordered redelivery, 200 B, 5,000 a second, 1,000 keys, of which ten fail; figures of the others",
        rounds=3,
        cells=(
            Cell("none-fails", System.LAYER, "key_shared_refusals", 150_000, {**_REFUSING, "failing": 0}),
            Cell("layer", System.LAYER, "key_shared_refusals", 150_000, {**_REFUSING, "failing": 10}),
        ),
    ),
    Group(
        "key-shared-waiting",
        "Key_Shared, 200 B, 1,000 keys, ten million messages wait for a consumer that hangs; then it resumes",
        rounds=1,
        cells=(Cell("layer", System.LAYER, "key_shared_waiting", 10_600_000, {"keys": 1000}),),
    ),
    Group(
        "delayed",
        "Delayed delivery, 200 B, all due at one moment, from then to the last acknowledgement",
        rounds=3,
        cells=(
            Cell("layer", System.LAYER, "delayed", 100_000, {"size": 200}),
            Cell("pulsar", System.PULSAR, "delayed", 100_000, {"size": 200}),
        ),
    ),
    _peer("peer-produce-200", "produce", 200, MILLION, 150_000),
    _peer("peer-produce-1000", "produce", 1000, MILLION, 100_000),
    _peer("peer-receive-200", "receive", 200, MILLION, 150_000),
    _peer("peer-receive-1000", "receive", 1000, MILLION, 150_000),
    _peer("batch-produce-200", "produce", 200, MILLION, MILLION, batching=True),
    _peer("batch-receive-200", "receive", 200, MILLION, MILLION, batching=True),
    Group(
        "holes-half",
        "A random half acknowledged, saved, and read back by another process, 100 B",
        rounds=2,
        cells=(
            Cell("layer", System.LAYER, "holes", 10 * MILLION, {"size": 100, "pattern": "half"}, reads=True),
            Cell("layer-small", System.LAYER, "holes", 200_000, {"size": 100, "pattern": "half"}, reads=True),
            Cell("pulsar", System.PULSAR, "holes", 200_000, {"size": 100, "pattern": "half"}, reads=True),
        ),
    ),
    Group(
        "holes-second",
        "Every second message acknowledged: a million holes of one message each, 100 B",
        rounds=3,
        cells=(Cell("layer", System.LAYER, "holes", 2 * MILLION, {"size": 100, "pattern": "second"}, reads=True),),
    ),
    Group(
        "ack-rate",
        "Receive and acknowledge a million messages while there are ten million holes, and while there are none",
        rounds=2,
        cells=(
            Cell("holes", System.LAYER, "ack_rate", 21 * MILLION, _ack_rate(with_holes=True), reads=True),
            Cell("none", System.LAYER, "ack_rate", 21 * MILLION, _ack_rate(with_holes=False), reads=True),
        ),
    ),
    Group(
        "many-cursors",
        "A cursor of many on one topic is read back by another process; 30,000 messages, a random half acknowledged",
        rounds=1,
        cells=(
            Cell("1", System.LAYER, "many_cursors", 30_000, {"size": 100, "cursors": 1}, reads=True),
            Cell("1000", System.LAYER, "many_cursors", 30_000, {"size": 100, "cursors": 1000}, reads=True),
        ),
    ),
    Group(
        "schemas",
        "Encode and decode a record of ten fields, beside the official client's classes and the protobuf package alone",
        rounds=5,
        cells=(
            *_codecs("avro", "Avro", 200_000),
            *_codecs("json", "Json", 200_000),
            *_codecs("protobuf", "ProtobufNative", MILLION),
            Cell("protobuf-alone", System.RAW, "codec", MILLION, {"package": "protobuf", "kind": "ProtobufNative"}),
        ),
    ),
    Group(
        "serve-idle",
        "`pok serve` a minute after it began to serve a cluster with so many topics, in which nothing happens",
        rounds=1,
        cells=(Cell("layer", System.LAYER, "serve_idle", 1_000),),
    ),
    Group(
        "overview",
        "Metrics of so many subscriptions of 1,000 topics: gathered every 30 s, and scraped from `pok serve`",
        rounds=1,
        cells=(Cell("layer", System.LAYER, "overview", 10_000),),
    ),
    Group(
        "schema-checks",
        "Compatibility check FULL of two Avro schemas of 200 fields",
        rounds=3,
        cells=(Cell("layer", System.LAYER, "checks", 2_000, {"fields": 200}),),
    ),
    *(_transactions(*point, messages) for point, messages in TRANSACTIONS.items()),
    Group(
        "transactions-start-up",
        "Start-up of a coordinator, and of a partition's buffer, behind so many finished transactions, compacted",
        rounds=1,
        cells=tuple(Cell(f"{count}", System.LAYER, "start_up", count, {}) for count in (10_000, 100_000, MILLION)),
    ),
    Group(
        "maintenance",
        "Lists of ledgers, for each 10,000 ledgers: all of them measured, and a round that finds nothing to do",
        rounds=2,
        cells=(Cell("lists", System.LAYER, "lists", MILLION, {"topics": 100, "entries_per_ledger": 1_000}),),
    ),
    Group(
        "deletions",
        "Unneeded ledgers leave their lists, then their data is deleted: both phases in one process",
        rounds=2,
        cells=(Cell("ledgers", System.LAYER, "deletions", 200_000, {"topics": 20, "entries_per_ledger": 20}),),
    ),
    Group(
        "replication",
        "Copy a topic of 200 B to a second cluster: `pok serve`, and a loop of consume(1000) and produce",
        rounds=3,
        cells=(
            Cell("layer", System.LAYER, "copy", MILLION, {"size": 200, "by": "layer"}),
            Cell("raw", System.RAW, "copy", MILLION, {"size": 200, "by": "raw"}),
        ),
        resident="replication_workers",
    ),
    Group(
        "replication-latency",
        "From cluster to cluster at 1,000 messages/s: `pok serve`, and a loop of consume(1000) and produce",
        rounds=3,
        cells=(
            Cell("layer", System.LAYER, "copy_latency", 20_000, {"rate": 1000, "by": "layer"}),
            Cell("raw", System.RAW, "copy_latency", 20_000, {"rate": 1000, "by": "raw"}),
        ),
        resident="replication_workers",
    ),
    Group(
        "migration",
        "`pok migrate`: a topic of 200 B and ten subscriptions, with holes at a tenth of it, move to a second cluster",
        rounds=2,
        cells=(Cell("layer", System.LAYER, "move", MILLION, {"partitions": 4, "subscriptions": 10}),),
        resident="migration_workers",
    ),
    *GATEWAY,
    MANY,
    *SPARK,
)

PAGES: Final = (
    Page(
        "docs/benchmarks/sdk.md",
        "produce,receive,latency,open,key-shared,delayed,peer-*,batch-*,holes-*,ack-rate,many-cursors,schemas,schema-checks",
    ),
    Page("docs/benchmarks/after-death.md", "after-death"),
    Page("docs/benchmarks/gateway.md", "gateway-*"),
    Page("docs/benchmarks/key-shared.md", "key-shared-*"),
    Page("docs/benchmarks/leases.md", "leases-*"),
    MANY_PAGE,
    Page("docs/benchmarks/overview.md", "overview"),
    Page("docs/benchmarks/replication.md", "replication*,migration"),
    Page("docs/benchmarks/service.md", "maintenance,deletions,serve-idle"),
    Page(
        "docs/benchmarks/spark.md",
        "spark-acks,spark-aborted,spark-batches,spark-stream,spark-pruned,spark-ten-million",
    ),
    Page("docs/benchmarks/spark-source.md", "spark-source"),
    Page("docs/benchmarks/transactions.md", "transactions-*,receive-committed"),
)

REQUIREMENTS: Final = (
    Requirement(
        "requests to the cluster a second for metrics of 10,000 subscriptions",
        "overview/layer",
        "requests_per_s",
        Rule.BELOW,
        1,
    ),
    Requirement("a scrape of 10,000 subscriptions, seconds", "overview/layer", "scrape_s", Rule.BELOW, 2),
    Requirement("idle `pok serve` of 1,000 topics, MB resident", "serve-idle/layer", "rss_mb", Rule.BELOW, 150),
    Requirement(
        "produce 200 B, raw writing no header", "produce/layer", "per_s", Rule.RATIO_AT_LEAST, 0.7, "produce/raw"
    ),
    Requirement(
        "produce 200 B, raw writing the same record (with a producer header)",
        "produce/layer",
        "per_s",
        Rule.RATIO_AT_LEAST,
        0.7,
        "produce/raw-header",
    ),
    Requirement("receive + acknowledge 200 B", "receive/layer", "per_s", Rule.RATIO_AT_LEAST, 0.3, "receive/raw"),
    Requirement(
        "receive + acknowledge, records of a log of which 10 % are aborted, beside the same log unfiltered",
        "receive-committed/aborted",
        "records_per_s",
        Rule.RATIO_AT_LEAST,
        0.85,
        "receive-committed/unfiltered",
    ),
    Requirement(
        "copy to another cluster, beside raw consume and produce between the same two brokers",
        "replication/layer",
        "per_s",
        Rule.RATIO_AT_LEAST,
        0.6,
        "replication/raw",
    ),
    Requirement(
        "a tenant moves: messages redelivered after their acknowledgement, beyond those in flight",
        "migration/layer",
        "again_beyond_in_flight",
        Rule.BELOW,
        1,
    ),
    Requirement("a tenant moves: messages lost", "migration/layer", "lost", Rule.BELOW, 1),
    Requirement("a tenant moves: differences of both sides", "migration/layer", "differences", Rule.BELOW, 1),
    Requirement("peak resident memory of receive, MB", "receive/layer", "peak_mb", Rule.BELOW, 300),
    *(
        Requirement(
            f"messages a second of each of {processes} processes that share a partition, beside one alone",
            f"leases-throughput/{processes}",
            "per_process_s",
            Rule.RATIO_AT_LEAST,
            0.85,
            "leases-throughput/1",
            until_cores_end=True,
        )
        for processes in FLEETS[1:]
    ),
    *(
        Requirement(f"{what}, s", f"after-death/{cell}", metric, Rule.BELOW, threshold)
        for cell, how, done_s in (
            ("2000", "2,000 suspects", 5),
            ("2000-last", "2,000 suspects, `max_redeliver_count=1`", 10),
            ("50000", "50,000 suspects", 60),
            ("plain-50000", "50,000 messages, no policy", 60),
        )
        for what, metric, threshold in (
            (f"{how}: from kill -9 to the next message", "silence_s", 1),
            (f"{how}: from then to the {FIRST}th", f"first_{FIRST}_s", 1),
            (f"{how}: from then to the last", "done_s", done_s),
        )
    ),
    *(
        Requirement(
            f"`max_redeliver_count={most}`, one in ten refused: {what}",
            f"after-death/refusing-{most}",
            metric,
            Rule.BELOW,
            threshold,
        )
        for most in REDELIVERIES
        for what, metric, threshold in (
            ("share of their rate that the others lose", "lost", 0.2),
            ("from kill -9 until no suspect is left, s", "suspects_s", 20),
        )
    ),
    Requirement(
        "50,000 messages of a killed owner, no policy, beside one that closed",
        "after-death/plain-50000",
        "per_s",
        Rule.RATIO_AT_LEAST,
        0.5,
        "after-death/closed-50000",
    ),
    Requirement("latency p99, 8 processes on one partition, ms", "leases-latency/layer", "p99_ms", Rule.BELOW, 50),
    Requirement("added latency p99, ms", "latency/layer", "p99_ms", Rule.ADDS_AT_MOST, 5, "latency/raw"),
    Requirement("producer until first delivery, ms", "open/layer", "producer_ms", Rule.ADDS_AT_MOST, 100, "open/raw"),
    Requirement("consumer until first message, ms", "open/layer", "consumer_ms", Rule.ADDS_AT_MOST, 100, "open/raw"),
    Requirement("Key_Shared beside Pulsar", "key-shared/layer", "per_s", Rule.RATIO_AT_LEAST, 2, "key-shared/pulsar"),
    Requirement(
        "one of 20 consumers hangs: messages a second of the others, beside the same when none hangs",
        "key-shared-hung/layer",
        "others_per_s",
        Rule.RATIO_AT_LEAST,
        0.95,
        "key-shared-hung/none-hangs",
    ),
    Requirement(
        "1 % of the keys fail: messages a second of the others, beside the same when none fails",
        "key-shared-refusals/layer",
        "others_per_s",
        Rule.RATIO_AT_LEAST,
        0.95,
        "key-shared-refusals/none-fails",
    ),
    Requirement(
        "one of 20 consumers hangs: latency p99 of the others, beside the same when none hangs",
        "key-shared-hung/layer",
        "p99_ms",
        Rule.RATIO_AT_MOST,
        2,
        "key-shared-hung/none-hangs",
    ),
    Requirement(
        "ten million messages wait for a consumer that hangs, MB",
        "key-shared-waiting/layer",
        "peak_mb",
        Rule.BELOW,
        300,
    ),
    Requirement("delayed delivery beside Pulsar", "delayed/layer", "per_s", Rule.RATIO_AT_LEAST, 2, "delayed/pulsar"),
    *(
        Requirement(
            f"{what} {size} B beside Pulsar",
            f"peer-{worker}-{size}/layer",
            "per_s",
            Rule.RATIO_AT_LEAST,
            2,
            f"peer-{worker}-{size}/pulsar",
        )
        for worker, what in (("produce", "produce"), ("receive", "receive + acknowledge"))
        for size in (200, 1000)
    ),
    *(
        Requirement(
            f"{what} 200 B in batches beside Pulsar",
            f"batch-{worker}-200/layer",
            "per_s",
            Rule.RATIO_AT_LEAST,
            2,
            f"batch-{worker}-200/pulsar",
        )
        for worker, what in (("produce", "produce"), ("receive", "receive + acknowledge"))
    ),
    *(
        Requirement(
            f"{what}, {per_transaction} messages a transaction, {open_at_once} open, beside Pulsar",
            f"transactions-{per_transaction}-{open_at_once}/layer",
            metric,
            rule,
            1,
            f"transactions-{per_transaction}-{open_at_once}/pulsar",
        )
        for per_transaction, open_at_once in TRANSACTIONS
        for metric, rule, what in (
            ("per_s", Rule.RATIO_AT_LEAST, "transactions a second"),
            ("commit_p50_ms", Rule.RATIO_AT_MOST, "commit p50, ms"),
            ("commit_p99_ms", Rule.RATIO_AT_MOST, "commit p99, ms"),
        )
    ),
    *(
        Requirement(
            f"{what}, {per_transaction} messages a transaction, at the rate of Pulsar with {open_at_once} open",
            f"transactions-{per_transaction}-{open_at_once}/layer-paced",
            metric,
            Rule.RATIO_AT_MOST,
            1,
            f"transactions-{per_transaction}-{open_at_once}/pulsar",
        )
        for per_transaction, open_at_once in TRANSACTIONS
        if open_at_once > 1
        for metric, what in (("commit_p50_ms", "commit p50, ms"), ("commit_p99_ms", "commit p99, ms"))
    ),
    *(
        Requirement(
            f"{what} behind a million finished transactions, beside 10,000",
            f"transactions-start-up/{MILLION}",
            metric,
            Rule.ADDS_AT_MOST,
            100,
            "transactions-start-up/10000",
        )
        for metric, what in (("coordinator_ms", "coordinator serves, ms"), ("buffer_ms", "buffer is known, ms"))
    ),
    Requirement(
        "acknowledging while there are 10 million holes",
        "ack-rate/holes",
        "per_s",
        Rule.RATIO_AT_LEAST,
        0.8,
        "ack-rate/none",
    ),
    Requirement(
        "one of 1,000 cursors read back, ms",
        "many-cursors/1000",
        "first_delivery_ms",
        Rule.ADDS_AT_MOST,
        100,
        "many-cursors/1",
    ),
    *(
        Requirement(
            f"{what} of ten fields, encoded and decoded, beside the official class",
            f"schemas/{cell}",
            "per_s",
            Rule.RATIO_AT_LEAST,
            threshold,
            f"schemas/{cell}-official",
        )
        for cell, what, threshold in (("avro", "Avro", 1.5), ("json", "JSON", 1.5), ("protobuf", "Protobuf", 1.5))
    ),
    Requirement(
        "Protobuf of ten fields beside the package alone, the most that any class can reach",
        "schemas/protobuf",
        "per_s",
        Rule.RATIO_AT_LEAST,
        0.8,
        "schemas/protobuf-alone",
    ),
    *GATEWAY_REQUIREMENTS,
    *MANY_REQUIREMENTS,
    *SPARK_REQUIREMENTS,
)
