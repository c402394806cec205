"""Releases of Apache Pulsar that can be started, and what each of them needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Final

from tests.compat.pulsar_standalone.errors import PulsarStandaloneError


@dataclass(frozen=True, slots=True)
class PulsarRelease:
    """One release. Its jars are listed in `jars-<version>.txt`.

    Attributes:
        jars_mb: size of all jars, about.
        oldest_java: the version of Java that its classes are compiled for.
        settings: broker settings besides those of standalone.conf, which all releases share.
        jvm_options: options of the JVM besides those of all releases.
    """

    version: str
    jars_mb: int
    oldest_java: int
    settings: Mapping[str, str] = field(default_factory=dict)
    jvm_options: tuple[str, ...] = ()

    def broker_settings(self) -> dict[str, str]:
        """The settings of standalone.conf and those of this release, which win."""
        text = resources.files(__package__).joinpath("standalone.conf").read_text(encoding="utf-8")
        lines = (line.partition("=") for line in text.splitlines() if line and not line.startswith("#"))
        return {**{name: value for name, _, value in lines}, **self.settings}


PULSAR_4: Final = PulsarRelease("4.0.7", jars_mb=244, oldest_java=17)
PULSAR_5: Final = PulsarRelease(
    "5.0.1",
    jars_mb=249,
    oldest_java=21,
    settings={"allowLoopback": "true"},  # BookKeeper 4.18 refuses a bookie on 127.0.0.1 otherwise
    jvm_options=("--enable-native-access=ALL-UNNAMED",),
)
RELEASES: Final = (PULSAR_4, PULSAR_5)


def release_of(text: str) -> PulsarRelease:
    """The release of a version, or of the beginning of one: 5 and 5.0.1 are the same.

    Raises:
        PulsarStandaloneError: there is no such release here.
    """
    for release in RELEASES:
        if f"{release.version}.".startswith(f"{text}."):
            return release
    known = " or ".join(release.version for release in RELEASES)
    raise PulsarStandaloneError(f"expected a version of Pulsar, {known}, got {text!r}")
