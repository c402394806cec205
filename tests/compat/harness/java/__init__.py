"""Pulsar's Java client with the face of the official Python client, for what only the Java client has.

It runs in a JVM of its own (`JavaRuntime`) that all workers of a session share over py4j; no Java source is ours.
"""

from __future__ import annotations

from tests.compat.harness.java.client import JavaSdk
from tests.compat.harness.java.runtime import JavaAddress, JavaRuntime, JavaUnavailable, known_jars

__all__ = ["JavaAddress", "JavaRuntime", "JavaSdk", "JavaUnavailable", "known_jars"]
