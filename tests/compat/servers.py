"""A run of the harness uses the servers that are named, and for the others processes or containers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.embedded import EmbeddedBrokerError, open_broker
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from tests.compat.harness.java import known_jars
from tests.compat.harness.scenario import ScenarioError, choose, load
from tests.compat.pulsar_standalone import (
    PULSAR_4,
    PulsarContainer,
    PulsarOptions,
    PulsarRelease,
    PulsarStandalone,
    PulsarStandaloneError,
    release_of,
)
from tests.compat.secured import secured_clusters

DOCKER: Final = "--docker"
"""Start Kafka and Pulsar in containers; without it they are Java processes."""
_CLOSE_S: Final = 60.0
GATEWAY: Final = "--gateway"
"""Start a gateway to Kafka, and have official clients play there; with a value (`--gateway=URL`) use that one."""


def start_servers(stack: ExitStack, arguments: Sequence[str]) -> list[str]:
    """Start what no address was given for, at once; gives the arguments of `pok compat run`. The value of `--pulsar`
    may be a version to start, such as 5.

    Raises:
        PulsarStandaloneError, EmbeddedBrokerError: one cannot be started; one line on what to do.
    """
    release, given = _release_to_start([argument for argument in arguments if argument not in (DOCKER, GATEWAY)])
    named = {argument.partition("=")[0] for argument in given}
    in_containers = DOCKER in arguments
    options: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        kafka = pulsar = secured = None
        if "--kafka" not in named:
            kafka = pool.submit(stack.enter_context, open_broker("docker" if in_containers else "auto"))
        if release is not None:
            kind = PulsarContainer if in_containers else PulsarStandalone
            pulsar = pool.submit(stack.enter_context, kind(PulsarOptions(release=release)))
        if "--secured" not in named and wants_secured(given):
            here = release if kafka is not None and not in_containers and GATEWAY not in named else None
            secured = pool.submit(_secured, stack, here, on_gateway=GATEWAY in arguments)
        if kafka is not None:
            options += ["--kafka", f"kafka://{kafka.result().bootstrap}"]
        if GATEWAY in arguments:
            url = _value_of("--kafka", [*given, *options]) or ""
            options += [GATEWAY, stack.enter_context(gateway_to(url))]
        if pulsar is not None:
            running: Any = pulsar.result()
            options += ["--pulsar", running.service_url, "--pulsar-admin", running.admin_url]
        if release is not None and "--pulsar-jars" not in named and (jars := known_jars(release)) is not None:
            options += ["--pulsar-jars", str(jars)]
        if secured is not None:
            options += secured.result()
    # Servers that were started here go with all that is in them.
    ours = kafka is not None and pulsar is not None and not os.environ.get("POK_BOOTSTRAP")
    return [*given, *options, *(["--keep"] if ours else [])]


def _release_to_start(arguments: Sequence[str]) -> tuple[PulsarRelease | None, list[str]]:
    """The release to start, None for a Pulsar that is named by its address, and the arguments without a version."""
    value = _value_of("--pulsar", arguments)
    if value is not None and "://" in value:
        return None, list(arguments)
    release, rest, left = PULSAR_4, [], iter(arguments)
    for argument in left:
        name, is_pair, version = argument.partition("=")
        if name == "--pulsar":
            release = release_of(version if is_pair else next(left, ""))
        else:
            rest.append(argument)
    return release, rest


@contextmanager
def gateway_to(kafka: str) -> Iterator[str]:
    """The address of a gateway in this process."""
    with AdminClient(kafka) as admin:
        gateway = Gateway(admin.node, GatewaySettings(port=0))
        try:
            yield gateway.address()
        finally:
            gateway.close(Deadline.after(_CLOSE_S))


def wants_secured(arguments: Sequence[str]) -> bool:
    """Whether a scenario about security is among those that the arguments choose."""
    try:
        return any(found.secured for found in choose(load().values(), _value_of("--scenario", arguments)))
    except ScenarioError:
        return False  # one of a folder, or a mistake, which the command tells


def _value_of(option: str, arguments: Sequence[str]) -> str | None:
    """The last one that is given; None without any."""
    found = None
    for index, argument in enumerate(arguments):
        name, is_pair, value = argument.partition("=")
        if name == option:
            found = value if is_pair else next(iter(arguments[index + 1 :]), None)
    return found


def _secured(stack: ExitStack, release: PulsarRelease | None, *, on_gateway: bool) -> list[str]:
    """The argument that names the secured clusters, or says why there are none: without a release none is started."""
    if release is None:
        return ["--not-secured", "secured clusters are started only beside a Pulsar and a Kafka of `make compat`'s own"]
    try:
        return ["--secured", str(stack.enter_context(secured_clusters(release, on_gateway=on_gateway)))]
    except (PulsarStandaloneError, EmbeddedBrokerError) as error:
        return ["--not-secured", f"the secured clusters cannot be started: {' '.join(str(error).split())}"]
