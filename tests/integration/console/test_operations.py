"""What operators do in the console: the plan tells it before, the cursor has it after, and the log names who did it."""

from __future__ import annotations

import logging
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.admin.overview.shared import SharedGatherer
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.console.actions import RedriveLetters
from pulsar_on_kafka.console.operators import OperatorRights
from tests.consoles import Console, a_console, refused_payments, text_of
from tests.steps import EARLIEST, SHARED, Unique

pytestmark = pytest.mark.kafka
_LOG = "pulsar_on_kafka.console.audit"


def plan(console: Console, **form: object) -> str:
    return console.text("/plan", **form)


def done(answer: requests.Response) -> str:
    """The result that the page shows."""
    assert answer.status_code == 200, text_of(answer.text)
    (result,) = parse_qs(urlsplit(answer.url).query)["done"]
    assert f"Done: {result}." in unescape(answer.text)
    return result


def test_an_operator_moves_a_cursor(
    client: pulsar.Client, admin: AdminClient, operated: Console, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, _LOG)
    topic = unique("orders")
    on = {"topic": f"persistent://public/default/{topic}", "name": "billing"}
    consumer = client.subscribe(topic, "billing", SHARED, initial_position=EARLIEST)
    producer = client.create_producer(topic)
    for number in range(10):
        producer.send(b"%d" % number, partition_key="odd" if number % 2 else "even")
    for _ in range(3):
        consumer.acknowledge(consumer.receive(60_000))
    consumer.flush()
    consumer.close()

    said = plan(operated, action="skip", count=2, **on)
    assert "Acknowledges 2 entries without delivery" in said
    assert "Partition 0: 2 of 7 entries, from offset 3" in said
    assert admin.subscription_stats(topic, "billing").backlog == 7, "a plan changes nothing"
    assert done(operated.operate(action="skip", count=2, **on)) == "skipped 2 entries"
    assert admin.subscription_stats(topic, "billing").backlog == 5

    assert "Acknowledges 3 messages on this subscription" in plan(operated, action="cancel", key="odd", **on)
    assert done(operated.operate(action="cancel", key="odd", **on)) == "cancelled 3 messages"

    said = plan(operated, action="reset", to="earliest", **on)
    assert "Delivers 8 acknowledged entries again. Skips 0 unacknowledged entries." in said
    assert done(operated.operate(action="reset", to="earliest", **on)) == "set to message earliest"
    assert admin.subscription_stats(topic, "billing").backlog == 10

    assert "Acknowledges all 10 unacknowledged entries" in plan(operated, action="clear", **on)
    assert done(operated.operate(action="clear", **on)) == "cleared a backlog of 10 entries"
    assert admin.subscription_stats(topic, "billing").backlog == 0
    assert "There is nothing to do." in plan(operated, action="clear", **on)

    lines = [each.getMessage() for each in caplog.records if each.name == _LOG]
    assert len(lines) == 4
    assert lines[0] == (
        f"console=audit operator=anna from=127.0.0.1 action=skip topic={on['topic']} subscription=billing count=2 "
        'result="skipped 2 entries"'
    )


def test_what_the_cluster_refuses_is_told(operated: Console, unique: Unique) -> None:
    on = {"action": "skip", "topic": unique("none"), "name": "billing", "count": "1"}
    answer = requests.get(operated.at("/plan"), on, headers=operated.bearer, timeout=60)
    assert (answer.status_code, "does not exist" in text_of(answer.text)) == (409, True)


def test_an_operator_has_the_rights_of_its_role(
    client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    topic = unique("payments")
    letters = refused_payments(client, admin, topic)
    full = f"persistent://public/default/{topic}"
    rights = OperatorRights(authorization=True, super_users=frozenset({"root"}))
    with a_console(service_url, operators={"anna": "operates", "root": "may all"}, rights=rights) as console:
        console.site.connect(admin, SharedGatherer(admin.node))
        try:
            clear = {"action": "clear", "topic": full, "name": "ledger"}
            redrive = {"action": "redrive", "topic": letters}
            for form in (clear, redrive):
                refused = requests.get(console.at("/plan"), form, headers=console.bearer, timeout=60)
                assert refused.status_code == 403
                assert "operator anna: the role may not consume from" in text_of(refused.text)
            admin.grant_topic_permission(full, "anna", ["consume"])
            admin.grant_topic_permission(letters, "anna", ["consume"])
            plan(console, **clear)
            refused = requests.get(console.at("/plan"), redrive, headers=console.bearer, timeout=60)
            assert (refused.status_code, f"may not produce to {full}" in text_of(refused.text)) == (403, True)
            admin.grant_topic_permission(full, "anna", ["produce"])
            assert "Puts 3 letters back, each once." in plan(console, **redrive)
            admin.revoke_topic_permission(full, "anna")
            check = rights.check_of("anna", admin.node, 60)
            with pytest.raises(pulsar.AuthorizationError, match="may not produce to"):
                RedriveLetters(topic=letters).perform(admin, check)
            root = {"Authorization": "Bearer may all"}
            assert admin.count_dead_letters(letters) == 3
            assert requests.get(console.at("/plan"), redrive, headers=root, timeout=60).status_code == 200
        finally:
            console.site.close(Deadline.after(30))
