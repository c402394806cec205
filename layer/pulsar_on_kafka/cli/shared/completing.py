"""A shell completes names of topics, subscriptions, policies and profiles. Names that take longer than 0.3 s are not
offered. Errors are suppressed, so that completion never disturbs the command line."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from pulsar_on_kafka.cli.shared.settings import Settings

WITHIN_S: Final = 0.3
_CONNECT_S: Final = 0.1
_DEFAULT_NAMESPACE: Final = "public/default/"

Complete = Callable[[typer.Context, str], list[str]]


def _silent(complete: Complete) -> Complete:
    @wraps(complete)
    def completed(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            return [each for each in complete(ctx, incomplete) if each.startswith(incomplete)]
        except (Exception, SystemExit):  # any error: the command itself reports a broken configuration
            return []

    return completed


def _settings(ctx: typer.Context) -> Settings:
    """The settings of the typed command. Raises any error that prevents a request to the cluster."""
    from dataclasses import fields, replace

    from pulsar_on_kafka.cli.shared.settings import Given, tenant_of
    from pulsar_on_kafka.kafka.connecting import connection_failure

    shared = {each.name for each in fields(Given)}
    root = {name: value for name, value in ctx.find_root().params.items() if name in shared}
    here = {name: value for name, value in ctx.params.items() if name in shared}
    reported = Given().overridden(**root).overridden(**here)
    settings = replace(reported.settings(request=False), tenant=tenant_of(ctx.params))
    if silent := connection_failure(settings.bootstrap, _CONNECT_S):
        raise ConnectionError(silent)
    return settings


@_silent
def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topic names in the form in which the name is begun: `orders`, `tenant/namespace/orders` or with its domain."""
    from pulsar_on_kafka.base.deadline import Deadline
    from pulsar_on_kafka.kafka.admin import KafkaAdmin
    from pulsar_on_kafka_mapping.names.read_back import topic_from_kafka

    deadline = Deadline.after(WITHIN_S)
    admin = KafkaAdmin({**_settings(ctx).kafka().common(), "log_level": 0})
    try:
        names = map(topic_from_kafka, admin.list_topics(deadline))
    finally:
        admin.close()
    found = [name for name in names if name is not None and name.namespace_name != "pulsar/system"]
    if "://" in incomplete:
        return sorted(map(str, found))
    forms = [f"{name.namespace_name}/{name.local_name}" for name in found]
    local = [form.removeprefix(_DEFAULT_NAMESPACE) for form in forms]
    return sorted(forms if "/" in incomplete else local)


@_silent
def complete_subscription(ctx: typer.Context, incomplete: str) -> list[str]:
    """Subscriptions of the topic that is named before, from one partition of the state topic `subscriptions`, which is
    read to its end. Memory: the subscriptions of one topic."""
    from pulsar_on_kafka.base.deadline import Deadline
    from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
    from pulsar_on_kafka_mapping.names.subscription_group import cluster_of
    from pulsar_on_kafka_mapping.names.topic_name import TopicName
    from pulsar_on_kafka_mapping.state.instances import Instance
    from pulsar_on_kafka_mapping.state.metadata.metadata_records import LifeState, decode_subscription
    from pulsar_on_kafka_mapping.state.state_keys import SubscriptionKey, decode_key
    from pulsar_on_kafka_mapping.state.state_topics import SUBSCRIPTIONS

    deadline = Deadline.after(WITHIN_S)
    # An option that lacks its value keeps arguments from being parsed.
    topic = str(TopicName.parse(ctx.params.get("topic") or ctx.args[0]))
    settings = _settings(ctx)
    kafka = settings.kafka()
    where = Instance(settings.instance).state_topic(SUBSCRIPTIONS), SUBSCRIPTIONS.partition_for(topic)
    newest: dict[str, tuple[int, bytes]] = {}
    fetcher = Fetcher({**kafka.of_state(kafka.reader(fetch_queue_kbytes=4096)), "log_level": 0})
    try:
        for batch in fetcher.read(*where, *fetcher.watermarks(*where, deadline), deadline):
            for record in batch:
                key, value = decode_key(record.key() or b""), record.value()
                if isinstance(key, SubscriptionKey) and key.topic == topic and value is not None:
                    version, _ = newest.get(key.subscription, (-1, b""))
                    if key.version > version:
                        newest[key.subscription] = key.version, value
    finally:
        fetcher.close()
    found = [decode_subscription(value) for _, value in newest.values()]
    return sorted(
        each.subscription
        for each in found
        if each.state is LifeState.ACTIVE and not each.non_durable and cluster_of(each.subscription) is None
    )


@_silent
def complete_policy(ctx: typer.Context, incomplete: str) -> list[str]:
    from pulsar_on_kafka.broker.metadata.policies import POLICIES

    return sorted(POLICIES)


@_silent
def complete_profile(ctx: typer.Context, incomplete: str) -> list[str]:
    from pulsar_on_kafka.client.connection.profiles import Profiles

    return Profiles().names()
