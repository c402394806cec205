"""The measured programs of maintenance: what keeping lists of ledgers costs."""

from __future__ import annotations

import time
from typing import Any, Final

from benchmarks.sent_requests import COUNTED, SentRequests
from benchmarks.session import run_worker
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.managed_ledger.deletion import DeletionVerdict
from pulsar_on_kafka.client.client import Client
from pulsar_on_kafka.service.running import LedgerDeletion
from tests.waiting import until
from tests.watched_rounds import WatchedMaintenance

_PER: Final = 10_000
"""Ledgers."""
_PATIENCE_S: Final = 600.0
_SIZE: Final = 200


def lists(sdk: str, url: str, topic: str, messages: int, topics: int, entries_per_ledger: int) -> dict[str, Any]:
    """Fill `topics` topics with `messages` in all; then, in processes of their own, measure every ledger of the
    cluster, and make rounds that find nothing to do: once for the processor's time, once for the requests to Kafka."""
    _fill(url, topic, messages, topics, entries_per_ledger)
    figures = run_worker("maintenance_workers", "keep", {"url": url, "count": False})
    requests = run_worker("maintenance_workers", "keep", {"url": url, "count": True})
    return {
        "ledgers": figures["ledgers"],
        "measure_cpu_s": figures["measure_cpu_s"],
        "measure_s": figures["measure_s"],
        "measure_requests": requests["measure_requests"],
        "round_cpu_s": figures["round_cpu_s"],
        "round_requests": requests["round_requests"],
        "worker_peak_mb": figures["peak_mb"],
    }


def keep(url: str, count: bool) -> dict[str, Any]:
    """All figures but `ledgers` are for `_PER` ledgers."""
    requests = SentRequests() if count else None
    admin = AdminClient(url, operation_timeout_seconds=_PATIENCE_S, kafka_config=COUNTED if count else None)
    cpu_s, start_s = time.process_time(), time.monotonic()
    ledgers = admin.rebuild_ledgers()
    measured_cpu_s, measured_s = time.process_time() - cpu_s, time.monotonic() - start_s
    measured = requests.taken(admin) if requests is not None else 0
    maintenance = WatchedMaintenance(admin.node)
    if not maintenance.wait_until_listed(Deadline.after(_PATIENCE_S)):
        raise RuntimeError("the lists are not complete in time")
    if requests is not None:
        requests.taken(admin)
    rounds, cpu_s = maintenance.rounds, time.process_time()
    while maintenance.rounds < rounds + 10:
        maintenance.wait_for_round(Deadline.after(_PATIENCE_S))
    rounds, cpu_s = maintenance.rounds - rounds, time.process_time() - cpu_s
    quiet = requests.taken(admin) if requests is not None else 0
    maintenance.close(Deadline.after(_PATIENCE_S))
    admin.close()
    return {
        "ledgers": ledgers,
        "measure_cpu_s": round(measured_cpu_s * _PER / ledgers, 2),
        "measure_s": round(measured_s * _PER / ledgers, 2),
        "measure_requests": round(measured * _PER / ledgers),
        "round_cpu_s": round(cpu_s / rounds * _PER / ledgers, 3),
        "round_requests": round(quiet / rounds * _PER / ledgers),
    }


def deletions(sdk: str, url: str, topic: str, messages: int, topics: int, entries_per_ledger: int) -> dict[str, Any]:
    """Fill topics, and have every ledger listed; then retire and delete all that are closed, in a process of its own.
    There is an event for each ledger."""
    _fill(url, topic, messages, topics, entries_per_ledger)
    with AdminClient(url, operation_timeout_seconds=_PATIENCE_S) as admin:
        admin.rebuild_ledgers()
    names = [f"{topic}-{number}" for number in range(topics)]
    return run_worker("maintenance_workers", "delete", {"url": url, "topics": names})


def delete(url: str, topics: list[str]) -> dict[str, Any]:
    with AdminClient(url) as admin:
        stats = [admin.topic_stats(topic) for topic in topics]
        closed = {each.topic: each.end_offsets[0] // each.entries_per_ledger for each in stats}
        wanted = {each.topic: closed[each.topic] * each.entries_per_ledger for each in stats}
        ledgers = sum(closed.values())
        client = Client.on(admin.node)
        deletion = LedgerDeletion(client, admin.node)
        cpu_s, start_s = time.process_time(), time.monotonic()
        worker = deletion.work()
        maintenance = WatchedMaintenance(admin.node, retirement=deletion.retirement)

        def all_done() -> bool:
            counts = worker.counts()
            return counts[DeletionVerdict.DELETE.value] + counts[DeletionVerdict.DONE.value] >= ledgers

        until(all_done, lambda: f"everything to be deleted: {worker.counts()}", _PATIENCE_S)
        taken_s, cpu_s = time.monotonic() - start_s, time.process_time() - cpu_s
        left = {name: admin.topic_stats(name).start_offsets[0] for name in wanted}
        if left != wanted:
            raise RuntimeError(f"logs start at {left}, not at {wanted}")
        maintenance.close(Deadline.after(_PATIENCE_S))
        deletion.close(Deadline.after(_PATIENCE_S))
        client.close()
    return {
        "ledgers": ledgers,
        "ledgers_per_s": round(ledgers / taken_s),
        "seconds": round(taken_s, 1),
        "cpu_s": round(cpu_s * _PER / ledgers, 2),
    }


def _fill(url: str, topic: str, messages: int, topics: int, entries_per_ledger: int) -> None:
    with AdminClient(url) as admin:
        client = Client(url)
        payload = b"x" * _SIZE
        for number in range(topics):
            name = f"{topic}-{number}"
            admin.create_topic(name, entries_per_ledger=entries_per_ledger)
            producer = client.create_producer(name, block_if_queue_full=True, max_pending_messages=10_000)
            for _ in range(messages // topics):
                producer.send_async(payload, None)
            producer.close()
        client.close()
