"""The machine and the versions, on which the figures depend."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import confluent_kafka

from pulsar_on_kafka.embedded import EmbeddedBrokerError
from pulsar_on_kafka.embedded.java import OLDEST, find_java
from pulsar_on_kafka.embedded.settings import kafka_version
from pulsar_on_kafka_spark.base.connector_jars import connector_of
from tests.compat.pulsar_standalone import PULSAR_4, PulsarRelease

_TICKS_A_S: Final = os.sysconf("SC_CLK_TCK")


def facts(pulsar: PulsarRelease = PULSAR_4) -> dict[str, str]:
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": _line("/proc/cpuinfo", "model name"),
        "memory": f"{int(_line('/proc/meminfo', 'MemTotal').split()[0]) / 1024**2:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "Java": _java(),
        "Apache Kafka": f"{kafka_version()} (embedded broker)",
        "confluent-kafka": f"{version('confluent-kafka')}, librdkafka {confluent_kafka.libversion()[0]}",
        "Apache Spark": f"pyspark {_installed('pyspark')}, connector {connector_of().version}",
        "Apache Pulsar": f"{pulsar.version} (standalone, Java {_java(pulsar.oldest_java)})",
        "pulsar-client": _installed("pulsar-client"),
    }


def cpu_s() -> tuple[float, float]:
    """What all cores have done since the machine began, in seconds: busy, and in all."""
    ticks = [int(each) for each in Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:9]]
    idle, total = ticks[3] + ticks[4], sum(ticks)
    return (total - idle) / _TICKS_A_S, total / _TICKS_A_S


def _line(file: str, start: str) -> str:
    lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(start)), "unknown")


def _java(oldest: int = OLDEST) -> str:
    try:
        return find_java(oldest).version
    except EmbeddedBrokerError:
        return "none"


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
