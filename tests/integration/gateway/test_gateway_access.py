"""Clients log in to the gateway: with tokens, which may end, and with certificates."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import jwt
import pytest

import pulsar_on_kafka as sdk
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.base.http_server import ServerTls
from pulsar_on_kafka.gateway.login.access import GatewayAccess, TokenKey
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from tests.certificates import Authority
from tests.integration.gateway.wire import ABORT, COMMIT, Wire, begun
from tests.steps import EARLIEST, Unique, payloads, receive

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

pytestmark = pytest.mark.kafka

SECRET: Final = secrets.token_bytes(32)
_PATIENCE_MS: Final = 60_000
_BRIEFLY: Final[Mapping[str, Any]] = {"operation_timeout_seconds": 3}
"""The official client tries again for so long, whatever a gateway tells it."""
Serving = Callable[..., AbstractContextManager[Gateway]]


def token(role: str, **claims: Any) -> str:
    return jwt.encode({"sub": role, **claims}, SECRET)


@pytest.fixture
def serving(admin: AdminClient, unique: Unique, tmp_path: Path) -> Serving:
    """Makes a gateway where tokens of `SECRET` are known."""
    key = tmp_path / "secret.key"
    key.write_bytes(SECRET)

    @contextmanager
    def made(tokens: bool = True, super_users: frozenset[str] = frozenset(), **settings: Any) -> Iterator[Gateway]:
        access = GatewayAccess(TokenKey.secret(str(key)) if tokens else None, "trusted" in settings, super_users)
        gateway = Gateway(admin.node, GatewaySettings(port=0, access=access, fleet=unique(), **settings))
        try:
            yield gateway
        finally:
            gateway.close(Deadline.after(60))

    return made


@contextmanager
def official(gateway: Gateway, **options: Any) -> Iterator[Any]:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(gateway.address(), logger=quiet, **options)
    try:
        yield client
    finally:
        client.close()


def passes_a_message(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    client.create_producer(topic).send(b"one")
    assert consumer.receive(_PATIENCE_MS).data() == b"one"


def test_clients_with_a_token_are_served_and_others_hear_why_not(serving: Serving, unique: Unique) -> None:
    with serving() as gateway:
        for role in ("billing", "shipping"):
            with official(gateway, authentication=pulsar.AuthenticationToken(token(role))) as client:
                passes_a_message(client, unique())
        wrong = jwt.encode({"sub": "billing"}, secrets.token_bytes(32))
        for options in ({}, {"authentication": pulsar.AuthenticationToken(wrong)}):
            with official(gateway, **options, **_BRIEFLY) as client, pytest.raises(pulsar.PulsarException):
                client.create_producer(unique())
        with Wire(gateway) as wire:
            kind, said = wire.connect()
            assert (kind, said.error, said.message) == (
                Type.ERROR, ServerError.AUTHENTICATION, "login by 'none', expected token",
            )  # fmt: skip
            assert wire.hear() == (None, None)


def test_a_client_is_asked_for_a_new_token_when_its_own_has_ended(serving: Serving, unique: Unique) -> None:
    asked: list[int] = []

    def fresh() -> str:
        asked.append(len(asked))
        return token("billing", exp=int(time.time()) + 2)

    with (
        serving() as gateway,
        official(gateway, authentication=pulsar.AuthenticationToken(fresh)) as client,
    ):
        topic = unique()
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        producer = client.create_producer(topic)
        sent = 0
        deadline = Deadline.after(60)
        while len(asked) < 4:
            assert not deadline.passed()
            producer.send(b"%d" % sent)
            message = consumer.receive(_PATIENCE_MS)
            consumer.acknowledge(message)
            assert message.data() == b"%d" % sent
            sent += 1


def test_a_client_without_a_new_token_ends_with_the_old_one(serving: Serving) -> None:
    with serving() as gateway:
        old = {"auth_method_name": "token", "auth_data": token("billing", exp=int(time.time()) + 3).encode()}
        with Wire(gateway) as wire:
            assert wire.connect(**old, feature_flags={"supports_auth_refresh": True})[0] is Type.CONNECTED
            kind, asked = wire.hear()
            assert (kind, asked.challenge.auth_method_name, asked.challenge.auth_data) == (
                Type.AUTH_CHALLENGE, "token", b"PulsarAuthRefresh",
            )  # fmt: skip
            wire.say(Type.AUTH_RESPONSE, response={**old, "auth_data": token("shipping").encode()})
            kind, refused = wire.hear()
            assert (kind, refused.message) == (Type.ERROR, "billing cannot become shipping")
            assert wire.hear() == (None, None)
        with Wire(gateway) as ended:
            kind, refused = ended.connect(**old)
            assert (kind, refused.error) == (Type.ERROR, ServerError.AUTHENTICATION)
            assert ended.hear() == (None, None)
        with Wire(gateway) as cannot:  # be asked anew
            soon = token("billing", exp=int(time.time()) + 2).encode()
            assert cannot.connect(auth_method_name="token", auth_data=soon)[0] is Type.CONNECTED
            assert cannot.hear() == (None, None)


def test_a_transaction_is_its_owners(serving: Serving, client: sdk.Client, admin: AdminClient, unique: Unique) -> None:
    """Whoever else has logged in neither adds to it nor ends it, wherever it was begun, unless it is a super user."""
    topic = unique()
    seen = client.subscribe(topic, "s", initial_position=EARLIEST)
    named = f"persistent://public/default/{topic}"
    with ExitStack() as stack:
        first, second = (stack.enter_context(serving(super_users=frozenset({"root"}))) for _ in range(2))

        def wire(gateway: Gateway, role: str) -> Wire:
            made = stack.enter_context(Wire(gateway))
            assert made.connect(auth_method_name="token", auth_data=token(role).encode())[0] is Type.CONNECTED
            return made

        billing, heir, root = wire(first, "billing"), wire(second, "billing"), wire(second, "root")
        owned, other = begun(billing), begun(billing)
        ours = {each["txnid_least_bits"] for each in (owned, other)}
        owners = [info.owner for info in admin.list_transactions(3) if info.id.least_bits in ours]
        assert owners == ["billing", "billing"]
        for stranger in (wire(first, "shipping"), wire(second, "shipping")):
            for kind, asked in (
                (Type.ADD_PARTITION_TO_TXN, {"partitions": [named]}),
                (Type.ADD_SUBSCRIPTION_TO_TXN, {"subscription": [{"topic": named, "subscription": "s"}]}),
                (Type.END_TXN, {"txn_action": ABORT}),
            ):
                said = stranger.ask(kind, request_id=3, **asked, **owned)
                assert (said.error, said.txnid_most_bits) == (ServerError.TRANSACTION_NOT_FOUND, 3)
                assert said.message.startswith("shipping is neither the owner of transaction ")
        assert not billing.ask(Type.ADD_PARTITION_TO_TXN, request_id=4, partitions=[named], **owned).HasField("error")
        assert heir.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=5).producer_ready
        heir.send(1, 0, b"billed", **owned)
        assert heir.hear()[0] is Type.SEND_RECEIPT
        assert not heir.ask(Type.END_TXN, request_id=6, txn_action=COMMIT, **owned).HasField("error")
        assert not root.ask(Type.END_TXN, request_id=7, txn_action=ABORT, **other).HasField("error")
        assert payloads(receive(seen, 1)) == ["billed"]


def test_a_response_that_nobody_asked_for_and_a_proxy_are_closed(serving: Serving) -> None:
    login = {"auth_method_name": "token", "auth_data": token("billing").encode()}
    with serving() as gateway, Wire(gateway) as wire, Wire(gateway) as proxy:
        assert wire.connect(**login)[0] is Type.CONNECTED
        wire.say(Type.AUTH_RESPONSE, response=login)
        assert wire.hear() == (None, None)
        kind, said = proxy.connect(**login, original_principal="admin")
        assert (kind, said.error) == (Type.ERROR, ServerError.AUTHORIZATION)
        assert proxy.hear() == (None, None)


def test_a_certificate_logs_in(serving: Serving, unique: Unique, tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "a stranger")
    server = authority.issue("server", address="127.0.0.1")
    client_s, strangers = authority.issue("billing"), stranger.issue("billing2")
    tls = ServerTls(str(server.certificate), str(server.key))

    def options(identity: Any) -> dict[str, Any]:
        return {
            "authentication": pulsar.AuthenticationTLS(str(identity.certificate), str(identity.key)),
            "tls_trust_certs_file_path": str(authority.file),
        }

    with serving(tokens=False, tls=tls, trusted=str(authority.file)) as gateway:
        assert gateway.address().startswith("pulsar+ssl://")
        with official(gateway, **options(client_s)) as client:
            passes_a_message(client, unique())
        without = {"tls_trust_certs_file_path": str(authority.file)}
        with official(gateway, **without, **_BRIEFLY) as client, pytest.raises(pulsar.PulsarException):
            client.create_producer(unique())
        with official(gateway, **options(strangers), **_BRIEFLY) as client, pytest.raises(pulsar.PulsarException):
            client.create_producer(unique())
    with serving(tls=tls, trusted=str(authority.file)) as gateway:  # tokens, too
        with official(gateway, **options(client_s)) as client:
            passes_a_message(client, unique())
        with official(gateway, **without, authentication=pulsar.AuthenticationToken(token("billing"))) as client:
            passes_a_message(client, unique())


def test_files_that_are_no_authorities_are_refused(admin: AdminClient, tmp_path: Path) -> None:
    server = Authority(tmp_path).issue("server", address="127.0.0.1")
    tls = ServerTls(str(server.certificate), str(server.key))
    with pytest.raises(InvalidOption, match="no PEM file of authorities"):
        Gateway(admin.node, GatewaySettings(port=0, tls=tls, trusted=str(server.key)))
    with pytest.raises(InvalidOption, match="there is no certificate to answer"):
        Gateway(admin.node, GatewaySettings(port=0, trusted=str(server.certificate)))
