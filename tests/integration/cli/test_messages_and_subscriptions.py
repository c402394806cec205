"""`pok produce`, `pok consume` and `pok subscriptions` on a real broker."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from zlib import crc32

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.integration.cli.conftest import Pok, running
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka


# Produce and consume --------------------------------------------------------------------------------------------------


def test_what_is_produced_is_consumed(done: Pok, unique: Unique) -> None:
    topic = unique()
    ids = done("produce", topic, "-m", "hello", "-m", "two\nlines", "--key", "AA", "-p", "a=1", "-p", "b=x=y").lines
    taken = done("consume", topic, "-s", "audit", "--initial", "earliest", "-n", "2").lines
    assert taken == [f"{ids[0]}\tAA\ta=1,b=x=y\thello", rf"{ids[1]}" + "\tAA\ta=1,b=x=y\ttwo\\nlines"]


def test_json_tells_everything(done: Pok, unique: Unique) -> None:
    topic = unique()
    done("topics", "create", topic, "--partitions", "1")
    sent = [json.loads(line) for line in done("produce", topic, "-m", "Grüße", "--output", "json").lines]
    taken = done("consume", topic, "-s", "audit", "--initial", "earliest", "--output", "json").json
    assert taken["message_id"] == sent[0]["message_id"]
    assert taken["topic"] == f"persistent://public/default/{topic}-partition-0"
    assert (taken["payload"], taken["key"], taken["properties"]) == ("Grüße", None, {})
    assert abs(taken["publish_time_ms"] - time.time() * 1000) < 60_000


def test_lines_of_a_file_and_of_standard_input(done: Pok, unique: Unique, tmp_path: Path) -> None:
    topic = unique()
    file = tmp_path / "lines"
    file.write_bytes(b"one\r\n\n\xff\xfe\nlast")
    assert done("produce", topic, "--file", str(file), "-n", "2", "--quiet").lines == ["8 messages stored"]
    assert done("produce", topic, "--file", "-", "-q", "--output", "json", stdin=b"in\n").json == {"stored": 1}
    taken = done("consume", topic, "-s", "s", "--initial", "earliest", "-n", "9").lines
    assert [line.split("\t")[3] for line in taken] == [*(["one", "", "base64://4=", "last"] * 2), "in"]


def test_many_messages_and_a_rate(done: Pok, unique: Unique) -> None:
    topic = unique()
    ids = done("produce", topic, "-m", "x", "-n", "20000").lines
    assert len(set(ids)) == 20_000
    start = time.monotonic()
    done("produce", topic, "-m", "x", "-n", "11", "--rate", "20")
    assert time.monotonic() - start >= 0.5
    assert done("--output", "json", "topics", "stats", topic).json["entries"] == 20_011


def test_a_message_that_is_too_big(refused: Pok, unique: Unique, tmp_path: Path) -> None:
    file = tmp_path / "big"
    file.write_bytes(b"x" * (5 * 1024 * 1024 + 1))
    assert "5242880" in refused("produce", unique(), "--file", str(file)).err


def test_without_ack_messages_stay(done: Pok, unique: Unique) -> None:
    topic = unique()
    done("produce", topic, "-m", "a")
    for _ in range(2):
        taken = done("consume", topic, "-s", "s", "--initial", "earliest", "--no-ack", "--type", "shared")
        assert taken.out.endswith("\ta\n")
    done("consume", topic, "-s", "s", "--type", "shared")
    assert done("subscriptions", "stats", topic, "-s", "s", "--output", "json").json["backlog"] == 0


def test_fewer_messages_than_asked_for_are_a_failure(done: Pok, refused: Pok, unique: Unique) -> None:
    topic = unique()
    done("produce", topic, "-m", "a", "-m", "b")
    few = refused("consume", topic, "-s", "s", "--initial", "earliest", "-n", "3", "--timeout-ms", "5000")
    assert len(few.lines) == 2
    assert "2 of 3 messages came" in few.err
    assert done("consume", topic, "-s", "s", "-n", "0", "--timeout-ms", "300").out == ""


@pytest.mark.long
def test_ctrl_c_keeps_what_was_printed(done: Pok, refused: Pok, service_url: str, unique: Unique) -> None:
    topic = unique()
    done("produce", topic, "-m", "a", "-n", "5", "-q")
    with running(service_url, "consume", topic, "-s", "s", "-n", "0", "--initial", "earliest") as process:
        assert process.stdout is not None
        for _ in range(5):
            process.stdout.readline()
        # Whoever consumes keeps others from deleting the subscription, and is named as its owner.
        assert "live consumers" in refused("subscriptions", "unsubscribe", topic, "-s", "s", "--yes").err
        stats = done("subscriptions", "stats", topic, "-s", "s", "--output", "json").json
        assert stats["partitions"][0]["owner"] == stats["consumers"][0] != ""
        assert refused("consume", topic, "-s", "s").out == ""
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (0, "", "5 messages acknowledged\n")
    assert done("subscriptions", "stats", topic, "-s", "s", "--output", "json").json["backlog"] == 0


def test_a_live_consumer_is_moved_and_ended(done: Pok, service_url: str, unique: Unique) -> None:
    topic = unique()
    done("produce", topic, "-m", "a", "-m", "b", "-q")
    with running(service_url, "consume", topic, "-s", "s", "-n", "0", "--initial", "earliest") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        with AdminClient(service_url, operation_timeout_seconds=120) as patient:  # than a starting process needs
            patient.subscription_cursors(topic, "s", fresh=True)
        done("subscriptions", "reset", topic, "-s", "s", "--time", "1h", "--yes")
        assert [process.stdout.readline() for _ in range(2)] == lines
        assert done("subscriptions", "skip", topic, "-s", "s", "-n", "9", "--yes").err != ""
        plan = done("subscriptions", "unsubscribe", topic, "-s", "s", "--force", "--yes").err
        assert "1 live process" in plan
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (1, "")
        assert "deleted by force" in err
    assert done("subscriptions", "list", topic).out == ""


def test_a_reader_that_goes_away_is_no_traceback(service_url: str, done: Pok, unique: Unique) -> None:
    topic = unique()
    done("produce", topic, "-m", "x" * 100, "-n", "2000", "-q")
    with running(service_url, "consume", topic, "-s", "s", "-n", "2000", "--initial", "earliest") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 1
        assert process.stderr.read() == ""


# Subscriptions --------------------------------------------------------------------------------------------------------


def test_a_subscription_from_creation_to_deletion(done: Pok, refused: Pok, unique: Unique) -> None:
    topic = unique()
    done("topics", "create", topic)
    done("produce", topic, "-m", "a", "-n", "4", "-q")
    assert done("subscriptions", "create", topic, "-s", "late").lines == ["created late at the latest message"]
    done("subscriptions", "create", topic, "-s", "early", "--initial", "earliest", "--output", "json")
    assert "exists already" in refused("subscriptions", "create", topic, "-s", "late").err
    assert done("subscriptions", "list", topic).lines == ["early", "late"]
    assert done("--output", "json", "topics", "stats", topic).json["subscriptions"] == {"early": 4, "late": 0}
    table = done("subscriptions", "stats", topic, "-s", "early").out
    assert "backlog                  4" in table
    assert "mark-delete" in table
    assert "--yes" in refused("subscriptions", "unsubscribe", topic, "-s", "early").err
    done("subscriptions", "unsubscribe", topic, "-s", "early", "--yes")
    assert done("subscriptions", "list", topic, "--output", "json").json == ["late"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["stats"],
        ["reset", "--message-id", "earliest", "--yes"],
        ["skip", "-n", "1", "--yes"],
        ["clear-backlog", "--yes"],
        ["expire", "--older-than", "1", "--yes"],
        ["properties"],
        ["unsubscribe", "--yes"],
    ],
)
def test_an_unknown_subscription(done: Pok, refused: Pok, unique: Unique, arguments: list[str]) -> None:
    topic = unique()
    done("topics", "create", topic)
    verb, *options = arguments
    assert "no subscription nobody" in refused("subscriptions", verb, topic, "-s", "nobody", *options).err


def _next_payload(done: Pok, topic: str) -> str:
    taken = done("consume", topic, "-s", "s", "--no-ack", "--timeout-ms", "10000")
    return taken.out.rstrip("\n").split("\t")[3]


@pytest.mark.long
def test_reset_to_a_place(done: Pok, refused: Pok, unique: Unique) -> None:
    topic = unique()
    ids = done("produce", topic, "-m", "a", "-m", "b").lines
    between_ms = int(time.time() * 1000) + 1
    until(lambda: time.time() * 1000 > between_ms + 1, "the next milliseconds")
    done("produce", topic, "-m", "c")
    done("consume", topic, "-s", "s", "--initial", "earliest", "-n", "3")

    def reset(*place: str) -> int:
        outcome = done("subscriptions", "reset", topic, "-s", "s", *place, "--yes", "--output", "json")
        return int(outcome.json["backlog"])

    assert reset("--time", "1h") == 3
    assert _next_payload(done, topic) == "a"
    assert reset("--time", str(between_ms)) == 1
    assert _next_payload(done, topic) == "c"
    assert reset("--message-id", ids[1]) == 2
    assert _next_payload(done, topic) == "b"
    assert reset("--message-id", "latest") == 0
    assert reset("--message-id", "earliest") == 3
    assert "--yes" in refused("subscriptions", "reset", topic, "-s", "s", "--time", "1h").err
    assert (
        "incarnation" in refused("subscriptions", "reset", topic, "-s", "s", "--message-id", f"{2**50}:0", "--yes").err
    )


def test_reset_beyond_the_end_loses_nothing_to_come(done: Pok, unique: Unique) -> None:
    topic = unique()
    (sent,) = done("produce", topic, "-m", "a").lines
    done("subscriptions", "create", topic, "-s", "s")
    done("subscriptions", "reset", topic, "-s", "s", "--message-id", f"{sent.split(':')[0]}:4000", "--yes")
    done("produce", topic, "-m", "b")
    assert _next_payload(done, topic) == "b"


def test_skip_and_clear(done: Pok, refused: Pok, unique: Unique) -> None:
    topic = unique()
    done("produce", topic, "-m", "a", "-m", "b", "-m", "c", "-m", "d")
    done("subscriptions", "create", topic, "-s", "s", "--initial", "earliest")
    assert "--yes" in refused("subscriptions", "skip", topic, "-s", "s", "-n", "2").err
    assert "at least 1" in refused("subscriptions", "skip", topic, "-s", "s", "-n", "0", "--yes").err
    skipped = done("subscriptions", "skip", topic, "-s", "s", "-n", "2", "--yes", "--output", "json").json
    assert (skipped["skipped"], skipped["backlog"]) == (2, 2)
    assert _next_payload(done, topic) == "c"
    cleared = done("subscriptions", "clear-backlog", topic, "-s", "s", "--yes").out
    assert cleared.endswith("cleared, backlog 2 -> 0\n")


def test_messages_expire(pok: Pok, done: Pok, refused: Pok, unique: Unique) -> None:
    topic = unique()
    ids = done("produce", topic, "-m", "a", "-m", "b", "-m", "c").lines
    done("subscriptions", "create", topic, "-s", "s", "--initial", "earliest")
    assert "--yes" in refused("subscriptions", "expire", topic, "-s", "s", "--message-id", ids[0]).err
    misused = pok("subscriptions", "expire", topic, "-s", "s", "--yes")
    assert (misused.code, "either" in misused.err) == (2, True)
    found = done("subscriptions", "expire", topic, "-s", "s", "--older-than", "3600", "--yes", "--output", "json").json
    assert (found["expired"], found["backlog"]) == (0, 3)
    expired = done("subscriptions", "expire", topic, "-s", "s", "--message-id", ids[1], "--yes").out
    assert expired.endswith("2 messages expired, backlog 3 -> 1\n")
    assert _next_payload(done, topic) == "c"


def test_a_subscription_has_properties(pok: Pok, done: Pok, unique: Unique) -> None:
    topic = unique()
    done("topics", "create", topic)
    done("subscriptions", "create", topic, "-s", "s")
    here = ("subscriptions", "properties", topic, "-s", "s")
    misused = pok(*here, "-p", "x")
    assert (misused.code, "no property" in misused.err) == (2, True)
    assert done(*here, "-p", "a=1", "-p", "b=2", "--output", "json").json == {"a": "1", "b": "2"}
    assert done(*here, "-p", "b=3").out.split() == ["b", "3"]
    assert done(*here, "--clear", "--output", "json").json == {}


def test_show_draws_the_holes_and_tells_their_costs(
    done: Pok, refused: Pok, service_url: str, unique: Unique, tmp_path: Path
) -> None:
    topic = unique()
    done("topics", "create", topic, "--partitions", "2", "--entries-per-ledger", "10")
    client = pulsar.Client(service_url)
    consumer = client.subscribe(
        topic, "s", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    )
    for partition in range(2):
        producer = client.create_producer(f"{topic}-partition-{partition}")
        for number in range(40):
            producer.send(str(number).encode())
    for _ in range(80):
        message = consumer.receive(15_000)
        if int(message.data()) % 2 and int(message.data()) > 12:
            consumer.acknowledge(message)
    file = tmp_path / "holes.png"
    shown = done("subscriptions", "show", topic, "-s", "s", "--fresh", "--png", str(file))
    lines = shown.out.splitlines()
    assert lines[0] == "partition 0: backlog 26, mark-delete -1, 14 acknowledged above it, 14 holes"
    assert lines[1] == "·············" + "█·" * 13 + "█"
    assert lines[2].split() == ["┬"] * 4
    assert file.read_bytes().startswith(b"\x89PNG")
    found = done("subscriptions", "show", topic, "-s", "s", "--output", "json").json
    assert found["acknowledged"] == 28
    ledgers = found["partitions"][1]["ledgers"]
    assert [(ledger["start"], ledger["acknowledged"], ledger["holes"]) for ledger in ledgers] == [
        (10, 4, 4), (20, 5, 5), (30, 5, 5)
    ]  # fmt: skip
    assert {ledger["record"] for ledger in ledgers} == {"commit"}
    assert found["total_bytes"] == sum(part["commit_bytes"] for part in found["partitions"]) > 0
    nowhere = str(tmp_path / "none" / "x.png")
    assert nowhere in refused("subscriptions", "show", topic, "-s", "s", "--png", nowhere).err
    client.close()


def test_show_tells_the_segments_of_a_big_state(done: Pok, service_url: str, unique: Unique) -> None:
    topic, messages = unique(), 12_000
    done("topics", "create", topic, "--entries-per-ledger", "3000")
    client = pulsar.Client(service_url)
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic, block_if_queue_full=True)
    for _ in range(messages):
        producer.send_async(b"", lambda result, _: None)
    producer.flush()
    for number in range(messages):
        message = consumer.receive(15_000)
        if crc32(b"%d" % number) % 2:  # no pattern: each entry costs two bytes, more than a commit's metadata takes
            consumer.acknowledge(message)
    consumer.flush()
    (partition,) = done("subscriptions", "show", topic, "-s", "s", "--fresh", "--output", "json").json["partitions"]
    segments = [ledger for ledger in partition["ledgers"] if ledger["record"] == "segment"]
    assert [ledger["start"] for ledger in segments] == [0, 3000, 6000, 9000]
    assert all(ledger["size_bytes"] > 300 and ledger["segment_offsets"] for ledger in segments)
    assert sum(partition["marker_bytes"]) > 0
    assert partition["acknowledged"] + partition["backlog"] + partition["mark_delete"] + 1 == messages
    ranges = partition["acknowledged_ranges"]
    assert sum(last - first + 1 for first, last in ranges) == partition["acknowledged"]
    assert all(crc32(b"%d" % number) % 2 for first, last in ranges for number in range(first, last + 1))
    assert (partition["read_position"], partition["batch_indexes"]) == (messages, {})
    client.close()
