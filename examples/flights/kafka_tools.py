"""The same subscription, seen by Kafka's own tool."""

from __future__ import annotations

import os
import shlex
import subprocess

from pulsar_on_kafka.embedded.errors import EmbeddedBrokerError
from pulsar_on_kafka.embedded.jars import kafka_jars
from pulsar_on_kafka.embedded.java import find_java

_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def describe_command(bootstrap: str, group: str) -> list[str]:
    """A command line that runs as it stands where the embedded broker has fetched Kafka's tools; elsewhere the name of
    the script that every Kafka installation has."""
    return [*_tool(), "--bootstrap-server", bootstrap, "--describe", "--group", group]


def _tool() -> list[str]:
    try:
        libs = kafka_jars().libs
        if not any(libs.glob("kafka-tools-[0-9]*.jar")):
            return ["kafka-consumer-groups.sh"]
        return [find_java().executable, "-cp", f"{libs}{os.sep}*", _TOOL]
    except EmbeddedBrokerError:
        return ["kafka-consumer-groups.sh"]


def run(command: list[str]) -> str:
    """Its output; what went wrong instead, if it did. Nothing depends on it."""
    try:
        # stderr says only that the group has no active members, which is so.
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except FileNotFoundError:
        return f"({command[0]} is not on this machine)"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"({error})"
    return done.stdout.strip() or done.stderr.strip()


def as_line(command: list[str]) -> str:
    return shlex.join(command)
