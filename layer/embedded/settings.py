"""The broker's properties: those of `kafka.properties` and those that depend on where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

from pulsar_on_kafka.embedded.errors import EmbeddedBrokerError

HOST = "127.0.0.1"


def common_properties() -> dict[str, str]:
    """The content of `kafka.properties`; the same for the embedded broker and for containers."""
    return parse_properties(
        resources.files("pulsar_on_kafka.embedded").joinpath("kafka.properties").read_text(encoding="utf-8")
    )


def parse_properties(text: str) -> dict[str, str]:
    """Plain `key=value` lines and `#` comments; no escapes, no continuation."""
    lines = [line.strip() for line in text.splitlines()]
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def render_properties(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file. Values with line breaks are refused, backslashes doubled."""
    for key, value in properties.items():
        if "\n" in value or "\r" in value or "=" in key:
            raise EmbeddedBrokerError(f"broker setting {key!r}: keys without '=', values on one line, please")
    return "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in properties.items())


def node_properties(port: int, controller_port: int, log_dir: str, extra: Mapping[str, str]) -> dict[str, str]:
    """Everything a broker on this machine needs; `extra` wins over all of it."""
    return {
        **common_properties(),
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "log.dirs": log_dir,
        **extra,
    }
