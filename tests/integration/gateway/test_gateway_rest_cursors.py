"""Stuck consumers over the gateway's REST: cursors move, and entries and backlogs are read."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import Any, Final

import pytest

import pulsar_on_kafka as sdk
from pulsar_on_kafka.admin import AdminClient
from tests.integration.gateway.rest import Rest
from tests.steps import Unique
from tests.waiting import until

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

pytestmark = pytest.mark.kafka

_PATIENCE_MS: Final = 60_000
_TOPICS: Final = "/admin/v2/persistent/public/default"


def sent(client: sdk.Client, topic: str, count: int, **options: Any) -> list[Any]:
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"%d" % number, **options) for number in range(count)]
    producer.close()
    return ids


def body_of(message_id: Any, **more: Any) -> dict[str, Any]:
    """The JSON of Pulsar's ResetCursorData."""
    return {
        "ledgerId": message_id.ledger_id(),
        "entryId": message_id.entry_id(),
        "partitionIndex": message_id.partition(),
        "batchIndex": message_id.batch_index(),
        "excluded": False,
        "properties": None,
        **more,
    }


def backlog(admin: AdminClient, topic: str, subscription: str) -> int:
    return admin.subscription_stats(topic, subscription).backlog


def next_of(client: sdk.Client, topic: str, subscription: str) -> bytes:
    """The value that a consumer receives first."""
    consumer = client.subscribe(topic, subscription)
    try:
        return bytes(consumer.receive(_PATIENCE_MS).data())
    finally:
        consumer.close()


def test_a_cursor_is_reset_to_a_time_and_to_an_id(
    rest: Rest, admin: AdminClient, client: sdk.Client, unique: Unique
) -> None:
    topic = unique()
    here = f"{_TOPICS}/{topic}/subscription/s"
    ids = sent(client, topic, 4)
    admin.create_subscription(topic, "s")
    rest.does("POST", f"{here}/resetcursor/{int(time.time() * 1000) - 3_600_000}")
    assert backlog(admin, topic, "s") == 4
    rest.does("POST", f"{here}/resetcursor/{int(time.time() * 1000) + 3_600_000}")
    assert backlog(admin, topic, "s") == 0
    rest.does("POST", f"{here}/resetcursor", json=body_of(ids[2]))
    assert next_of(client, topic, "s") == b"2"
    rest.does("POST", f"{here}/resetcursor", json=body_of(ids[2], excluded=True))
    assert next_of(client, topic, "s") == b"3"
    rest.does("POST", f"{here}/resetcursor", json=body_of(sdk.MessageId.earliest))
    assert backlog(admin, topic, "s") == 4
    rest.does("POST", f"{here}/resetcursor", json=body_of(sdk.MessageId.latest))
    assert backlog(admin, topic, "s") == 0
    rest.refuses(412, "Unable to find position", "POST", f"{here}/resetcursor", json={"ledgerId": 2**62, "entryId": 0})
    rest.refuses(400, "timestamp is 'x'", "POST", f"{here}/resetcursor/x")
    rest.refuses(404, "none", "POST", f"{_TOPICS}/{topic}/subscription/none/resetcursor/1")
    rest.refuses(404, "does not exist", "POST", f"{_TOPICS}/{unique()}/subscription/s/resetcursor/1")


def test_a_cursor_is_reset_into_a_batch(rest: Rest, client: sdk.Client, unique: Unique) -> None:
    topic = unique()
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    consumer = client.subscribe(topic, "s", sdk.ConsumerType.Shared)
    for number in range(3):
        producer.send_async(b"%d" % number, lambda result, message_id: None)
    producer.flush()
    messages = [consumer.receive(_PATIENCE_MS) for _ in range(3)]
    consumer.close()
    second = messages[1].message_id()
    here = f"{_TOPICS}/{topic}/subscription/s/resetcursor"
    rest.does("POST", here, json=body_of(second))
    assert next_of(client, topic, "s") == b"1"
    rest.does("POST", here, json=body_of(second, isExcluded=True))
    assert next_of(client, topic, "s") == b"2"


def test_messages_are_skipped_and_cleared(rest: Rest, admin: AdminClient, client: sdk.Client, unique: Unique) -> None:
    topic = unique()
    here = f"{_TOPICS}/{topic}/subscription/s"
    admin.create_topic(topic)
    admin.create_subscription(topic, "s")
    sent(client, topic, 5)
    rest.does("POST", f"{here}/skip/3")
    assert backlog(admin, topic, "s") == 2
    rest.does("POST", f"{here}/skip_all")
    assert backlog(admin, topic, "s") == 0
    rest.refuses(400, "at least 1", "POST", f"{here}/skip/0")
    rest.refuses(
        405, "non-persistent", "POST", f"/admin/v2/non-persistent/public/default/{topic}/subscription/s/skip/1"
    )


def test_messages_expire_by_time_and_by_id(rest: Rest, admin: AdminClient, client: sdk.Client, unique: Unique) -> None:
    topic = unique()
    here = f"{_TOPICS}/{topic}/subscription/s"
    admin.create_topic(topic)
    for name in ("s", "other"):
        admin.create_subscription(topic, name)
    ids = sent(client, topic, 6)
    rest.does("POST", f"{here}/expireMessages/3600")  # none is so old
    assert backlog(admin, topic, "s") == 6
    rest.does("POST", f"{here}/expireMessages", json=body_of(ids[1]))
    assert backlog(admin, topic, "s") == 4
    rest.does("POST", f"{here}/expireMessages", json=body_of(ids[2], excluded=True))
    assert backlog(admin, topic, "s") == 2
    beyond = {**body_of(ids[5]), "entryId": 9}
    rest.refuses(409, "invalid message position", "POST", f"{here}/expireMessages", json=beyond)
    rest.refuses(412, "partition index", "POST", f"{here}/expireMessages", json=body_of(ids[2], partitionIndex=3))

    def expired() -> bool:
        found = rest.ask("POST", f"{_TOPICS}/{topic}/all_subscription/expireMessages/1")
        assert found.status_code in (204, 409), found.text  # 409: one was done before the other
        return (backlog(admin, topic, "s"), backlog(admin, topic, "other")) == (0, 0)

    until(expired, "messages to be older than a second")
    rest.refuses(409, "almost catch up", "POST", f"{here}/expireMessages/1")


def test_single_partitions_are_moved(rest: Rest, admin: AdminClient, client: sdk.Client, unique: Unique) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    admin.create_subscription(topic, "s")
    for number in range(2):
        sent(client, f"{topic}-partition-{number}", 3)

    def backlogs() -> list[int]:
        return [each.backlog for each in admin.subscription_stats(topic, "s").partitions]

    one, whole = f"{_TOPICS}/{topic}-partition-1/subscription/s", f"{_TOPICS}/{topic}/subscription/s"
    rest.does("POST", f"{one}/skip/2")
    assert backlogs() == [3, 1]
    rest.does("POST", f"{one}/skip_all")
    assert backlogs() == [3, 0]
    rest.does("POST", f"{whole}/resetcursor/1")
    assert backlogs() == [3, 3]
    last = rest.get(f"{_TOPICS}/{topic}-partition-1/lastMessageId")
    assert (last["partitionIndex"], last["entryId"]) == (1, 2)
    rest.does("POST", f"{one}/resetcursor", json=last)
    assert backlogs() == [3, 1]
    rest.does("POST", f"{one}/expireMessages", json=last)
    assert backlogs() == [3, 0]
    rest.does("POST", f"{whole}/skip_all")
    assert backlogs() == [0, 0]
    for method, path, reason in (
        ("POST", "subscription/s/skip/1", "Skip messages on a partitioned topic"),
        ("POST", "subscription/s/resetcursor", "Reset-cursor at position"),
        ("POST", "subscription/s/expireMessages", "Expire message at position"),
        ("POST", "subscription/s/analyzeBacklog", "Analyze backlog"),
        ("GET", "subscription/s/position/1", "Peek messages"),
        ("GET", "ledger/1/entry/1", "GetMessageById"),
        ("GET", "messageid/1", "Get message ID by timestamp"),
        ("GET", "examinemessage", "Examine messages"),
        ("PUT", "backlogSize", "calculate backlog size"),
    ):
        rest.refuses(405, reason, method, f"{_TOPICS}/{topic}/{path}")
    rest.refuses(404, "none is 2", "POST", f"{_TOPICS}/{topic}-partition-2/subscription/s/skip/1")
    rest.refuses(404, f"{topic} not found", "GET", f"{_TOPICS}/{topic}/lastMessageId")


def test_a_subscription_lives_on_one_partition(
    rest: Rest, admin: AdminClient, client: sdk.Client, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 3)
    zero, one = (f"{_TOPICS}/{topic}-partition-{number}" for number in (0, 1))
    ids = sent(client, f"{topic}-partition-1", 3)
    rest.does("PUT", f"{one}/subscription/s", json=body_of(ids[1], properties={"a": "b"}))
    rest.refuses(409, "exists", "PUT", f"{one}/subscription/s")
    assert (rest.get(f"{zero}/subscriptions"), rest.get(f"{one}/subscriptions")) == ([], ["s"])
    assert rest.get(f"{one}/subscription/s/properties") == {"a": "b"}
    assert rest.get(f"{one}/stats")["subscriptions"]["s"]["msgBacklog"] == 2
    assert rest.get(f"{zero}/stats")["subscriptions"] == {}
    rest.refuses(404, "no subscription s", "POST", f"{zero}/subscription/s/skip_all")
    assert next_of(client, f"{topic}-partition-1", "s") == b"1"
    rest.does("PUT", f"{zero}/subscription/s", json="earliest")
    rest.does("DELETE", f"{one}/subscription/s")
    assert (rest.get(f"{zero}/subscriptions"), rest.get(f"{one}/subscriptions")) == (["s"], [])
    rest.does("DELETE", f"{zero}/subscription/s")
    rest.refuses(404, "s", "DELETE", f"{zero}/subscription/s")
    assert rest.get(f"{_TOPICS}/{topic}/subscriptions") == []


def test_subscriptions_have_properties(rest: Rest, client: sdk.Client, unique: Unique) -> None:
    topic = unique()
    (first,) = sent(client, topic, 1)
    here = f"{_TOPICS}/{topic}/subscription/s"
    rest.does("PUT", here, json={**body_of(first), "properties": {"team": "a", "ü": "ö"}})
    assert rest.get(f"{here}/properties") == {"team": "a", "ü": "ö"}
    rest.does("PUT", f"{here}/properties", json={"team": "b"})
    assert rest.get(f"{here}/properties") == {"team": "b"}
    assert rest.get(f"{_TOPICS}/{topic}/stats")["subscriptions"]["s"]["subscriptionProperties"] == {"team": "b"}
    rest.does("PUT", f"{here}/properties", json={})
    assert rest.get(f"{here}/properties") == {}
    rest.refuses(400, "properties", "PUT", f"{here}/properties", json={"a": 1})
    rest.refuses(404, "none", "GET", f"{_TOPICS}/{topic}/subscription/none/properties")


def test_subscriptions_are_replicated(rest: Rest, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    admin.create_subscription(topic, "s")
    here = f"{_TOPICS}/{topic}/subscription/s/replicatedSubscriptionStatus"
    names = [f"persistent://public/default/{topic}-partition-{number}" for number in range(2)]
    assert rest.get(here) == dict.fromkeys(names, False)
    rest.does("POST", here, json=True)
    assert rest.get(here) == dict.fromkeys(names, True)
    assert rest.get(here.replace(topic, f"{topic}-partition-1")) == {names[1]: True}
    rest.does("POST", here, json=False)
    assert rest.get(here) == dict.fromkeys(names, False)
    rest.refuses(400, "true or false", "POST", here, json="yes")


def test_entries_are_read_with_their_metadata(
    rest: Rest, admin: AdminClient, client: sdk.Client, unique: Unique
) -> None:
    topic = unique()
    admin.create_topic(topic)
    admin.create_subscription(topic, "s")
    official = pulsar.Client(rest.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = official.create_producer(
        topic, producer_name="p", batching_enabled=False, compression_type=pulsar.CompressionType.LZ4
    )
    first = producer.send(b"x" * 2000, properties={"a": "ü"}, partition_key="k", event_timestamp=1_700_000_000_000)
    sent(client, topic, 2)
    here = f"{_TOPICS}/{topic}"
    found = rest.ask("GET", f"{here}/subscription/s/position/1")
    assert (found.status_code, found.content) == (200, b"x" * 2000)
    headers = found.headers
    assert headers["X-Pulsar-Message-ID"] == f"{first.ledger_id()}:{first.entry_id()}"
    assert json.loads(headers["X-Pulsar-PROPERTY"]) == {"a": "ü"}
    assert headers["X-Pulsar-event-time"].startswith("2023-11-14T22:13:20.000")
    assert (headers["X-Pulsar-producer-name"], headers["X-Pulsar-partition-key"]) == ("p", "k")
    assert (headers["X-Pulsar-compression"], headers["X-Pulsar-uncompressed-size"]) == ("LZ4", "2000")
    assert (headers["X-Pulsar-Is-Encrypted"], headers["X-Pulsar-txn-aborted"]) == ("false", "false")
    assert "X-Pulsar-num-batch-message" not in headers
    by_id = f"{here}/ledger/{first.ledger_id()}/entry"
    assert rest.ask("GET", f"{by_id}/0").content == b"x" * 2000
    assert rest.ask("GET", f"{by_id}/2").content == b"1"
    rest.refuses(404, "Message id not found", "GET", f"{by_id}/3")
    rest.refuses(404, "Message id not found", "GET", f"{here}/ledger/7/entry/0")
    rest.does("POST", f"{here}/subscription/s/skip/1")
    assert rest.ask("GET", f"{here}/subscription/s/position/2").content == b"1"
    rest.refuses(404, "Message not found", "GET", f"{here}/subscription/s/position/3")
    rest.refuses(400, "1 or more", "GET", f"{here}/subscription/s/position/0")
    assert rest.ask("GET", f"{here}/subscription/new/position/1").content == b"x" * 2000  # created, as in Pulsar
    assert rest.get(f"{here}/subscriptions") == ["new", "s"]
    rest.refuses(404, "does not exist", "GET", f"{here}none/subscription/s/position/1")
    for origin, position, value in (("earliest", 2, b"0"), ("latest", 1, b"1"), ("latest", 9, b"x" * 2000)):
        query = {"initialPosition": origin, "messagePosition": str(position)}
        assert rest.ask("GET", f"{here}/examinemessage", params=query).content == value
    assert rest.ask("GET", f"{here}/examinemessage").content == b"1"
    official.close()


def test_batches_are_read_in_pulsar_s_form(rest: Rest, client: sdk.Client, unique: Unique) -> None:
    """Also those of the SDK: a size and a SingleMessageMetadata before each payload."""
    official = pulsar.Client(rest.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    bodies = []
    for each in (client, official):
        topic = unique()
        producer = each.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
        for number in range(2):
            producer.send_async(b"value %d" % number, lambda result, message_id: None)
        producer.flush()
        found = rest.ask("GET", f"{_TOPICS}/{topic}/examinemessage")
        assert found.headers["X-Pulsar-num-batch-message"] == "2"
        bodies.append(found.content)
        last = rest.get(f"{_TOPICS}/{topic}/lastMessageId")
        assert (last["entryId"], last["batchIndex"], last["batchSize"]) == (0, 1, 2)
    assert all(b"value 0" in body and b"value 1" in body for body in bodies)
    official.close()


def test_entries_of_open_and_aborted_transactions_are_marked(
    rest: Rest, admin: AdminClient, service_url: str, unique: Unique
) -> None:
    topic = unique()
    admin.create_topic(topic)
    admin.create_subscription(topic, "s")
    here = f"{_TOPICS}/{topic}/subscription/s"

    def marks(position: int) -> tuple[str, str]:
        found = rest.ask("GET", f"{here}/position/{position}").headers
        return found["X-Pulsar-txn-aborted"], found["X-Pulsar-txn-uncommitted"]

    with closing(sdk.Client(service_url, enable_transaction=True)) as client:
        producer = client.create_producer(topic, batching_enabled=False)
        dropped, kept, opened = (client.new_transaction() for _ in range(3))
        for txn in (dropped, kept, opened):
            producer.send(b"in", txn=txn)
        dropped.abort()
        kept.commit()
        producer.send(b"plain")
        neither = ("false", "false")
        until(lambda: [marks(1), marks(2)] == [("true", "false"), neither], "the transactions' ends")
        assert [marks(3), marks(4)] == [("false", "true"), neither]
        rest.refuses(404, "Message not found", "GET", f"{here}/position/5")  # markers are no entries
        told = rest.ask("POST", f"{here}/analyzeBacklog").json()
        assert told["entries"] == 3
        opened.abort()


def test_ids_are_found_by_time(rest: Rest, admin: AdminClient, client: sdk.Client, unique: Unique) -> None:
    topic = unique()
    here = f"{_TOPICS}/{topic}"
    admin.create_topic(topic)
    empty = rest.get(f"{here}/lastMessageId")
    none = {"entryId": -1, "partitionIndex": -1, "batchIndex": -1, "batchSize": 0}
    assert empty == {"ledgerId": rest.get(f"{here}/internalStats")["ledgers"][0]["ledgerId"], **none}
    rest.refuses(412, "total message is zero", "GET", f"{here}/examinemessage")
    ids = sent(client, topic, 3)
    shown = admin.peek_messages(topic)
    assert rest.get(f"{here}/messageid/{shown[0].publish_time_ms}")["entryId"] == 0
    assert rest.get(f"{here}/messageid/{shown[2].publish_time_ms + 1}") == {
        "ledgerId": ids[2].ledger_id(),
        "entryId": 3,
        "partitionIndex": -1,
        "batchIndex": -1,
        "batchSize": 0,
    }
    assert rest.get(f"{here}/lastMessageId")["entryId"] == 2


def test_a_backlog_is_analyzed(rest: Rest, admin: AdminClient, client: sdk.Client, unique: Unique) -> None:
    topic = unique()
    admin.create_topic(topic)
    admin.create_subscription(topic, "s")
    ids = sent(client, topic, 4)
    consumer = client.subscribe(topic, "s", sdk.ConsumerType.Shared)
    messages = [consumer.receive(_PATIENCE_MS) for _ in range(4)]
    consumer.acknowledge(messages[1])
    consumer.close()
    here = f"{_TOPICS}/{topic}/subscription/s/analyzeBacklog"

    def analyzed(body: object = None) -> dict[str, Any]:
        found = rest.ask("POST", here, json=body)
        assert found.status_code == 200, found.text
        result: dict[str, Any] = found.json()
        return result

    told = analyzed()
    assert (told["entries"], told["messages"], told["filterAcceptedEntries"], told["aborted"]) == (3, 3, 3, False)
    assert told["firstMessageId"] == f"{ids[0].ledger_id()}:0"
    assert told["lastMessageId"] == f"{ids[3].ledger_id()}:3"
    assert analyzed(body_of(ids[2]))["entries"] == 2


def test_ledgers_and_cursors_are_shown(rest: Rest, admin: AdminClient, client: sdk.Client, unique: Unique) -> None:
    topic = unique()
    here = f"{_TOPICS}/{topic}"
    admin.create_topic(topic)
    admin.create_subscription(topic, "s")
    ledger = rest.get(f"{here}/internalStats")["ledgers"][0]["ledgerId"]
    found = rest.get(f"{here}/internalStats")
    assert (found["lastConfirmedEntry"], found["cursors"]["s"]["markDeletePosition"]) == (f"{ledger}:-1",) * 2
    sent(client, topic, 6)
    batches = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for number in range(3):
        batches.send_async(b"%d" % number, lambda result, message_id: None)
    batches.flush()
    consumer = client.subscribe(topic, "s", sdk.ConsumerType.Shared, batch_index_ack_enabled=True)
    messages = [consumer.receive(_PATIENCE_MS) for _ in range(9)]
    for index in (0, 2, 3, 5, 7):
        consumer.acknowledge(messages[index])
    consumer.flush()
    held = rest.get(f"{here}/internalStats")["cursors"]["s"]
    assert held["active"]
    assert held["readPosition"] == f"{ledger}:7"
    consumer.close()
    told = rest.get(f"{here}/internalStats")
    assert {
        name: told[name] for name in ("entriesAddedCounter", "numberOfEntries", "currentLedgerEntries", "state")
    } == {
        "entriesAddedCounter": 7,
        "numberOfEntries": 7,
        "currentLedgerEntries": 7,
        "state": "LedgerOpened",
    }
    assert told["lastConfirmedEntry"] == f"{ledger}:6"
    assert told["totalSize"] == told["currentLedgerSize"] == told["ledgers"][0]["size"] > 6
    assert told["cursors"]["s"] == {
        "markDeletePosition": f"{ledger}:0",
        "readPosition": f"{ledger}:1",
        "messagesConsumedCounter": 4,
        "individuallyDeletedMessages": f"[({ledger}:1..{ledger}:3],({ledger}:4..{ledger}:5]]",
        "batchDeletedIndexes": {f"{ledger}:6": [1]},
        "state": "Open",
        "active": False,
        "totalNonContiguousDeletedMessagesRange": 2,
        "properties": {},
    }
    stored = rest.get(f"{here}/internal-info")
    assert stored["ledgers"][0]["entries"] == 7
    assert stored["cursors"]["s"]["markDelete"] == {"ledgerId": ledger, "entryId": 0}
    assert stored["cursors"]["s"]["individualDeletedMessages"][0] == {
        "from": {"ledgerId": ledger, "entryId": 1},
        "to": {"ledgerId": ledger, "entryId": 3},
    }


def test_partitions_are_shown(rest: Rest, admin: AdminClient, client: sdk.Client, unique: Unique) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    admin.create_subscription(topic, "s")
    sent(client, f"{topic}-partition-1", 2)
    here, names = f"{_TOPICS}/{topic}", [f"persistent://public/default/{topic}-partition-{number}" for number in (0, 1)]
    told = rest.get(f"{here}/partitioned-internalStats")
    assert told["metadata"] == {"partitions": 2}
    assert [told["partitions"][name]["entriesAddedCounter"] for name in names] == [0, 2]
    assert told["partitions"][names[1]] == rest.get(f"{here}-partition-1/internalStats")
    assert list(told["partitions"][names[0]]["cursors"]) == ["s"]
    assert list(rest.get(f"{here}/internal-info")["partitions"]) == names
    rest.refuses(404, "partitioned-internalStats", "GET", f"{here}/internalStats")
    rest.refuses(404, "no partition 2", "GET", f"{here}-partition-2/internalStats")
    rest.refuses(404, "does not exist", "GET", f"{_TOPICS}/{unique()}/internalStats")


def test_statistics_have_sizes(rest: Rest, admin: AdminClient, client: sdk.Client, unique: Unique) -> None:
    topic = unique()
    here = f"{_TOPICS}/{topic}"
    admin.create_topic(topic)
    for name in ("s", "done"):
        admin.create_subscription(topic, name)
    told = rest.get(f"{here}/stats")
    assert (told["storageSize"], told["backlogSize"], told["earliestMsgPublishTimeInBacklogs"]) == (0, 0, 0)
    producer = client.create_producer(topic, batching_enabled=False)
    for _ in range(10):
        producer.send(b"x" * 1000)
    admin.skip(topic, "s", 5)
    admin.clear_backlog(topic, "done")
    told = rest.get(f"{here}/stats", getEarliestTimeInBacklog="true")
    assert 10_000 < told["storageSize"] < 12_000
    assert told["backlogSize"] == told["subscriptions"]["s"]["backlogSize"] == round(told["storageSize"] / 2)
    assert told["subscriptions"]["done"]["backlogSize"] == 0
    sixth_ms = admin.peek_messages(topic)[5].publish_time_ms
    assert told["earliestMsgPublishTimeInBacklogs"] == sixth_ms
    assert told["subscriptions"]["s"]["earliestMsgPublishTimeInBacklog"] == sixth_ms
    unmeasured = rest.get(f"{here}/stats", subscriptionBacklogSize="false")["subscriptions"]["s"]
    assert (unmeasured["backlogSize"], unmeasured["earliestMsgPublishTimeInBacklog"]) == (-1, 0)
    last = rest.get(f"{here}/lastMessageId")
    for place, share in (({"ledgerId": -1, "entryId": -1}, 10), ({**last, "entryId": 5}, 4), (last, 0)):
        found = rest.ask("PUT", f"{here}/backlogSize", json=place)
        assert (found.status_code, found.json()) == (200, round(told["storageSize"] * share / 10))
    for _ in range(10):
        producer.send(b"x" * 1000)
    assert 0 < rest.get(f"{here}/stats")["storageSize"] - 2 * told["storageSize"] < 100  # longer sequence ids


def test_statistics_of_partitions_have_sizes_and_publishers(
    rest: Rest, admin: AdminClient, client: sdk.Client, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    admin.create_subscription(topic, "s")
    producer = client.create_producer(topic, producer_name="p", properties={"of": "me"})
    for number in range(4):
        producer.send(b"x" * 1000, partition_key=str(number))
    told = rest.get(f"{_TOPICS}/{topic}/partitioned-stats")
    assert [(each["producerName"], each["metadata"]) for each in told["publishers"]] == [("p", {"of": "me"})]
    assert told["storageSize"] == sum(each["storageSize"] for each in told["partitions"].values()) > 4000
    assert told["backlogSize"] == told["storageSize"] == told["subscriptions"]["s"]["backlogSize"]
