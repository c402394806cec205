"""`pok overview`: what it prints, in a terminal of 80 columns and as JSON, and how it ends."""

from __future__ import annotations

import json
import secrets

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.integration.command_line import CommandLine
from tests.integration.overview.terminals import COLUMNS, pok_in_terminal
from tests.steps import Unique, receive, send

pytestmark = pytest.mark.kafka


@pytest.fixture
def pok(service_url: str) -> CommandLine:
    return CommandLine(service_url, "overview")


@pytest.fixture
def namespace(admin: AdminClient) -> str:
    """A namespace of the test's own, with a name that leaves room."""
    name = f"shop-{secrets.token_hex(4)}/sales"
    admin.create_namespace(name)
    return name


def with_holes(client: pulsar.Client, topic: str, name: str, count: int) -> pulsar.Consumer:
    consumer = client.subscribe(topic, name, pulsar.ConsumerType.Shared)
    send(client, topic, count)
    for message in receive(consumer, count)[::2]:
        consumer.acknowledge(message)
    consumer.flush()
    return consumer


def test_json_has_every_subscription_and_each_partition(
    client: pulsar.Client, pok: CommandLine, namespace: str
) -> None:
    consumer = with_holes(client, f"{namespace}/orders", "billing", 10)
    found = pok.json("--namespace", namespace)
    assert (found["tenants"], found["namespaces"]) == ([namespace.split("/")[0]], [namespace])
    assert (found["by_commits"], found["incomplete"]) == (True, [])
    [told] = found["subscriptions"]
    assert (told["topic"], told["subscription"], told["type"]) == (
        f"persistent://{namespace}/orders", "billing", "Shared"
    )  # fmt: skip
    assert (told["backlog"], told["acknowledged"], told["holes"], told["dead_letters"]) == (5, 4, 4, 0)
    assert (told["acknowledged_per_s"], told["published_per_s"]) == (None, None)
    [partition] = told["partitions"]
    assert (partition["start"], partition["end"], partition["mark_delete"], partition["backlog"]) == (0, 10, 0, 5)
    assert partition["owner"] in told["processes"]
    assert partition["oldest"] <= partition["idle_since"]
    [topic] = found["topics"]
    assert (topic["entries"], topic["partitions"]) == (10, 1)
    consumer.close()


def test_rates_take_a_second_look(client: pulsar.Client, pok: CommandLine, namespace: str) -> None:
    consumer = with_holes(client, f"{namespace}/orders", "billing", 4)
    [told] = pok.json("--namespace", namespace, "--rates", "0.1")["subscriptions"]
    assert (told["acknowledged_per_s"], told["published_per_s"]) == (0.0, 0.0)
    consumer.close()


@pytest.mark.long
def test_the_table_fits_80_columns_and_what_is_worst_comes_first(
    client: pulsar.Client, service_url: str, namespace: str
) -> None:
    small = with_holes(client, f"{namespace}/a-topic-with-a-name-of-some-length", "a-subscription-too", 4)
    great = with_holes(client, f"{namespace}/orders", "billing", 40)
    with pok_in_terminal(service_url, "overview", "--tenant", namespace.split("/")[0], "--rates", "0.1") as terminal:
        assert terminal.ends() == 0
        lines = terminal.text.splitlines()
    assert max(map(len, lines)) <= COLUMNS
    assert lines[2] == "in all      2 subscriptions of 2 topics"
    assert lines[3].strip() == "backlog 22, 0 dead letters, 0 open transactions"
    [head] = [line for line in lines if "backlog" in line and "oldest" in line]
    assert head.split() == ["subscription", "backlog", "holes", "oldest", "acked/s", "new/s", "run", "by"]
    numbers = [line.split()[1:3] for line in lines if len(line.split()) >= 5 and line.split()[1] in ("20", "2")]
    assert numbers == [["20", "19"], ["2", "1"]]
    small.close()
    great.close()


def test_without_a_second_look_the_table_has_no_rates(client: pulsar.Client, pok: CommandLine, namespace: str) -> None:
    topic = f"{namespace}/orders"
    consumer = with_holes(client, topic, "billing", 10)
    consumer.close()
    text = pok("--namespace", namespace).stdout
    row = next(line for line in text.splitlines() if "orders/billing" in line).split()
    assert row[:3] == [f"{namespace}/orders/billing", "5", "4"]
    assert "acked/s" not in text


def test_unconsumed_ones_are_listed_alone(client: pulsar.Client, pok: CommandLine, namespace: str) -> None:
    with_holes(client, f"{namespace}/orders", "billing", 10).close()
    consumer = with_holes(client, f"{namespace}/orders", "audit", 4)
    text = pok("--namespace", namespace, "--only", "unconsumed").stdout
    assert "orders/billing" in text
    assert "unconsumed" in text
    assert "1 unconsumed" in text
    assert "orders/audit" not in text
    [told] = pok.json("--namespace", namespace, "--only", "unconsumed")["subscriptions"]
    assert (told["subscription"], told["state"], told["catch_up_s"]) == ("billing", "unconsumed", None)
    assert pok.json("--namespace", namespace, "--only", "stuck")["subscriptions"] == []
    consumer.close()


def test_slow_ones_need_two_looks(pok: CommandLine) -> None:
    assert pok.refused("--only", "slow", "--rates", "5").endswith("add --rates 30, or more")


def test_what_does_not_exist_is_said_with_what_does(pok: CommandLine, unique: Unique) -> None:
    assert "does not exist; there are " in pok.refused("--tenant", unique("nobody"))
    assert pok.refused("--namespace", "nobody/nowhere").endswith("(pok namespaces list)")
    assert "--sort" in pok("--sort", "colour", exits=2).stderr


def test_a_cluster_without_anything_shows_what_exists(pok: CommandLine, namespace: str) -> None:
    assert pok("--namespace", namespace).stdout.splitlines()[1:] == [
        f"namespaces  {namespace}",
        "in all      0 subscriptions of 0 topics",
        "            backlog 0, 0 dead letters, 0 open transactions",
    ]
    assert json.loads(pok("--namespace", namespace, "--output", "json").stdout)["subscriptions"] == []
