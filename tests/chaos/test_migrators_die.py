"""A tenant moves there and back while whoever moves it is killed again and again, at random."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from tests.chaos.replication_rounds import Service
from tests.clusters.cluster import Cluster, clusters_of, embedded_broker
from tests.clusters.program import Program
from tests.steps import Unique
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(0)]

_ROOT = Path(__file__).parents[2]
_PATIENCE_S = 300.0
_IN_FLIGHT = 50
"""Messages that may come again over two switches: what the consumer had when each began."""


class Migrator:
    """`pok migrate`, said again as often as it is killed."""

    def __init__(self, home: Cluster, tenant: str, chance: random.Random, log: Path) -> None:
        self._command = [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", home.url, "migrate"]
        self._tenant = tenant
        self._chance = chance
        self._log = log
        self.kills = 0

    def does(self, *words: str, most_kills: int = 4) -> None:
        """Fails when it says that it cannot: but for one that finds it done, which a killed one may have left."""
        until = Deadline.after(_PATIENCE_S)
        for patience_s in (*(self._chance.uniform(0.5, 6) for _ in range(most_kills)), None):
            with self._log.open("ab") as errors:
                process = subprocess.Popen(
                    [*self._command, words[0], self._tenant, *words[1:]], cwd=_ROOT, stderr=errors
                )
            try:
                code = process.wait(until.remaining_s() if patience_s is None else patience_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                self.kills += 1
                continue
            finally:
                process.kill()
            assert code == 0 or "cannot" in self._log.read_text().splitlines()[-1], self._log.read_text()[-2000:]
            return
        pytest.fail(f"pok migrate {words} was not done in {_PATIENCE_S} s: {self._log.read_text()[-2000:]}")


def test_whoever_moves_a_tenant_dies(unique: Unique, tmp_path: Path) -> None:
    """For POK_CHAOS_SECONDS (600); POK_CHAOS_SEED runs a printed round again."""
    seed = int(os.environ.get("POK_CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
    with ExitStack() as stack:
        urls = {name: f"kafka://{stack.enter_context(embedded_broker()).bootstrap}" for name in ("west", "east")}
        clusters = stack.enter_context(clusters_of(urls))
        for name, cluster in clusters.items():
            stack.callback(Service(cluster.url, tmp_path / f"{name}.log").kill)
        until = time.monotonic() + float(os.environ.get("POK_CHAOS_SECONDS", "600"))  # brokers are there
        while time.monotonic() < until:
            print(f"\nround: POK_CHAOS_SEED={seed}", flush=True)
            _round(clusters, unique("tenant"), random.Random(seed), tmp_path / f"{seed}.log")
            seed += 1


def _round(clusters: dict[str, Cluster], tenant: str, chance: random.Random, log: Path) -> None:
    west = clusters["west"].admin
    topic = f"persistent://{tenant}/eu/orders"
    west.create_namespace(f"{tenant}/eu")
    west.create_partitioned_topic(topic, 2, entries_per_ledger=500)
    west.assign_tenant(tenant, "west")
    migrator = Migrator(clusters["west"], tenant, chance, log)
    with clusters["west"].lookup_port() as port:
        program = Program(f"pok+lookup://127.0.0.1:{port}", topic, send_timeout_ms=0)

        def goes_on() -> None:
            before = len(program.received)
            until(lambda: len(program.received) > before + 200, lambda: f"messages to go on coming: {log}", _PATIENCE_S)

        goes_on()
        migrator.does("run", "--to", "east")
        threading.Event().wait(chance.uniform(0, 2))
        migrator.does("switch", "--yes")
        goes_on()
        assert west.tenant_place(tenant).cluster == "east"  # type: ignore[union-attr]
        migrator.does("rollback", "--yes")
        goes_on()
        assert west.tenant_place(tenant).cluster == "west"  # type: ignore[union-attr]
        program.end()
    print(f"{migrator.kills} were killed, {program.sent} messages", flush=True)
    program.check(_IN_FLIGHT)
