"""Texts for people."""

from __future__ import annotations

from importlib import metadata

import pulsar_on_kafka
from pulsar_on_kafka.base.text import installed_version


def test_the_version_is_that_of_the_installed_distribution() -> None:
    assert installed_version() == metadata.version("pulsar-on-kafka") == pulsar_on_kafka.__version__
    assert installed_version("confluent-kafka") == metadata.version("confluent-kafka")


def test_what_is_not_installed_has_no_version() -> None:
    assert installed_version("pulsar-on-no-kafka") is None
