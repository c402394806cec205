"""The console on a real broker, page by page, as a browser gets it."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import quote

import pytest
import requests

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.schema import Integer, JsonSchema, Record, String
from tests.consoles import SUBSCRIPTIONS, Console, a_refused_order, refused_payments, text_of
from tests.integration.subscriptions.test_leased_messages import two
from tests.steps import EARLIEST, KEY_SHARED, SHARED, Process, Unique, receive, send
from tests.waiting import until

pytestmark = pytest.mark.kafka


class Order(Record):
    number = Integer()
    item = String()


def full(topic: str) -> str:
    return f"persistent://public/default/{topic}"


def holes(client: pulsar.Client, topic: str, name: str, left: set[int], count: int) -> pulsar.Consumer:
    """A consumer that has acknowledged all of `count` orders but these, which it holds."""
    consumer = client.subscribe(topic, name, SHARED, initial_position=EARLIEST)
    producer = client.create_producer(topic, schema=JsonSchema(Order), block_if_queue_full=True)
    for number in range(count):
        producer.send_async(Order(number=number, item=f"item {number}"), None, partition_key=f"k{number % 7}")
    producer.flush()
    for number in range(count):
        message = consumer.receive(60_000)
        if number not in left:
            consumer.acknowledge(message)
    consumer.flush()
    return consumer


def test_a_subscription_its_holes_its_consumers_and_a_message(
    client: pulsar.Client, console: Console, unique: Unique
) -> None:
    topic, name = unique("orders"), "billing"
    consumer = holes(client, topic, name, {3, 4, 17}, 40)
    link = f'href="/subscription?topic={quote(full(topic), safe="")}&amp;name=billing"'
    until(lambda: link in console.get(SUBSCRIPTIONS, q=topic), "the subscription to be gathered")
    where = {"topic": full(topic), "name": name}
    page = console.says("Consumers", "/subscription", **where)
    (cells,) = re.findall(r'data-cells="([^"]*)"', page)
    assert cells == "d" * 3 + "hh" + "a" * 12 + "h" + "a" * 22
    assert consumer.consumer_name() in page
    assert re.search(r"Backlog\D+3\D", console.text("/subscription", **where))
    message = console.text("/message", partition=0, offset=4, **where)
    assert "State unacknowledged" in message
    assert '"number": 4' in message
    assert "Key k4" in message
    assert f"Held by consumer {consumer.consumer_name()} of " in message
    assert "State acknowledged" in console.text("/message", partition=0, offset=5, **where)
    assert "The log of partition 0 has 0 to 39." in console.text("/message", partition=0, offset=40, **where)


def test_keys_that_wait_for_a_refused_message(client: pulsar.Client, console: Console, unique: Unique) -> None:
    topic, name = unique("orders"), "billing"
    consumer = client.subscribe(
        topic, name, KEY_SHARED, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=600_000,
        ordered_redelivery=True, receiver_queue_size=1,
    )  # fmt: skip
    producer = client.create_producer(topic)
    for number in range(3):
        producer.send(b"%d" % number, partition_key="k")
    consumer.negative_acknowledge(consumer.receive(60_000))
    where = {"topic": full(topic), "name": name}
    expected = "Partition 0: 1 key waits for refused messages, with"
    until(lambda: expected in console.text("/subscription", **where), "the console to show it")
    assert "(offset 0)" in console.text("/subscription", **where)


@pytest.mark.long
def test_a_leased_message_names_who_holds_it(
    process: Process, admin: AdminClient, console: Console, unique: Unique
) -> None:
    topic = unique("orders")
    owner, consumer = two(process, topic, receiver_queue_size=4)
    send(process(), topic, 6)
    assert len(receive(consumer, 4)) == 4
    assert len(receive(owner, 2)) == 2
    name = consumer.subscription_name()
    leased, own = (admin.entry_holder(topic, name, 0, offset) for offset in (0, 4))
    assert leased is not None
    assert own is not None
    assert (leased.consumer_name, own.consumer_name) == (consumer.consumer_name(), owner.consumer_name())
    assert leased.owner == own.owner == own.process != leased.process
    link = f'href="/subscription?topic={quote(full(topic), safe="")}&amp;name={name}"'
    until(lambda: link in console.get(SUBSCRIPTIONS, q=topic), "the subscription to be gathered")
    where = {"topic": full(topic), "name": name, "partition": 0}
    message = console.text("/message", offset=0, **where)
    assert f"Held by consumer {consumer.consumer_name()} of " in message
    assert "leased by" in message
    assert "leased by" not in console.text("/message", offset=4, **where)
    assert admin.entry_holder(topic, name, 0, 6) is None


@pytest.mark.long
def test_dead_letters_are_put_back_by_their_form_and_by_no_other(
    client: pulsar.Client, admin: AdminClient, operated: Console, unique: Unique
) -> None:
    topic = unique("payments")
    letters = refused_payments(client, admin, topic)
    assert f"{topic}-ledger-DLQ 3" in text_of(operated.says(f"{topic}-ledger-DLQ", "/dead-letters"))
    page = operated.says("no such account", "/dead-letters", topic=letters)
    assert "payment 1" in page
    ids = re.findall(r'name="id" value="([^"]+)"', page)
    assert len(ids) == 3
    one = {"action": "redrive", "topic": letters, "id": ids[1]}
    plan = operated.get("/plan", **one)
    (csrf,) = re.findall(r'name="csrf" value="([^"]+)"', plan)
    assert f"Puts 1 letter back, each once. 1 letter to {topic}" in text_of(plan)
    for form, headers in (
        (one, operated.bearer),
        ({**one, "csrf": "x"}, operated.bearer),
        ({**one, "csrf": csrf}, {**operated.bearer, "Origin": "http://elsewhere.example"}),
        ({**one, "csrf": csrf}, {"Authorization": "Bearer looks"}),
    ):
        refused = requests.post(operated.at("/operate"), form, headers=headers, timeout=60)
        assert refused.status_code == 403
    done = operated.operate(**one)
    assert done.status_code == 200
    assert f"Done: put back 1 letter to {topic}." in unescape(done.text)
    assert len(admin.dead_letters(letters)) == 2
    again = client.subscribe(topic, "again", SHARED, initial_position=EARLIEST)
    assert sorted(again.receive(60_000).data() for _ in range(4)) == [
        b"payment 0", b"payment 1", b"payment 1", b"payment 2",
    ]  # fmt: skip


def test_a_dead_letter_opens(client: pulsar.Client, admin: AdminClient, console: Console, unique: Unique) -> None:
    topic, stack = unique("orders"), "Traceback:\n  line 7\nKeyError: 7"
    letters = a_refused_order(client, admin, topic, Order(number=7, item="kettle"), stack)
    page = console.says("no account 7", "/dead-letters", topic=letters)
    (link,) = re.findall(r'href="(/dead-letter\?[^"]+)"', page)
    shown = console.get(unescape(link))
    assert f'<pre class="value">{stack}</pre>' in shown
    text = text_of(shown)
    for expected in (
        "Reason no account 7", f"From {full(topic)}", "Subscription billing", "Deliveries 2", "Key k7", "tries a few",
        '"item": "kettle"',
    ):  # fmt: skip
        assert expected in text
    missing = unescape(link).removesuffix("%3A0") + "%3A5"
    assert "There is no message with this id." in text_of(console.get(missing))


def test_an_open_transaction_and_whom_it_blocks(
    process: Process, client: pulsar.Client, console: Console, unique: Unique
) -> None:
    topic = unique("orders")
    made = process(enable_transaction=True)
    client.subscribe(topic, "audit", SHARED).close()
    consumer = made.subscribe(topic, "billing", SHARED)
    producer = made.create_producer(topic)
    producer.send(b"one")
    transaction = made.new_transaction(60_000)
    consumer.acknowledge(consumer.receive(60_000), txn=transaction)
    producer.send(b"two", txn=transaction)
    console.says("audit", q=topic)
    page = console.says(topic, "/transactions")
    told = text_of(page)
    assert f"audit of {topic}: waits behind its messages" in told
    assert f"billing of {topic}: it holds acknowledgements" in told
    assert re.search(r"pok transactions abort \S+", told)
    transaction.abort()


def test_roles_have_owners_or_nobody(console: Console) -> None:
    assert "replication no process has it" in text_of(console.says("maintenance", "/roles"))


def test_what_is_not_there(console: Console) -> None:
    assert "there is none at this address" in text_of(requests.get(console.at("/nowhere"), timeout=60).text)
    told = console.says("The overview knows no such subscription.", "/subscription", topic="nowhere", name="x")
    assert "topic persistent://public/default/nowhere does not exist" in text_of(told)
    assert "No topic is copied to another cluster." in console.text("/replication")
