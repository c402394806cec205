"""`pok serve` processes that are killed, stopped and left without a broker; clients that stand in for them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.processes import is_over, stands_in
from pulsar_on_kafka.broker.managed_ledger.deletion_topics import maintenance_group
from pulsar_on_kafka.broker.node import fallback_roles
from pulsar_on_kafka.embedded import EmbeddedBroker
from pulsar_on_kafka.kafka.settings import SESSION_TIMEOUT_MS
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import LEDGERS
from tests.steps import Unique
from tests.waiting import PATIENCE_S, until

_ROOT = Path(__file__).parents[2]
_ALL = LEDGERS.partitions


class ServiceProcess:
    """`pok serve` on a free port, and what it says."""

    def __init__(self, url: str, *arguments: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", url, "serve", "--port", "0", *arguments],
            cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self._ear = threading.Thread(target=self._listen)
        self._ear.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        self.lines += []
        for line in self.process.stdout:
            self.lines.append(re.sub(r"^\S+Z [A-Z]+ ", "", line.rstrip("\n")))  # time and level

    def says(self, beginning: str) -> str:
        found: list[str] = []

        def said() -> bool:
            found[:] = [line for line in self.lines if line.startswith(beginning)]
            return bool(found) or self.process.poll() is not None

        until(said, lambda: f"it says {beginning!r}: {self.lines[-5:]}")
        assert found, self.lines
        return found[-1]

    def get(self, path: str) -> tuple[int, str]:
        port = self.says("metrics and health on port ").rpartition(" ")[2]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    def is_ready(self) -> bool:
        return self.get("/health/ready")[0] == 200

    def role(self, name: str) -> Any:
        return json.loads(self.get("/health/live")[1])["duties"][name]

    def owned(self) -> int:
        return int(self.role("maintenance")["partitions"])

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        self._ear.join(PATIENCE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


@contextmanager
def served(url: str, *arguments: str) -> Iterator[ServiceProcess]:
    service = ServiceProcess(url, *arguments)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.end(signal.SIGKILL)


def test_services_share_the_work_take_over_and_outlast_their_broker(own_broker: EmbeddedBroker) -> None:
    url = f"kafka://{own_broker.bootstrap}"
    with served(url) as first, served(url, "--debug") as second:
        assert "maintenance" in first.says("serving ")
        second.says("serving ")
        until(lambda: 0 < first.owned() < _ALL and first.owned() + second.owned() == _ALL, "they share")
        until(lambda: first.role("maintenance")["turns"]["ledgers"]["done"], "rounds are made")
        assert "pok_duty_partitions{" in first.get("/metrics")[1]
        killed_s = time.monotonic()
        first.end(signal.SIGKILL)
        until(lambda: second.owned() == _ALL, "the other one takes over")
        # On a machine so busy that the removal takes six seconds, Kafka's session is over before it.
        if time.monotonic() - killed_s < SESSION_TIMEOUT_MS / 1000:
            said = f"group={maintenance_group(Instance())} removed 1 dead members"
            until(lambda: any(said in line for line in second.lines), lambda: f"{said!r}: {second.lines}")

        own_broker.kill()
        until(lambda: not second.is_ready(), "it is not ready without a broker")
        assert second.get("/health/live")[0] == 200
        second.says("not ready: Kafka: ")
        with served(url) as early:
            early.says("waiting for Kafka at ")
            assert (early.get("/health/live")[0], early.is_ready()) == (200, False)
            own_broker.start()
            early.says("serving ")
            second.says("ready again")
            until(lambda: 0 < early.owned() < _ALL and early.owned() + second.owned() == _ALL, "they share")
            assert early.end(signal.SIGINT) == 0
        until(lambda: second.owned() == _ALL, "the other one has all again")
        assert second.end() == 0
        assert "stopping ..." in second.lines


def test_a_client_stands_in_while_no_service_is_there(service_url: str, unique: Unique, monkeypatch: Any) -> None:
    for name in ("FIRST_S", "SURE_S", "WHILE_S", "EVERY_S", "LOOK_S"):
        monkeypatch.setattr(fallback_roles, name, 0.05)
    monkeypatch.setattr("pulsar_on_kafka.client.connection.session.LOOK_S", 0.05)
    with AdminClient(service_url) as admin:
        client = pulsar.Client(service_url, stand_in=True)
        client.get_topic_partitions(unique())
        node = admin.node

        def members() -> list[str]:
            described = node.admin.describe_group(maintenance_group(Instance()), Deadline.after(PATIENCE_S))
            return [member.client_id for member in described.members if not is_over(member.client_id)]

        until(lambda: node.stand_in.standing and any(map(stands_in, members())), "it stands in")
        until(lambda: sum(state.partitions for state in node.roles[0].states()) == _ALL, "it has its share")
        with served(service_url) as service:
            service.says("serving ")
            until(lambda: not node.stand_in.standing and not any(map(stands_in, members())), "it leaves")
            until(lambda: service.owned() == _ALL, "the service has all")
            service.end(signal.SIGKILL)
        until(lambda: node.stand_in.standing, "it stands in again")
        until(lambda: sum(state.partitions for state in node.roles[0].states()) == _ALL, "it has its share")
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        client.close()
        assert not node.stand_in.standing
        assert node.roles == []
