"""Completion, profiles and maps of tenants on a real broker, and what `pok serve` logs and tells systemd."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.broker.metadata.policies import POLICIES
from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.cli.shared import completing
from tests.programs import ROOT
from tests.steps import EARLIEST, SHARED, Unique, receive, send

Complete = Callable[..., list[str]]


def asked_by_bash(words: Sequence[str], url: str) -> dict[str, str]:
    """The environment in which bash has `pok` complete the last of these words."""
    line = {"COMP_WORDS": " ".join(("pok", *words)), "COMP_CWORD": str(len(words))}
    return {"POK_URL": url, "_POK_COMPLETE": "complete_bash", **line}


@pytest.fixture
def complete() -> Complete:
    """`complete("topics", "stats", "ord", url=url)`: what bash offers for the last word."""

    def offered(*words: str, url: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-m", "pulsar_on_kafka.cli"],
            cwd=ROOT,
            env={**os.environ, **asked_by_bash(words, url)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stderr == ""
        return done.stdout.split()

    return offered


@pytest.fixture
def complete_here(service_url: str, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """The same in this process, of the test's broker, and with more than the 0.3 s in which a busy machine may offer
    nothing."""
    monkeypatch.setattr(completing, "WITHIN_S", 60.0)
    monkeypatch.setattr(completing, "_CONNECT_S", 60.0)

    def offered(*words: str) -> list[str]:
        asked = asked_by_bash(words, service_url)
        lines = CliRunner().invoke(app, [], prog_name="pok", env=asked).output.splitlines()
        return [name for name in lines if name]  # nothing is an empty line

    return offered


def test_names_of_topics_are_completed(
    client: pulsar.Client, admin: AdminClient, unique: Unique, complete_here: Complete
) -> None:
    topic, other = unique("compl.eted_"), unique("compl.eted_")
    admin.create_partitioned_topic(topic, 2)
    send(client, other, 1)
    offered = complete_here("topics", "stats", "compl.eted_")
    assert {topic, other} <= set(offered)
    assert all(each.startswith("compl.eted_") for each in offered)
    assert complete_here("topics", "stats", topic[:-1]) == [topic]
    assert complete_here("topics", "stats", f"public/default/{topic[:-1]}") == [f"public/default/{topic}"]
    assert complete_here("consume", topic[:-1]) == [topic]
    offered = complete_here("topics", "stats", "pulsar/")
    assert [each for each in offered if "system" in each] == []


def test_names_of_subscriptions_are_completed(
    client: pulsar.Client, admin: AdminClient, unique: Unique, complete_here: Complete
) -> None:
    topic, other = unique(), unique()
    for name in (topic, other):
        admin.create_partitioned_topic(name, 2)
    admin.create_subscription(topic, "billing für alle")
    client.subscribe(topic, "bill", SHARED).close()
    client.subscribe(other, "bilge").close()
    for where in (topic, f"public/default/{topic}", f"persistent://public/default/{topic}"):
        assert complete_here("subscriptions", "stats", where, "-s", "bil") == ["bill", "billing für alle"]
    assert complete_here("consume", topic, "--subscription", "bill") == ["bill", "billing für alle"]
    assert complete_here("subscriptions", "stats", "-s", "bil") == []
    assert complete_here("subscriptions", "stats", "a:b://c", "-s", "bil") == []


def test_policies_are_completed_without_a_cluster(complete: Complete) -> None:
    offered = complete("topics", "policy", "get", "orders", "ret", url="kafka://localhost:1")
    assert offered == sorted(name for name in POLICIES if name.startswith("ret"))
    assert offered


def test_a_cluster_that_is_away_or_silent_costs_little_and_says_nothing(complete: Complete) -> None:
    assert complete("topics", "stats", "ord", url="kafka://localhost:1") == []
    assert complete("topics", "stats", "ord", url="no url") == []
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never answers
        url = f"kafka://127.0.0.1:{silent.getsockname()[1]}"
        context = _Context({"url": url})
        completing.complete_topic(context, "ord")  # type: ignore[arg-type]  # what it needs is imported now
        began = time.monotonic()
        assert completing.complete_topic(context, "ord") == []  # type: ignore[arg-type]
        assert time.monotonic() - began < 5  # it waits for 0.3 s; a busy machine does not always let it run


class _Context:
    """What a completion asks of click's context."""

    def __init__(self, params: dict[str, object]) -> None:
        self.params = params

    def find_root(self) -> _Context:
        return self


def _pok(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pulsar_on_kafka.cli", *arguments],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_profile_serves_the_command_line_and_the_sdk(
    service_url: str, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, topic = tmp_path / "config.toml", unique()
    config.write_text(f"[profiles.here]\nurl = {service_url!r}\noutput = 'json'\nkafka = {{ 'client.rack' = 'a' }}\n")
    monkeypatch.setenv("POK_CONFIG", str(config))
    monkeypatch.delenv("POK_URL", raising=False)
    client = pulsar.Client(profile="here")
    send(client, topic, 1)
    client.close()
    assert json.loads(_pok("topics", "list", POK_PROFILE="here")).count(f"persistent://public/default/{topic}") == 1
    assert f"persistent://public/default/{topic}\n" in _pok("--profile", "here", "topics", "list", "--output", "table")


@pytest.mark.long
def test_a_map_of_tenants_serves_the_command_line(service_url: str, unique: Unique, tmp_path: Path) -> None:
    tenants, topic = tmp_path / "tenants.json", unique()
    tenants.write_text(json.dumps({"clusters": {"here": service_url}, "tenants": {"public": "here"}}))
    url = f"pok+map://{tenants}"
    _pok("--url", url, "produce", topic, "-m", "one")
    assert "one" in _pok("--url", url, "consume", topic, "-s", "s", "--initial", "earliest")
    assert f"persistent://public/default/{topic}" in _pok("--url", url, "topics", "stats", topic)
    assert topic in _pok("--url", url, "topics", "list", "public/default")
    assert "s" in _pok("--url", url, "subscriptions", "list", topic)


def test_a_service_tells_its_manager_when_it_serves_and_logs_as_it_is_asked(service_url: str, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        command = [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", service_url, "serve", "--port", "0"]
        process = subprocess.Popen(
            [*command, "--log-format", "json", "--only", "deletion"],
            cwd=ROOT, env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "POK_LOG_LEVEL": "info"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            while not (told := manager.recv(1000).decode()).startswith("READY=1"):
                assert told.startswith("STATUS=")
            assert told == "READY=1\nSTATUS=serving deletion"
            process.send_signal(signal.SIGTERM)
            while manager.recv(1000) != b"STOPPING=1":
                pass
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert out == f"serving {service_url}: deletion\n"
    lines = [json.loads(line) for line in err.splitlines()]
    assert [lines[0]["message"].startswith("metrics and health on port "), lines[0]["level"]] == [True, "INFO"]
    assert "stopping ..." in [line["message"] for line in lines]


@pytest.mark.long
def test_stats_are_read_at_80_columns_and_an_id_is_taken_as_it_is_shown(
    client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique("o")
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST, consumer_name="worker-1")
    send(client, topic, 3)
    message = receive(consumer, 3)[1]
    consumer.acknowledge(message, wait=True)
    told = _pok("--url", service_url, "subscriptions", "stats", topic, "-s", "s")
    tables = told.partition("\n\n")[2]
    assert max(map(len, tables.splitlines())) <= 80
    assert re.search(rf"\S+ \({re.escape(socket.gethostname())}:{os.getpid()}\) +0 *$", tables, re.MULTILINE)
    assert f"{socket.gethostname()}:{os.getpid()}" in tables.splitlines()[-1]
    shown = _pok("--url", service_url, "subscriptions", "show", topic, "-s", "s")
    (ledger,) = set(re.findall(r"0 - 49,999 +(\d+) ", shown))
    assert int(ledger) == message.message_id().ledger_id()
    listed = _pok(
        "--url", service_url, "subscriptions", "reset", topic, "-s", "s", "--message-id", f"{ledger}:0", "--yes"
    )
    assert "backlog" in listed
