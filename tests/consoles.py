"""Consoles that tests look at over HTTP, as a browser does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import unescape
from typing import Final
from urllib.parse import urlencode

import requests

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.http_server import HttpGuard
from pulsar_on_kafka.console.commands import ConsoleCommands
from pulsar_on_kafka.console.operators import OperatorRights
from pulsar_on_kafka.console.pages.server import ConsoleServer
from pulsar_on_kafka.console.view_model import Site
from pulsar_on_kafka.schema import JsonSchema, Record
from tests.steps import EARLIEST, SHARED
from tests.waiting import until

EVERY_S: Final = 0.2
SUBSCRIPTIONS: Final = "/subscriptions"
_HIDDEN: Final = re.compile(r'type="hidden" name="([^"]*)" value="([^"]*)"')
_TAG: Final = re.compile(r"<[^>]*>")


class Console:
    """One that runs, and its replies to requests with a token: the first operator's, if there is one."""

    def __init__(self, site: Site, server: ConsoleServer, token: str) -> None:
        self.site = site
        self.token = token
        self.url = f"http://127.0.0.1:{server.port}"

    def at(self, path: str = SUBSCRIPTIONS, **parameters: object) -> str:
        """A page's address."""
        return f"{self.url}{path}?{urlencode(parameters)}" if parameters else f"{self.url}{path}"

    def get(self, path: str = SUBSCRIPTIONS, **parameters: object) -> str:
        """A page's HTML."""
        found = requests.get(self.at(path, **parameters), headers=self.bearer, timeout=60)
        assert found.status_code == 200, (found.status_code, found.text[:2000])
        return found.text

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def text(self, path: str = SUBSCRIPTIONS, **parameters: object) -> str:
        """What a page says, with single spaces."""
        return text_of(self.get(path, **parameters))

    def operate(self, **form: object) -> requests.Response:
        """The reply to an operator's form, which the page of the plan has."""
        plan = requests.get(self.at("/plan"), form, headers=self.bearer, timeout=120)  # type: ignore[arg-type]
        assert plan.status_code == 200, plan.text
        fields = [(unescape(name), unescape(value)) for name, value in _HIDDEN.findall(plan.text)]
        return requests.post(self.at("/operate"), fields, headers=self.bearer, timeout=120)

    def says(self, wanted: str, path: str = SUBSCRIPTIONS, **parameters: object) -> str:
        """The page's HTML, as soon as its text has this."""
        last = ""

        def found() -> str:
            nonlocal last
            last = self.get(path, **parameters)
            return last if wanted in text_of(last) else ""

        return until(found, lambda: f"{wanted!r} in {text_of(last)}")


def refused_payments(client: pulsar.Client, admin: AdminClient, topic: str) -> str:
    """Three messages that the consumers of `ledger` have refused for good; gives the topic of their dead letters."""
    consumer = client.subscribe(
        topic, "ledger", SHARED, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=10,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1),
    )  # fmt: skip
    producer = client.create_producer(topic)
    for number in range(3):
        producer.send(f"payment {number}".encode(), {"reason": "no such account"})
    for _ in range(6):
        consumer.negative_acknowledge(consumer.receive(60_000))
    letters = f"persistent://public/default/{topic}-ledger-DLQ"
    until(lambda: letters in admin.list_topics() and len(admin.dead_letters(letters)) == 3, "three dead letters")
    consumer.close()
    return letters


def a_refused_order(client: pulsar.Client, admin: AdminClient, topic: str, order: Record, stack: str) -> str:
    """A message with key k7 that a consumer of `billing` has refused for good; returns the topic of its dead letter."""
    consumer = client.subscribe(
        topic, "billing", SHARED, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=10,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1),
    )  # fmt: skip
    producer = client.create_producer(topic, schema=JsonSchema(type(order)))
    producer.send(order, {"stacktrace": stack, "tries": "a few"}, partition_key="k7")
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(60_000), reason="no account 7")
    letters = f"persistent://public/default/{topic}-billing-DLQ"
    until(lambda: letters in admin.list_topics() and len(admin.dead_letters(letters)) == 1, "the dead letter")
    consumer.close()
    return letters


def text_of(html: str) -> str:
    main = html.partition('<main id="main">')[2].partition("</main>")[0]
    return " ".join(unescape(_TAG.sub(" ", main)).split())


@contextmanager
def a_console(
    where: str,
    *,
    token: str = "",
    every_s: float = 5.0,
    operators: Mapping[str, str] | None = None,
    rights: OperatorRights | None = None,
) -> Iterator[Console]:
    site = Site(where, ConsoleCommands(("--url", where)), every_s=every_s)
    server = ConsoleServer("127.0.0.1", 0, site, HttpGuard(token=token), operators, rights)
    try:
        yield Console(site, server, next(iter((operators or {}).values()), token))
    finally:
        server.close()
