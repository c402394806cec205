"""From the first page to a topic, its messages, one of them, and its schemas: on a real broker, in a real Chromium."""

from __future__ import annotations

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.schema import Integer, JsonSchema, Record, String
from tests.browser import Chromium
from tests.consoles import Console
from tests.steps import EARLIEST, SHARED, Unique
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.long]


class Order(Record):
    number = Integer()


class GiftOrder(Record):
    number = Integer()
    gift = String()


def test_from_the_first_page_to_a_message_and_a_schema(
    client: pulsar.Client, admin: AdminClient, browser: Chromium, console: Console, unique: Unique
) -> None:
    topic = unique("orders")
    admin.create_topic(topic)
    admin.set_schema_compatibility_strategy(topic, "ALWAYS_COMPATIBLE")
    consumer = client.subscribe(topic, "billing", SHARED, initial_position=EARLIEST)
    old = client.create_producer(topic, schema=JsonSchema(Order))
    old.send(Order(number=0))
    new = client.create_producer(topic, schema=JsonSchema(GiftOrder))
    for number in range(1, 60):
        new.send_async(GiftOrder(number=number, gift=f"gift {number}"), None, partition_key=f"k{number % 5}")
    new.flush()
    consumer.acknowledge(consumer.receive(60_000))
    consumer.flush()
    browser.open(console.at("/"))
    browser.sees("h1.verdict", "an operator")
    browser.click('.bar nav a[href="/topics"]')
    browser.press("/", *topic)
    until(lambda: browser.texts("#rows tbody th a") == [topic], "the filter to leave one topic")
    browser.sees("#rows tbody td", "JSON version 1")
    browser.click("#rows tbody th a")
    browser.sees("h1", topic)
    browser.click(".ways a")
    browser.sees("#bound", "50 messages read")
    assert browser.texts("#rows tbody th a")[0] == "59"
    browser.click("#text")
    browser.press(*"gift 33")
    browser.click("form.search button")
    browser.sees("#bound", "60 messages read")
    assert browser.texts("#rows tbody th a") == ["33"]
    browser.click("#rows tbody th a")
    browser.sees(".value", '"gift": "gift 33"')
    browser.press("\ue00c")  # Escape leads back
    browser.sees(".tree", "public")
    browser.open(console.at("/messages", topic=topic, name="billing", **{"from": "earliest"}))
    assert browser.texts("#rows tbody td:last-child")[:2] == ["acknowledged", "waiting"]
    browser.open(console.at("/schemas", topic=topic))
    browser.sees(".diff .added", "gift")
    browser.click("#rows tbody tr:nth-child(2) a")
    browser.sees("#definition", "Definition of version 0")


def test_pages_fit_a_narrow_screen(client: pulsar.Client, browser: Chromium, console: Console, unique: Unique) -> None:
    topic = unique("orders")
    client.create_producer(topic, schema=JsonSchema(Order)).send(Order(number=1))
    narrow = {"width": 420, "height": 850, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
    try:
        for path in ("/", "/topics", "/topic", "/messages", "/schemas"):
            browser.open(console.at(path, topic=topic))
            browser.sees("h1, #filter", "")
            assert browser.asked("return document.documentElement.scrollWidth") == 420, path
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
