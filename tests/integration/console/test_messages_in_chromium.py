"""From all of a cluster's subscriptions to one message, and letters put back: on a real broker, in a real Chromium.

`POK_PICTURES=docs/images make chaos ARGS="tests/integration/console -k pictures"` makes the documentation's pictures.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.admin.overview.records import Overview
from pulsar_on_kafka.schema import Float, Integer, JsonSchema, Record, String
from tests.browser import MAX_PICTURE_BYTES, NARROW, WIDTH, Chromium
from tests.consoles import SUBSCRIPTIONS, Console, a_refused_order, refused_payments
from tests.many_subscriptions import an_overview
from tests.steps import EARLIEST, SHARED, Unique

pytestmark = pytest.mark.kafka


class Order(Record):
    number = Integer()
    customer = String()
    item = String()
    total = Float()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def orders(client: pulsar.Client, topic: str, count: int) -> None:
    """Two consumers that have done with most of `count` orders; they hold some, and left holes."""
    rng = random.Random(3)
    consumers = [
        client.subscribe(
            topic, "billing", SHARED, consumer_name=name, initial_position=EARLIEST, receiver_queue_size=100,
            dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2),
        )
        for name in ("billing-a", "billing-b")
    ]  # fmt: skip
    producer = client.create_producer(topic, schema=JsonSchema(Order), block_if_queue_full=True)
    items = ("espresso machine", "grinder", "filter papers", "kettle")
    for number in range(count):
        order = Order(number=number, customer=f"customer {rng.randrange(900)}", item=rng.choice(items),
                      total=round(rng.uniform(4, 900), 2))  # fmt: skip
        producer.send_async(order, None, partition_key=f"{number % 50}", properties={"reason": "card was declined"})
    producer.flush()
    for done in range(count * 9 // 10):
        consumer = consumers[done % 2]
        message = consumer.receive(60_000)
        late = count // 3 < done < count * 2 // 3 and rng.random() < 0.3
        if not late and rng.random() > 0.004:
            consumer.acknowledge(message)
    for consumer in consumers:
        consumer.flush()


@pytest.mark.long
def test_from_all_of_a_subscription_to_one_message(
    client: pulsar.Client, browser: Chromium, console: Console, unique: Unique
) -> None:
    topic = unique("orders")
    orders(client, topic, 8000)
    browser.open(console.at(SUBSCRIPTIONS, q=topic))
    browser.sees("#rows tbody th a", "billing")
    browser.click("#rows tbody th a")
    browser.sees(".scale", "10 offsets a cell")
    browser.click_at("#map", 0, 0)
    browser.sees(".scale", "1 offset a cell")
    cells = browser.asked("return document.querySelector('#map').dataset.cells")
    assert {"a", "h"} <= set(cells)
    browser.click_at("#map", 100, 10)
    browser.sees("#panel .value", '"customer": "customer')
    browser.sees("#panel dd", "acknowledged")
    offset = browser.texts("#panel h2")[0].split()[1]
    browser.sees("#cell", f"offset {offset}:")
    browser.press(Keys.ESCAPE)
    assert not browser.asked("return document.querySelector('#panel').checkVisibility()")
    browser.press(Keys.ARROW_RIGHT, Keys.ENTER)
    browser.sees("#panel h2", f"Offset {int(offset.replace(',', '')) + 1:,}")
    browser.press(Keys.ESCAPE, "-")
    browser.sees(".scale", "10 offsets a cell")


@pytest.mark.long
def test_a_letter_is_chosen_and_put_back(
    client: pulsar.Client, admin: AdminClient, browser: Chromium, operated: Console, unique: Unique
) -> None:
    topic = unique("payments")
    letters = refused_payments(client, admin, topic)
    browser.log_in(operated.at("/login"), operated.token)
    browser.open(operated.at("/dead-letters", topic=letters))
    browser.sees("td.why", "no such account")
    browser.click("tbody tr:nth-child(2) [name=id]")
    browser.sees("#redrive", "Redrive 1")
    browser.click("#redrive")
    browser.sees(".plan", f"1 letter to {topic}")
    assert len(admin.dead_letters(letters)) == 3
    browser.click("#do")
    browser.sees(".banner.good", f"Done: put back 1 letter to {topic}.")
    assert len(browser.all("[name=id]")) == 2
    browser.click("#every")
    browser.sees("#redrive", "Redrive 2")
    browser.click("#redrive")
    browser.click("#do")
    browser.sees(".empty", "Nothing is left in this topic.")


def test_an_operator_logs_in_and_skips_a_message_that_a_reader_only_sees(
    client: pulsar.Client, admin: AdminClient, browser: Chromium, operated: Console, unique: Unique
) -> None:
    topic = unique("orders")
    client.subscribe(topic, "billing", SHARED, initial_position=EARLIEST).close()
    client.create_producer(topic).send(b"one")
    page = operated.at("/subscription", topic=f"persistent://public/default/{topic}", name="billing")
    browser.log_in(operated.at("/login"), "looks")
    operated.says("billing", q=topic)
    browser.open(page)
    browser.sees(".fact", "Backlog")
    assert browser.all("form") == []
    browser.log_in(operated.at("/login"), operated.token)
    browser.open(page)
    with browser.narrow():
        browser.sees("#operate", "Operate")
        assert browser.asked(WIDTH) == NARROW
        browser.click("form.operation button")
        browser.sees(".plan", "Acknowledges 1 entry without delivery")
        assert browser.asked(WIDTH) == NARROW
        assert admin.subscription_stats(topic, "billing").backlog == 1
        browser.click("#do")
        browser.sees(".banner.good", "Done: skipped 1 entry.")
    assert admin.subscription_stats(topic, "billing").backlog == 0


_ANSWERED_LATE = """
const {fetch} = window, done = arguments[arguments.length - 1];
window.fetch = async (...what) => { await new Promise(go => { window.answer = go; }); return fetch(...what); };
window.loaded = load(here(), false);
done();
"""
_ANSWERED_NOW = "const done = arguments[arguments.length - 1]; window.answer(); window.loaded.then(done);"


def test_what_is_chosen_while_the_page_is_loaded_anew_stays_chosen(
    client: pulsar.Client, admin: AdminClient, browser: Chromium, operated: Console, unique: Unique
) -> None:
    letters = refused_payments(client, admin, unique("payments"))
    browser.log_in(operated.at("/login"), operated.token)
    browser.open(operated.at("/dead-letters", topic=letters))
    browser.sees("td.why", "no such account")
    browser.driver.execute_async_script(_ANSWERED_LATE)
    browser.click("tbody tr:nth-child(2) [name=id]")
    browser.driver.execute_async_script(_ANSWERED_NOW)
    assert browser.texts("#redrive") == ["Redrive 1 …"]
    assert len(browser.all("[name=id]:checked")) == 1
    with browser.narrow():
        assert browser.asked(WIDTH) == NARROW
        browser.click("tbody tr:nth-child(1) th a")
        browser.sees(".reason", "no such account")
        assert browser.asked(WIDTH) == NARROW


def an_hour(last: Overview) -> Iterator[Overview]:
    """Overviews of the hour before this one, with other backlogs of stuck subscriptions, and a pause; and this one."""
    stuck = sorted(last.subscriptions, key=lambda each: each.stuck_since_ms or last.gathered_ms)[:200]
    for minutes in (*range(60, 44, -2), *range(36, 0, -2)):
        share = 1 - minutes / 90 + math.sin(minutes / 7) / 12
        earlier = {(each.topic, each.subscription): each for each in last.subscriptions}
        for each in stuck:
            parts = (replace(part, backlog=round(part.backlog * share)) for part in each.partitions)
            earlier[each.topic, each.subscription] = replace(each, partitions=tuple(parts))
        yield replace(last, gathered_ms=last.gathered_ms - minutes * 60_000, subscriptions=tuple(earlier.values()))
    yield last


@pytest.mark.long
def test_pictures_of_the_documentation(
    client: pulsar.Client, admin: AdminClient, browser: Chromium, console: Console, operated: Console, lonely: Console,
    unique: Unique, tmp_path: Path,
) -> None:  # fmt: skip
    for overview in an_hour(an_overview(10_000, now_ms=now_ms())):
        lonely.site.show(overview)
    browser.open(lonely.at("/"))
    made = [browser.picture("console-first.png", tmp_path)]
    browser.open(lonely.at(SUBSCRIPTIONS, sort="stuck"))
    browser.press("j", "j", "j")
    made.append(browser.picture("console-subscriptions.png", tmp_path))
    browser.log_in(operated.at("/login"), operated.token)
    stack = "Traceback (most recent call last):\n  File \"billing.py\", line 31, in charge\nKeyError: 'customer 7'"
    letters = a_refused_order(
        client, admin, unique("orders"), Order(number=7, customer="customer 7", total=19.9), stack
    )
    browser.open(operated.at("/dead-letters", topic=letters))
    browser.click("#rows tbody th a")
    browser.sees(".reason", "no account 7")
    made.append(browser.picture("console-dead-letter.png", tmp_path))
    topic = unique("orders")
    orders(client, topic, 12_000)
    browser.prefer("dark")
    browser.open(console.at(SUBSCRIPTIONS, q=topic))
    browser.sees("#rows tbody th a", "billing")
    browser.click("#rows tbody th a")
    browser.sees(".scale", "10 offsets a cell")
    browser.sees("h2", "Consumers")
    browser.click_at("#map", 0, 0)
    browser.sees(".scale", "1 offset a cell")
    browser.click_at("#map", -200, 0)
    browser.sees("#panel .value", '"customer": "customer')
    made.append(browser.picture("console-holes.png", tmp_path))
    assert all(1000 < file.stat().st_size <= MAX_PICTURE_BYTES for file in made)
