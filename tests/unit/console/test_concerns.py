"""The first page's findings: which there are, which is graver, and the sentence about all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pulsar_on_kafka.admin import ConsumerStats, TransactionInfo
from pulsar_on_kafka.admin.overview.records import Overview, SubscriptionOverview
from pulsar_on_kafka.base.role_state import RoleName
from pulsar_on_kafka.broker.managed_ledger.deletion_topics import DEAD_LETTERS, OPERATOR, RETRIES, WORKER
from pulsar_on_kafka.console.concerns import Concern, ConcernKind, Findings, concerns_of, longest_stuck, sentence
from pulsar_on_kafka.console.dead_letter_growth import WITHIN_MS, DeadLetterGrowth
from pulsar_on_kafka.console.view_model import OpenTransaction
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.subscription_group import replicator_subscription
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TxnStatus
from tests.overviews import NOW_MS, TOPIC, overview, slow, stuck, subscription

OTHER = "persistent://public/default/payments"
MAINTAINED = {role: ["a process"] for role in RoleName}


def findings(*rows: SubscriptionOverview, **of: Any) -> Findings:
    return replace(Findings(overview(*rows), transactions=(), roles=MAINTAINED), **of)


def only(found: Findings) -> Concern:
    (concern,) = concerns_of(found)
    return concern


def transaction(age_s: int, *, left_s: int | None, blocks: bool = True) -> OpenTransaction:
    opened_ms = NOW_MS - age_s * 1000
    timeout_ms = NOW_MS + (-120 if left_s is None else left_s) * 1000
    info = TransactionInfo(
        TxnId(1, 7), TxnStatus.OPEN if left_s is not None else TxnStatus.COMMITTING, opened_ms, timeout_ms, (), ()
    )
    left_ms = None if left_s is None else left_s * 1000
    return OpenTransaction(info, left_ms, [(TOPIC, "audit", "waits behind its messages")] if blocks else [])


def test_nothing_needs_anybody() -> None:
    found = findings(subscription(), subscription("audit", backlog=5, oldest_ms=NOW_MS - 3_000, idle_since_ms=NOW_MS))
    assert concerns_of(found) == []
    assert sentence(found, []) == "All is well: 2 subscriptions of 1 topic, and none of them needs an operator."


def test_what_was_not_checked_is_not_called_well() -> None:
    for unchecked in (
        {"transactions": None}, {"roles": None}, {"overview": overview(subscription(), incomplete=("a topic",))},
        {"overview": overview(subscription(processes_known=False))},
    ):  # fmt: skip
        found = findings(subscription(), **unchecked)
        assert len(found.unchecked) == 1
        assert sentence(found, []) == "No problem is known of 1 subscription of 1 topic, but not all could be checked."


def test_the_longest_stuck_one_is_named_and_the_others_are_counted() -> None:
    rows = [stuck("audit", 1, 300), stuck("billing", 1_234, 7_200), stuck("mailer", 7, 600)]
    found = findings(*rows)
    concern = only(found)
    assert concern.what == (
        "billing of orders is stuck: it acknowledged nothing for 2h, and 1,234 messages wait (2 subscriptions more)."
    )
    assert concern.path == "/subscriptions?only=stuck&sort=stuck"
    assert longest_stuck(found.overview) is rows[1]
    assert (
        only(findings(rows[1])).path
        == f"/subscription?topic={TOPIC.replace(':', '%3A').replace('/', '%2F')}&name=billing"
    )
    assert sentence(found, [concern]) == "1 thing needs an operator."


def test_consumers_at_their_limit_explain_it() -> None:
    blocked = ConsumerStats("a", "p", 0, 0, 50_000, 50_000, 0.0, -1.0, blocked_s=70.0)
    assert only(findings(stuck())).advice == "Its program hangs, or refuses every message: read its log."
    told = only(findings(stuck(), consumers=(blocked, replace(blocked, blocked_s=-1.0)))).advice
    assert told.startswith("1 consumer holds as many unacknowledged messages as allowed")
    told = only(findings(stuck(), consumers=(replace(blocked, subscription_blocked_s=9.0),))).advice
    assert told.startswith("It reached its limit of unacknowledged messages")


def test_without_consumers_for_a_minute() -> None:
    gone = stuck(processes=(), seconds=3_600)
    assert only(findings(gone)).what == "billing of orders has no consumer for 1h, and 10 messages wait."
    assert concerns_of(findings(stuck(processes=(), seconds=59))) == []
    assert concerns_of(findings(stuck("pok-redrive", processes=()))) == []


def test_a_slow_one_and_one_whose_backlog_grows() -> None:
    assert only(findings(slow())).what == (
        "billing of orders is slow: it needs 1h40m for its backlog, and 6,000 messages wait."
    )
    assert "its backlog grows" in only(findings(slow(published_per_s=11.0))).what


def test_copies_that_are_late_are_no_stuck_subscriptions() -> None:
    name = replicator_subscription("eu")
    late = stuck(name, seconds=600)
    concern = only(findings(late))
    assert concern.kind is ConcernKind.REPLICATION
    assert concern.what == "orders is 10m behind in cluster eu."
    assert only(findings(replace(late, processes=()))).advice.startswith("No process copies it")
    assert concerns_of(findings(stuck(name, seconds=200))) == []


@pytest.mark.parametrize(
    ("found", "advice"),
    [
        (transaction(700, left_s=300), "Messages behind it wait until its program ends it"),
        (transaction(60, left_s=-120), "It should have ended"),
        (transaction(60, left_s=None), "It should have ended"),
    ],
)
def test_a_transaction_that_blocks_or_should_have_ended(found: OpenTransaction, advice: str) -> None:
    concern = only(findings(subscription(), transactions=(found,)))
    assert concern.advice.startswith(advice)
    assert "and blocks audit of orders." in concern.what
    assert concern.command == ("transactions", "abort", "(1,7)")


def test_other_transactions_are_as_they_should_be() -> None:
    fine = (transaction(500, left_s=300), transaction(700, left_s=300, blocks=False), transaction(60, left_s=-5))
    assert concerns_of(findings(subscription(), transactions=fine)) == []


def test_cursors_that_cannot_be_read() -> None:
    concern = only(findings(subscription(unreadable="offset 7 is gone")))
    assert concern.what == "billing of orders is not served on 1 partition: its acknowledgements cannot be read."


def test_deletions_of_ledgers() -> None:
    given_up = subscription(OPERATOR, DEAD_LETTERS, backlog=2, processes=(), idle_since_ms=NOW_MS - 90_000)
    assert only(findings(given_up)).what == "2 deletions of ledgers were given up: their messages stay in Kafka."
    waits = subscription(WORKER, RETRIES, backlog=1, oldest_ms=NOW_MS - 3_600_000, idle_since_ms=NOW_MS - 90_000)
    assert only(findings(waits)).what == "1 deletion of ledgers is retried, the oldest for 1h."
    assert (
        concerns_of(findings(replace(waits, partitions=(replace(waits.partitions[0], oldest_ms=NOW_MS - 60_000),))))
        == []
    )


def test_nobody_maintains() -> None:
    found = findings(subscription(), roles={**MAINTAINED, RoleName.MAINTENANCE: (), RoleName.REPLICATION: ()})
    assert only(found).what.startswith("No process has the role maintenance")


def test_the_gravest_comes_first() -> None:
    found = findings(
        slow("a"), stuck("b"), stuck("c", processes=()), subscription("d", unreadable="gone"),
        subscription("e", OTHER, dead_letters=9), transactions=(transaction(60, left_s=-120),),
        grown={(OTHER, "e"): 4}, roles={},
    )  # fmt: skip
    concerns = concerns_of(found)
    assert [each.kind.value for each in concerns] == [
        "unreadable", "stuck", "transaction", "unconsumed", "dead letters", "role", "slow",
    ]  # fmt: skip
    assert concerns[4].what == "e of payments gave up 4 messages within 15 minutes."
    assert sentence(found, concerns) == "7 things need an operator."


def test_dead_letters_grow_within_a_quarter_of_an_hour() -> None:
    growth, key = DeadLetterGrowth(), (TOPIC, "billing")

    def at(seconds: int, letters: int) -> int:
        seen: Overview = overview(subscription(dead_letters=letters), gathered_ms=NOW_MS + seconds * 1000)
        growth.saw(seen)
        return growth.grown.get(key, 0)

    assert at(0, 5) == 0, "what was there before the first overview is not new"
    assert at(5, 6) == 1
    assert at(70, 8) == 3
    assert at(140, 2) == 0, "some were put back"
    assert at(200, 3) == 1
    assert at(WITHIN_MS // 1000 + 300, 3) == 0
