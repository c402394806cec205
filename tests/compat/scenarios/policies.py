"""Policies act by themselves, whoever is connected: quotas, times to live, the end of what nobody uses.

Pulsar's brokers look at some of them once a minute at the most, hence the long waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.compat.harness.driver import ScenarioRun, numbers
from tests.compat.harness.scenario import scenario

AREA = "policies"

_SOON_S = 60.0
_MINUTES_S = 200.0


def _topic(run: ScenarioRun, label: str = "topic", **policies: Any) -> str:
    """In a namespace of its own with these policies."""
    topic = run.topic(label, namespace=run.namespace(f"{label}s"))
    _act(run, topic, **policies)
    return topic


def _act(run: ScenarioRun, topic: str, **policies: Any) -> None:
    """From now on these policies of its namespace count, too."""
    run.admin.set_policies(_namespace(topic), **policies)
    run.admin.keep_up()


def _namespace(topic: str) -> str:
    return topic.removeprefix("persistent://").rpartition("/")[0]


def _fill(producer: Any, texts: Iterable[str]) -> None:
    for text in texts:
        producer.send_async(text.encode().ljust(1000), lambda result, message_id: None)
    producer.flush()


def _fails(call: Callable[[], Any]) -> str:
    """The error's name; empty when it works."""
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return ""


# Quotas ---------------------------------------------------------------------------------------------------------------


def _blocked_and_let_go_on(run: ScenarioRun, action: str, blocked: str, sending: str) -> None:
    topic = _topic(run)
    consumer = run.consumer(topic)
    _fill(run.producer(topic), [""] * 40)
    there = run.producer(topic, send_timeout_millis=2000)
    _act(run, topic, backlog_quota_limit_size=20_000, backlog_quota_limit_size_action=action)
    other = run.client()

    def refused() -> bool:
        try:
            other.create_producer(topic).close()
        except Exception as error:
            if type(error).__name__ != blocked:
                run.record("another error", run.error_name(error))
            return True
        return False

    run.until(refused, "a new producer to be refused", _SOON_S)
    run.attempt("a new producer", lambda: other.create_producer(topic))
    run.until(lambda: _fails(lambda: there.send(b"more")) == sending, f"a send to end with {sending}", _SOON_S)
    run.record("a send of the producer that is there", sending)

    def let_in() -> bool:
        for message in run.rest(consumer):
            consumer.acknowledge(message)
        return not refused()

    run.until(let_in, "new producers to be let in", _SOON_S)
    run.attempt("a new producer, afterwards", lambda: other.create_producer(topic).send(b"after"))


@scenario(area=AREA, title="producer_request_hold: producers wait until there is room", time_limit_s=_MINUTES_S)
def producer_request_hold(run: ScenarioRun) -> None:
    _blocked_and_let_go_on(run, "producer_request_hold", "ProducerBlockedQuotaExceededError", "Timeout")


@scenario(area=AREA, title="producer_exception: producers are refused until there is room", time_limit_s=_MINUTES_S)
def producer_exception(run: ScenarioRun) -> None:
    refused = "ProducerBlockedQuotaExceededException"
    _blocked_and_let_go_on(run, "producer_exception", refused, refused)


@scenario(area=AREA, title="consumer_backlog_eviction by size: the oldest go, producers never notice")
def eviction_by_size(run: ScenarioRun) -> None:
    topic = _topic(run)
    for subscription in ("slow", "live"):
        run.consumer(topic, subscription).close()
    producer = run.producer(topic, send_timeout_millis=0)
    _fill(producer, map(str, range(100)))
    _act(run, topic, backlog_quota_limit_size=50_000, backlog_quota_limit_size_action="consumer_backlog_eviction")
    run.until(lambda: run.admin.backlog(topic, "slow") < 51, "the backlog to fall", _SOON_S)
    producer.send(b"100")
    left = [int(message.data()) for message in run.rest(run.consumer(topic, "slow"))]
    run.record("only the oldest are gone", left == list(range(101 - len(left), 101)))
    run.record("about 90 % of the limit is left", 35 <= len(left) <= 50)


@scenario(area=AREA, title="consumer_backlog_eviction by time: what waits too long goes")
def eviction_by_time(run: ScenarioRun) -> None:
    topic = _topic(run, backlog_quota_limit_time=10, backlog_quota_limit_time_action="consumer_backlog_eviction")
    run.consumer(topic).close()
    run.send(topic, numbers(10))
    run.record("at first", run.admin.backlog(topic, "sub"))
    run.until(lambda: run.admin.backlog(topic, "sub") == 0, "the backlog to go", _SOON_S)
    consumer = run.consumer(topic)
    run.send(topic, ["new"])
    run.record_messages("afterwards", run.receive_acked(consumer, 1))
    run.record_messages("and then", run.rest(consumer))


@scenario(area=AREA, title="A limit by time holds producers, too", time_limit_s=_MINUTES_S)
def producer_request_hold_by_time(run: ScenarioRun) -> None:
    topic = _topic(run, backlog_quota_limit_time=2)
    run.consumer(topic).close()
    run.send(topic, ["old"])
    blocked = "ProducerBlockedQuotaExceededError"
    run.until(lambda: _fails(lambda: run.producer(topic).close()) == blocked, "producers to be refused", _SOON_S)
    run.attempt("a new producer", lambda: run.producer(topic))
    run.admin.clear_backlog(topic, "sub")
    run.until(lambda: not _fails(lambda: run.producer(topic).close()), "producers to be let in", _SOON_S)
    run.attempt("afterwards", lambda: run.send(topic, ["new"]))


# Times to live --------------------------------------------------------------------------------------------------------


@scenario(area=AREA, title="Message TTL acknowledges what is old, for every subscription", time_limit_s=_MINUTES_S)
def message_ttl(run: ScenarioRun) -> None:
    topic = _topic(run, message_ttl_in_seconds=10)
    run.consumer(topic, "away").close()
    holding = run.consumer(topic, "holding", "Shared")
    run.send(topic, ["1", "2", "3"])
    held = run.receive(holding, 3)
    holding.acknowledge(held[1])
    for subscription in ("away", "holding"):
        run.until(lambda s=subscription: run.admin.backlog(topic, s) == 0, f"{subscription}: all expired", _MINUTES_S)  # type: ignore[misc]
    run.attempt("acknowledging what has expired", lambda: holding.acknowledge(held[0]))
    holding.redeliver_unacknowledged_messages()
    run.send(topic, ["new"])
    run.record_messages("comes to the one that held", run.receive_acked(holding, 1))
    run.record_messages("and then", run.rest(holding))
    reader = run.reader(topic, run.sdk.MessageId.earliest)
    run.record_messages("is still there to be read", run.read(reader, 4))


@scenario(area=AREA, title="Subscriptions that nobody uses expire", time_limit_s=_MINUTES_S)
def subscription_expiry(run: ScenarioRun) -> None:
    topic = _topic(run, subscription_expiration_time_minutes=1)
    run.consumer(topic, "idle").close()
    run.consumer(topic, "connected")
    run.send(topic, ["1"])
    run.until(lambda: "idle" not in run.admin.list_subscriptions(topic), "the idle one to go", _MINUTES_S)
    run.record("left", run.admin.list_subscriptions(topic))
    again = run.consumer(topic, "idle")
    run.send(topic, ["2"])
    run.record_messages("made anew it begins at the end", run.rest(again))


# What nobody uses -----------------------------------------------------------------------------------------------------


def _unused(run: ScenarioRun, mode: str) -> str:
    return _topic(run, "gone", delete_while_inactive=True, inactive_topic_delete_mode=mode,
                  max_inactive_duration_seconds=3)  # fmt: skip


@scenario(area=AREA, title="Topics without subscriptions go, with what is in them; others stay")
def inactive_without_subscriptions(run: ScenarioRun) -> None:
    gone = _unused(run, "delete_when_no_subscriptions")
    namespace = _namespace(gone)
    subscribed, produced = (run.topic(label, namespace=namespace) for label in ("subscribed", "produced"))
    run.consumer(subscribed).close()
    run.producer(produced)
    run.send(gone, ["1", "2"])
    run.until(lambda: gone not in run.admin.list_topics(namespace), "the topic to go", _SOON_S)
    run.record("left", run.admin.list_topics(namespace))
    reader = run.reader(gone, run.sdk.MessageId.earliest)
    run.send(gone, ["3"])
    run.record_messages("made anew", run.read(reader, 1))


@scenario(area=AREA, title="Topics go whose subscriptions are caught up; those with a backlog stay")
def inactive_caught_up(run: ScenarioRun) -> None:
    gone = _unused(run, "delete_when_subscriptions_caught_up")
    namespace = _namespace(gone)
    waiting = run.topic("waiting", namespace=namespace)
    for topic in (gone, waiting):
        consumer = run.consumer(topic)
        run.send(topic, ["1"])
        if topic == gone:
            run.receive_acked(consumer, 1)
        consumer.close()
    run.until(lambda: gone not in run.admin.list_topics(namespace), "the topic to go", _SOON_S)
    run.record("left", run.admin.list_topics(namespace))
    run.attempt("its subscription", lambda: run.admin.list_subscriptions(gone))
    run.admin.clear_backlog(waiting, "sub")
    run.until(lambda: not run.admin.list_topics(namespace), "the other to go", _SOON_S)
