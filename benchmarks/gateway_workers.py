"""The programs that only the gateway's groups measure: Pulsar's own `pulsar-perf`, and many connections.

`pulsar-perf` is the class of `pulsar-testclient` 4.0.8 (4.0.7 is not on Maven Central) on the client of 4.0.7.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import psutil
import pulsar

from benchmarks.gateways import gateway_to
from benchmarks.java_programs import by_java
from benchmarks.model import OWN_SDK
from pulsar_on_kafka.embedded.jar_cache import JarSet, cached
from pulsar_on_kafka.embedded.java import find_java
from tests.compat.pulsar_standalone.jars import pulsar_jars

_VERSION: Final = "4.0.8"
_TIMEOUT_S: Final = 600.0
_TOTAL: Final = re.compile(r"Aggregated throughput stats --- (\d+) records \w+ --- ([\d.,]+) msg/s")
_MB: Final = 1 << 20


def java_produce(sdk: str, url: str, topic: str, messages: int, size: int, batching: bool) -> dict[str, Any]:
    """As `produce` of the SDKs, by Java's client (`PulsarProduce.java`); a tenth more warm it up before.

    Pulsar's own `pulsar-perf` is no measure of sending: it reports every ten seconds, whatever it is told, and sleeps
    before it counts its total.
    """
    return by_java("PulsarProduce", url, topic, messages, messages // 10, size, str(batching).lower())


def perf_receive(
    sdk: str, url: str, topic: str, messages: int, size: int, batching: bool, subscription: str
) -> dict[str, Any]:
    """On a Shared subscription, each message acknowledged; from its start to the last message."""
    told = ["-m", str(messages), "-st", "Shared", "-sp", "Earliest", "-ss", subscription]
    return _perf("consume", url, topic, messages, *told)


def _perf(what: str, url: str, topic: str, messages: int, *told: str) -> dict[str, Any]:
    jars = cached(
        JarSet(
            name=f"pulsar-testclient-{_VERSION}",
            title=f"Apache Pulsar's pulsar-perf {_VERSION}",
            size_mb=1,
            alone=(f"org.apache.pulsar:pulsar-testclient:{_VERSION}",),
            needed=("pulsar-testclient-",),
        )
    )
    with tempfile.NamedTemporaryFile(suffix=".conf") as no_settings:
        command = [
            find_java().executable,
            "-Xmx1g",
            "-Dlog4j2.level=INFO",
            "-cp",
            f"{jars / 'libs'}/*:{pulsar_jars()}/*",
            "org.apache.pulsar.testclient.PulsarPerfTestTool",
            no_settings.name,
            what,
            "-u",
            url,
            *told,
            topic,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    found = _TOTAL.search(done.stdout)
    if found is None:
        raise RuntimeError(f"pulsar-perf {what} ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
    if int(found[1]) < messages:
        raise RuntimeError(f"pulsar-perf {what}: {found[1]} of {messages} messages")
    return {"per_s": round(float(found[2].replace(",", "")))}


def connections(sdk: str, url: str, topic: str, messages: int, connections: int) -> dict[str, Any]:
    """`messages` in all pass through a gateway of its own, over so many connections, each with a topic of its own.

    `gateway_mb` is what is resident of the gateway afterwards, `gateway_peak_mb` the most that ever was, in MB of
    1024 x 1024.
    """
    assert sdk == OWN_SDK
    each = messages // connections
    with gateway_to(url) as serving:
        clients = [pulsar.Client(serving.url) for _ in range(connections)]
        consumers = [
            client.subscribe(f"{topic}-{number}", "s", pulsar.ConsumerType.Shared)
            for number, client in enumerate(clients)
        ]
        producers = [client.create_producer(f"{topic}-{number}") for number, client in enumerate(clients)]
        for _ in range(each):
            for producer in producers:
                producer.send_async(b"x" * 200, None)
        for producer in producers:
            producer.flush()
        for consumer in consumers:
            for _ in range(each):
                consumer.acknowledge(consumer.receive(60_000))
        memory = psutil.Process(serving.pid).memory_info().rss
        status = Path(f"/proc/{serving.pid}/status").read_text(encoding="ascii")
        threads = psutil.Process(serving.pid).num_threads()
        for client in clients:
            client.close()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return {
        "gateway_mb": round(memory / _MB, 1),
        "gateway_peak_mb": round(int(peak.split()[1]) / 1024, 1),
        "gateway_threads": threads,
    }
