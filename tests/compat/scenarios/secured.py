"""TLS, logins by token and rights: what is refused, and under which name.

Pulsar has authorization by namespace, Kafka ACLs; `compat.secured.ROLES` says what each role may do on both.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario
from tests.compat.harness.secured import CONSUMER, EVERYTHING, EXPIRED, FORGED, NOBODY, PRODUCER

SECURED: dict[str, Any] = {"area": "security", "secured": True}
QUICK: dict[str, Any] = {"operation_timeout_seconds": 5}


def _topic(run: ScenarioRun) -> str:
    """A topic that is there, with a subscription `sub` and two messages."""
    topic = run.topic()
    run.consumer(topic, initial_position=run.sdk.InitialPosition.Earliest).close()
    run.send(topic, ["a", "b"])
    return topic


def _try_all(run: ScenarioRun, client: Any, topic: str) -> None:
    earliest = run.sdk.MessageId.earliest
    run.attempt("producer", lambda: client.create_producer(topic))
    run.attempt("consumer", lambda: client.subscribe(topic, "sub"))
    run.attempt("reader", lambda: client.create_reader(topic, earliest))


@scenario(**SECURED, title="With a good token everything works")
def good_token(run: ScenarioRun) -> None:
    topic = _topic(run)
    client = run.client_as(EVERYTHING)
    consumer = client.subscribe(topic, "sub")
    run.record_messages("received", run.receive_acked(consumer, 2))
    client.create_producer(topic).send(b"c")
    run.record_messages("and then", run.receive_acked(consumer, 1))
    run.record_messages("read", run.read(client.create_reader(topic, run.sdk.MessageId.earliest), 3))


@scenario(**SECURED, title="A token from a function")
def token_supplier(run: ScenarioRun) -> None:
    topic = _topic(run)
    token = run.logins.tokens[EVERYTHING]
    login = run.sdk.AuthenticationToken(lambda: token)
    client = run.client(authentication=login, tls_trust_certs_file_path=run.logins.authority)
    run.record_messages("received", run.receive(client.subscribe(topic, "sub"), 2))


@scenario(**SECURED, title="A function that fails to give a token")
def failing_supplier(run: ScenarioRun) -> None:
    topic = _topic(run)

    def supply() -> str:
        raise RuntimeError("no token today")

    login = run.sdk.AuthenticationToken(supply)
    client = run.client(authentication=login, tls_trust_certs_file_path=run.logins.authority, **QUICK)
    run.attempt("producer", lambda: client.create_producer(topic))


@scenario(**SECURED, title="No login")
def no_login(run: ScenarioRun) -> None:
    topic = _topic(run)
    _try_all(run, run.client_as(None, **QUICK), topic)


@scenario(**SECURED, title="A token that the cluster did not sign")
def forged_token(run: ScenarioRun) -> None:
    topic = _topic(run)
    _try_all(run, run.client_as(FORGED, **QUICK), topic)


@scenario(**SECURED, title="A token that is over")
def expired_token(run: ScenarioRun) -> None:
    topic = _topic(run)
    _try_all(run, run.client_as(EXPIRED, **QUICK), topic)


@scenario(**SECURED, title="Text that is no token")
def no_token(run: ScenarioRun) -> None:
    topic = _topic(run)
    for name, text in (("words", "let me in"), ("empty", "")):
        login = run.attempt(f"{name}: made", lambda t=text: run.sdk.AuthenticationToken(t))  # type: ignore[misc]
        if login is None:
            continue
        client = run.client(authentication=login, tls_trust_certs_file_path=run.logins.authority, **QUICK)
        run.attempt(f"{name}: producer", lambda c=client: c.create_producer(topic))  # type: ignore[misc]


@scenario(**SECURED, title="AuthenticationToken of something else than a text or a function")
def bad_token(run: ScenarioRun) -> None:
    for name, value in (("None", None), ("number", 5), ("bytes", b"token")):
        run.attempt(name, lambda v=value: run.sdk.AuthenticationToken(v))  # type: ignore[misc]


@scenario(**SECURED, title="An authority that did not sign the servers' certificate")
def unknown_authority(run: ScenarioRun) -> None:
    topic = _topic(run)
    client = run.client_as(EVERYTHING, tls_trust_certs_file_path=run.logins.other_authority, **QUICK)
    run.attempt("producer", lambda: client.create_producer(topic))
    run.attempt("consumer", lambda: client.subscribe(topic, "sub"))


@scenario(**SECURED, title="Certificates that are not looked at")
def insecure(run: ScenarioRun) -> None:
    topic = _topic(run)
    client = run.client_as(
        EVERYTHING, tls_trust_certs_file_path=run.logins.other_authority, tls_allow_insecure_connection=True
    )
    run.record_messages("received", run.receive(client.subscribe(topic, "sub"), 2))


@scenario(**SECURED, title="The server's name is checked when told so")
def host_name(run: ScenarioRun) -> None:
    topic = _topic(run)
    client = run.client_as(EVERYTHING, tls_validate_hostname=True)
    run.attempt("the address in the certificate", lambda: client.create_producer(topic))


@scenario(**SECURED, title="Files that are not there, or hold no certificate")
def bad_files(run: ScenarioRun) -> None:
    topic = _topic(run)
    text = Path(run.directory) / "text.pem"
    text.write_text("this is no certificate", encoding="utf-8")
    for name, file in (("missing", str(Path(run.directory) / "missing.pem")), ("text", str(text))):
        client = run.attempt(
            f"{name}: client",
            lambda f=file: run.client_as(EVERYTHING, tls_trust_certs_file_path=f, **QUICK),  # type: ignore[misc]
        )
        if client is not None:
            run.attempt(f"{name}: producer", lambda c=client: c.create_producer(topic))  # type: ignore[misc]


@scenario(**SECURED, title="Without TLS at a port that wants it")
def without_tls(run: ScenarioRun) -> None:
    plain = run.service_url.replace("+ssl://", "://")
    login = run.sdk.AuthenticationToken(run.logins.tokens[EVERYTHING])
    client = run.client_at(plain, authentication=login, **QUICK)
    run.attempt("producer", lambda: client.create_producer("persistent://public/default/compat-any"))


@scenario(**SECURED, title="Who may produce only")
def produces_only(run: ScenarioRun) -> None:
    topic = _topic(run)
    client = run.client_as(PRODUCER)
    producer = run.attempt("producer", lambda: client.create_producer(topic))
    run.attempt("send", lambda: producer.send(b"c"))  # type: ignore[union-attr]
    run.attempt("consumer", lambda: client.subscribe(topic, "sub"))
    # Pulsar refuses the reader, Kafka what it reads.
    run.attempt("reading", lambda: client.create_reader(topic, run.sdk.MessageId.earliest).read_next(20_000))
    run.record_messages("received", run.receive(run.consumer(topic), 3))


@scenario(**SECURED, title="Who may consume only")
def consumes_only(run: ScenarioRun) -> None:
    topic = _topic(run)
    client = run.client_as(CONSUMER)
    consumer = run.attempt("consumer", lambda: client.subscribe(topic, "sub"))
    run.record_messages("received", run.receive_acked(consumer, 2))
    run.attempt("producer", lambda: client.create_producer(topic))


@scenario(**SECURED, title="Every type of consumer, with the right to consume alone")
def consumer_types(run: ScenarioRun) -> None:
    topic = _topic(run)
    client = run.client_as(CONSUMER)
    for kind in ("Shared", "Failover", "KeyShared"):
        consumer = client.subscribe(
            topic,
            f"sub-{kind}",
            consumer_type=getattr(run.sdk.ConsumerType, kind),
            initial_position=run.sdk.InitialPosition.Earliest,
        )
        run.record_set(kind, run.receive_acked(consumer, 2))


@scenario(**SECURED, title="Who may log in, and nothing else")
def nobody(run: ScenarioRun) -> None:
    topic = _topic(run)
    _try_all(run, run.client_as(NOBODY, **QUICK), topic)


@scenario(**SECURED, title="Who may nothing: a topic that is not there, and partitions")
def nobody_and_new_topics(run: ScenarioRun) -> None:
    client = run.client_as(NOBODY, **QUICK)
    topic = run.topic("new")
    run.attempt("producer on a new topic", lambda: client.create_producer(topic))
    run.attempt("partitions", lambda: client.get_topic_partitions(topic))
    run.attempt("table view", lambda: client.create_table_view(topic))


@scenario(**SECURED, title="Several topics: one refusal refuses all")
def several_topics(run: ScenarioRun) -> None:
    topics = [run.topic("a"), run.topic("b")]
    for topic in topics:
        run.send(topic, ["x"])
    client = run.client_as(PRODUCER, **QUICK)
    run.attempt("list", lambda: client.subscribe(topics, "sub"))


@scenario(**SECURED, title="send_async over TLS")
def asynchronous(run: ScenarioRun) -> None:
    topic = _topic(run)
    client = run.client_as(EVERYTHING)
    producer = client.create_producer(topic)
    answers: list[Any] = []
    answered = threading.Event()

    def heard(result: Any, _: Any) -> None:
        answers.append(result)
        answered.set()

    producer.send_async(b"x", heard)
    answered.wait(20)
    run.record("allowed", answers)


@scenario(**SECURED, title="Administration needs its own right")
def administration(run: ScenarioRun) -> None:
    topic = _topic(run)
    run.admin.create_subscription(topic, "made", from_earliest=True)
    run.record("subscriptions", run.admin.list_subscriptions(topic))
    run.record("backlog", run.admin.backlog(topic, "made"))
