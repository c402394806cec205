"""Pulsar's jars in the user's cache, fetched as the embedded broker's are (`embedded.jar_cache`)."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Final

from pulsar_on_kafka.embedded.jar_cache import JarSet, cached
from pulsar_on_kafka.embedded.settings import Progress, to_stderr

PULSAR_VERSION: Final = "4.0.7"


def pulsar_jars(cache_dir: Path | None = None, progress: Progress = to_stderr) -> Path:
    """The directory of the jars, fetched now if the cache does not hold all of them with the right sizes.

    Raises:
        EmbeddedBrokerError: the jars are missing and stay so.
    """
    text = resources.files(__package__).joinpath("jars.txt").read_text(encoding="utf-8")
    coordinates = tuple(line for line in text.splitlines() if not line.startswith("#"))
    jars = JarSet(
        name=f"pulsar-{PULSAR_VERSION}",
        title=f"Apache Pulsar {PULSAR_VERSION}",
        size_mb=244,
        alone=coordinates,
        fewest=len(coordinates),
        needed=(f"pulsar-broker-{PULSAR_VERSION}.jar",),
    )
    return cached(jars, cache_dir, progress) / "libs"
