"""The JVM's archive of loaded classes: made by the first broker of a user that ends in order, used by all later ones.

It takes 0.8 s off a start of 1.9 s. A JVM that finds an archive of other jars or another JVM ignores it (-Xshare:auto).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from pulsar_on_kafka.embedded.jars import KafkaJars
from pulsar_on_kafka.embedded.java import Java


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive that all brokers share, and the draft that one JVM writes while it ends."""

    file: Path
    draft: Path

    @classmethod
    def of(cls, jars: KafkaJars, java: Java) -> ClassArchive:
        file = jars.home / f"classes-{java.version}.jsa"
        return cls(file, file.with_name(f"{file.name}.{secrets.token_hex(4)}"))

    def jvm_option(self) -> str:
        return f"-XX:SharedArchiveFile={self.file}" if self.file.exists() else f"-XX:ArchiveClassesAtExit={self.draft}"

    def settle(self, ended_in_order: bool) -> None:
        """Take over the draft of a JVM that ended in order; one that was killed may have written half of it."""
        if ended_in_order and self.draft.exists():
            self.draft.replace(self.file)
        self.draft.unlink(missing_ok=True)
