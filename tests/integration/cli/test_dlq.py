"""`pok dlq`: what a person sees and does about dead letters."""

from __future__ import annotations

import json

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.integration.admin.test_dead_letters import kill
from tests.integration.command_line import CommandLine
from tests.steps import Unique

pytestmark = pytest.mark.kafka


@pytest.fixture
def dlq(service_url: str) -> CommandLine:
    return CommandLine(service_url, "dlq")


@pytest.fixture
def letters(client: pulsar.Client, admin: AdminClient, unique: Unique) -> str:
    """Five letters of the subscription billing; one says why it died."""
    topic = unique("o")
    producer = client.create_producer(topic)
    for number in range(5):
        properties = {"n": str(number % 2)} | ({"reason": "card refused"} if number == 3 else {})
        producer.send(f"order {number}".encode(), properties, partition_key=f"k{number}")
    return kill(admin, client, topic, "billing", 5)


def test_they_are_found(dlq: CommandLine, letters: str, admin: AdminClient, unique: Unique) -> None:
    topic = letters.removesuffix("-billing-DLQ")
    table = dlq("list", topic).stdout.splitlines()
    assert table[0].split() == ["dead", "letter", "topic", "left", "subscription", "oldest"]
    assert table[2].split()[:3] == [f"public/default/{letters}", "5", "billing"]
    assert max(map(len, table)) - len(letters) + len("orders-billing-DLQ") <= 80
    (told,) = dlq.json("list", topic)
    assert isinstance(told.pop("oldest_ms"), int)
    assert told == {
        "topic": f"persistent://public/default/{letters}",
        "origin": f"persistent://public/default/{topic}",
        "subscription": "billing",
        "left": 5,
    }
    assert letters in dlq("list").stdout
    assert letters in dlq("list", "--namespace", "public").stdout
    assert "no/such" in dlq.refused("list", "--namespace", "no/such")
    assert "does not exist" in dlq.refused("list", unique())
    quiet = unique()
    admin.create_topic(quiet)
    assert dlq.json("list", quiet) == []


def test_they_are_shown(dlq: CommandLine, letters: str, unique: Unique) -> None:
    lines = dlq("show", letters, "--key", "k3").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    told = {name: value.strip() for name, value in (line.strip().split("  ", 1) for line in lines[1:])}
    assert told.pop("origin id").startswith("(")
    assert told == {
        "from": f"public/default/{letters.removesuffix('-billing-DLQ')}",
        "subscription": "billing",
        "delivered": "2 times",
        "why": "card refused",
        "key": "k3",
        "properties": "n=1,reason=card refused",
        "value": "order 3",
    }
    shown = [json.loads(line) for line in dlq("show", letters, "-n", "2", "--output", "json").stdout.splitlines()]
    assert len(shown) == 2
    assert {each["deliveries"] for each in shown} == {2}
    assert {each["subscription"] for each in shown} == {"billing"}
    assert shown[0]["message_id"] == dlq("show", letters, "-n", "1").stdout.split()[0]
    assert dlq("show", letters).stderr == ""
    ordinary = dlq("show", letters.removesuffix("-billing-DLQ"))
    assert "a dead letter topic? `pok dlq list` lists those" in ordinary.stderr
    assert "does not exist" in dlq.refused("show", unique())
    assert "expected" in dlq("show", letters, "--id", "x", exits=2).stderr
    assert "expected name=value" in dlq("show", letters, "--filter", "x", exits=2).stderr


def test_they_are_put_back(dlq: CommandLine, letters: str, service_url: str) -> None:
    topic = f"public/default/{letters.removesuffix('-billing-DLQ')}"
    told = dlq("redrive", letters, "--dry-run", "--filter", "n=1").stdout
    assert told == f"2 letters would be put back: 2 to {topic}\n"
    assert dlq("redrive", letters, "--filter", "n=1").stdout == f"2 letters put back: 2 to {topic}\n"
    assert dlq.json("list", letters)[0]["left"] == 3
    first = json.loads(dlq("show", letters, "-n", "1", "--output", "json").stdout)
    gone = dlq("redrive", letters, "--id", first["message_id"], "--id", "0:77", exits=1)
    assert gone.stdout == f"1 letter put back: 1 to {topic}\n"
    assert gone.stderr == "pok: 1 id of 2 named no remaining letter\n"
    assert dlq.json("redrive", letters) == {
        "put_back": 2, "to": {f"persistent://{topic}": 2}, "without_origin": 0,
    }  # fmt: skip
    assert dlq("redrive", letters).stdout == "0 letters put back\n"
    assert dlq.json("list", letters)[0]["left"] == 0
    there = CommandLine(service_url, "peek")(topic, "-n", "0").stdout.splitlines()
    assert sorted(line.split("\t")[3] for line in there) == sorted(2 * [f"order {number}" for number in range(5)])


def test_they_are_dropped_when_somebody_says_so(dlq: CommandLine, letters: str) -> None:
    assert dlq.refused("drop", letters) == "pok: nothing was done: use --yes to do it"
    assert dlq.json("list", letters)[0]["left"] == 5
    told = dlq("drop", letters, "--filter", "n=1", "--yes")
    assert told.stderr == f"pok will drop 2 dead letters of {letters}\n"
    assert told.stdout == "2 letters dropped\n"
    assert dlq.json("drop", letters, "-n", "1", "--yes") == {"dropped": 1}
    assert dlq("drop", letters, "--yes").stdout == "2 letters dropped\n"
    assert dlq("drop", letters, "--yes").stdout == "0 letters dropped\n"
    assert dlq("show", letters).stdout == ""


def test_letters_that_name_no_topic_wait_for_one(
    dlq: CommandLine, client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    letters, target, gone = unique() + "-DLQ", unique(), unique()
    client.create_producer(letters).send(b"nobody's")
    told = dlq("redrive", letters)
    assert told.stdout == "0 letters put back\n"
    assert told.stderr == "1 letter names no topic: use --to\n"
    assert f"{target} does not exist" in dlq.refused("redrive", letters, "--to", target)
    admin.create_topic(target)
    assert dlq("redrive", letters, "--to", target).stdout == f"1 letter put back: 1 to public/default/{target}\n"
    client.create_producer(letters).send(b"lost", {"REAL_TOPIC": gone})
    assert f"{gone} does not exist: name another topic" in dlq.refused("redrive", letters)
    assert f"persistent://public/default/{gone}" not in admin.list_topics()
    assert "that they are in" in dlq.refused("redrive", letters, "--to", letters)
