"""This machine: Java for `pok standalone`, librdkafka, open files."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Final

from pulsar_on_kafka.cli.doctor.report import Finding, judge, ok, warn
from pulsar_on_kafka.embedded.errors import EmbeddedBrokerError
from pulsar_on_kafka.embedded.java import find_java

OLDEST_LIBRDKAFKA: Final = (2, 16)
FILES_PER_SUBSCRIPTION: Final = 8  # measured: what one group membership of librdkafka holds open
FEW_FILES: Final = 4096
_TESTED_JAVA: Final = (17, 21)


def check_machine() -> Iterator[Finding]:
    yield ok("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield check_librdkafka(metadata.version("confluent-kafka"))
    yield check_java()
    if sys.platform != "win32":
        import resource

        yield check_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))


def check_librdkafka(version: str) -> Finding:
    """`version` is confluent-kafka's, which is that of the librdkafka it brings."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return judge("librdkafka", numbers >= OLDEST_LIBRDKAFKA, version, "pip install -U 'confluent-kafka>=2.16,<3'")


def check_java() -> Finding:
    try:
        java = find_java()
    except EmbeddedBrokerError as error:
        return warn("java", str(error).partition(": ")[0], "only `pok standalone` needs it: " + _advice_of(error))
    major = int(java.version.partition(".")[0]) if java.version.partition(".")[0].isdigit() else 0
    return judge("java", major in _TESTED_JAVA, f"{java.version} at {java.executable}", "tested are 17 and 21")


def check_open_files(soft: int, hard: int) -> Finding:
    """Limits of the process; -1 is none."""
    if soft < 0:
        return ok("open files", "no limit")
    return judge(
        "open files",
        soft >= FEW_FILES,
        f"{soft:,} (hard limit {'none' if hard < 0 else f'{hard:,}'})",
        f"room for about {soft // FILES_PER_SUBSCRIPTION:,} subscriptions a process: ulimit -n 65536",
    )


def _advice_of(error: Exception) -> str:
    return str(error).partition(": ")[2]
