"""`pok top` in a terminal: what it shows, what keys do, and how it ends."""

from __future__ import annotations

import secrets
import signal

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.integration.command_line import CommandLine
from tests.integration.overview.terminals import COLUMNS, pok_in_terminal
from tests.steps import receive, send

pytestmark = pytest.mark.kafka


def test_it_shows_sorts_opens_and_ends(client: pulsar.Client, admin: AdminClient, service_url: str) -> None:
    namespace = f"shop-{secrets.token_hex(4)}/sales"
    admin.create_namespace(namespace)
    consumers = []
    for name, count in (("few", 4), ("many", 40)):
        consumer = client.subscribe(f"{namespace}/{name}", "billing", pulsar.ConsumerType.Shared)
        send(client, f"{namespace}/{name}", count)
        for message in receive(consumer, count)[::2]:
            consumer.acknowledge(message)
        consumer.flush()
        consumers.append(consumer)
    with pok_in_terminal(service_url, "top", "--namespace", namespace, "--every", "0.5") as terminal:
        text = terminal.shows("q: quit")
        assert "2 subscriptions of 2 topics" in text
        assert "backlog 22, 0 dead letters" in text
        assert text.index("/many/bill") < text.index("/few/bill")
        assert max(map(len, text.splitlines())) <= COLUMNS
        terminal.press("n")
        text = terminal.shows("by name")
        shown = text[text.index("by name") :]
        assert shown.index("/few/bill") < shown.index("/many/bill")
        terminal.press("\r")
        text = terminal.shows("a ledger begins")
        assert f"billing of persistent://{namespace}/few, Shared" in text
        assert "partition 0: backlog 2, 1 holes" in text
        text = terminal.shows("permits")
        assert "1000" in text or "999" in text
        terminal.press("\x1b")
        terminal.shows("by name")
        terminal.press("q")
        assert terminal.ends() == 0
        assert "\x1b[?1049l" in terminal.raw, "the screen from before is back"
    for consumer in consumers:
        consumer.close()


@pytest.mark.long
def test_what_comes_is_shown_without_a_key(client: pulsar.Client, admin: AdminClient, service_url: str) -> None:
    namespace = f"shop-{secrets.token_hex(4)}/watched"  # of its own: the screen shows those that come first
    admin.create_namespace(namespace)
    topic = f"{namespace}/orders"
    client.subscribe(topic, "billing").close()
    with pok_in_terminal(service_url, "top", "--namespace", namespace, "--every", "0.5") as terminal:
        terminal.shows("q: quit")
        terminal.press("r")
        send(client, topic, 7_654)
        terminal.shows("7,654")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ends() == 130


def test_without_a_terminal_it_names_what_shows_the_same(service_url: str) -> None:
    assert "pok overview" in CommandLine(service_url, "top").refused()
