"""Pulsar's jars in the user's cache, fetched as the embedded broker's are (`embedded.jar_cache`)."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from pulsar_on_kafka.embedded.jar_cache import JarSet, cached
from pulsar_on_kafka.embedded.settings import Progress, to_stderr
from tests.compat.pulsar_standalone.releases import PULSAR_4, PulsarRelease


def pulsar_jars(
    release: PulsarRelease = PULSAR_4, cache_dir: Path | None = None, progress: Progress = to_stderr
) -> Path:
    """The directory of the jars, fetched now if the cache does not hold all of them with the right sizes.

    Raises:
        EmbeddedBrokerError: the jars are missing and stay so.
    """
    text = resources.files(__package__).joinpath(f"jars-{release.version}.txt").read_text(encoding="utf-8")
    coordinates = tuple(line for line in text.splitlines() if not line.startswith("#"))
    jars = JarSet(
        name=jars_name(release),
        title=f"Apache Pulsar {release.version}",
        size_mb=release.jars_mb,
        alone=coordinates,
        fewest=len(coordinates),
        needed=(f"pulsar-broker-{release.version}.jar",),
    )
    return cached(jars, cache_dir, progress) / "libs"


def jars_name(release: PulsarRelease) -> str:
    """The directory's name in the cache."""
    return f"pulsar-{release.version}"
